//! File streams: the adapters behave like a model of bytes and a position, on every driver.

use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::StreamExt;
#[cfg(feature = "body")]
use http_body_util::BodyExt;
#[cfg(feature = "body")]
use millstream::body::FileBody;
use millstream::fs::{Error, File, OpenOptions};
use millstream::runtime::Io;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWriteExt};

use testkit::http::{Flavour, watched};
use testkit::ways::{cool, on_every_way, on_way};
use testkit::{child, noise, seccomp};

/// Returns a file open for reading and writing, and the same for std.
fn file(contents: &[u8]) -> (File, std::fs::File) {
    let std = tempfile::tempfile().unwrap();
    std.write_all_at(contents, 0).unwrap();
    (File::from_std(std.try_clone().unwrap()).unwrap(), std)
}

fn errno(error: &io::Error) -> Option<i32> {
    error.get_ref()?.downcast_ref::<Error>()?.raw_os_error()
}

fn contents(std: &std::fs::File) -> Vec<u8> {
    let mut contents = vec![0; std.metadata().unwrap().len() as usize];
    std.read_exact_at(&mut contents, 0).unwrap();
    contents
}

/// Expected contents of a file and position in it.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    at: u64,
}

impl Model {
    fn read(&mut self, len: usize) -> Vec<u8> {
        let from = self.bytes.len().min(self.at as usize);
        let got = self.bytes[from..].iter().copied().take(len).collect::<Vec<u8>>();
        self.at += got.len() as u64;
        got
    }

    fn line(&mut self) -> Vec<u8> {
        let from = self.bytes.len().min(self.at as usize);
        let end = self.bytes[from..].iter().position(|&byte| byte == b'\n');
        self.read(end.map_or(usize::MAX, |end| end + 1))
    }

    fn write(&mut self, bytes: &[u8]) {
        let at = self.at as usize;
        self.bytes.resize(self.bytes.len().max(at + bytes.len()), 0);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len() as u64;
    }

    /// Returns the new position; `None` if it is invalid.
    fn seek(&mut self, to: SeekFrom) -> Option<u64> {
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => (self.bytes.len() as u64).checked_add_signed(by),
        };
        self.at = to.unwrap_or(self.at);
        to
    }
}

#[derive(Clone, Debug)]
enum Action {
    Read(usize),
    Line,
    Write(usize),
    Flush,
    Seek(SeekFrom),
}

fn seek() -> impl Strategy<Value = Action> {
    let by = prop_oneof![-1000i64..1000, -700_000i64..700_000, Just(0)];
    prop_oneof![
        (0u64..800_000).prop_map(SeekFrom::Start),
        by.clone().prop_map(SeekFrom::Current),
        by.prop_map(SeekFrom::End),
    ]
    .prop_map(Action::Seek)
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..100, 1usize..10_000, 60_000usize..600_000]
}

/// Runs `actions` of a strategy on each driver.
fn model<F, R>(action: impl Strategy<Value = Action> + Clone + Send + 'static, test: F)
where
    F: Fn(Vec<Action>) -> R + Copy + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    watched(move || {
        for (flavour, io) in
            [(Flavour::CurrentThread, Io::Uring), (Flavour::TwoWorkers, Io::Auto), (Flavour::CurrentThread, Io::Epoll)]
        {
            let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
            let ran = TestRunner::new(config).run(&prop::collection::vec(action.clone(), 1..20), |actions| {
                // A panic of the task fails the case.
                on_way(flavour, io, test(actions));
                Ok(())
            });
            ran.unwrap_or_else(|e| panic!("{flavour:?}, {io}: {e}"));
        }
    });
}

#[test]
fn a_reader_reads_as_its_model_does() {
    let action = prop_oneof![4 => len().prop_map(Action::Read), 1 => Just(Action::Line), 2 => seek()];
    model(action, |actions| async move {
        let mut model = Model { bytes: noise(700_001), at: 0 };
        let (file, std) = file(&model.bytes);
        cool(&std);
        let mut reader = file.reader();
        for action in actions {
            match action {
                Action::Read(len) => {
                    let mut got = Vec::new();
                    (&mut reader).take(len as u64).read_to_end(&mut got).await.unwrap();
                    assert!(got == model.read(len), "{len} bytes");
                }
                Action::Line => {
                    let mut got = Vec::new();
                    reader.read_until(b'\n', &mut got).await.unwrap();
                    assert!(got == model.line(), "a line");
                }
                Action::Seek(to) => assert_eq!(reader.seek(to).await.ok(), model.seek(to)),
                Action::Write(_) | Action::Flush => unreachable!("not in the strategy"),
            }
            assert_eq!(reader.stream_position().await.unwrap(), model.at);
        }
    });
}

#[test]
fn a_writer_writes_as_its_model_does() {
    let action = prop_oneof![4 => len().prop_map(Action::Write), 1 => Just(Action::Flush), 2 => seek()];
    model(action, |actions| async move {
        let (file, std) = file(b"");
        let (mut writer, mut model) = (file.writer(), Model::default());
        let source = noise(600_100);
        for (n, action) in actions.into_iter().enumerate() {
            match action {
                Action::Write(len) => {
                    writer.write_all(&source[n..n + len]).await.unwrap();
                    model.write(&source[n..n + len]);
                }
                Action::Flush => {
                    writer.flush().await.unwrap();
                    assert!(contents(&std) == model.bytes, "after a flush");
                }
                Action::Seek(to) => assert_eq!(writer.seek(to).await.ok(), model.seek(to)),
                Action::Read(_) | Action::Line => unreachable!("not in the strategy"),
            }
            assert_eq!(writer.stream_position().await.unwrap(), model.at);
        }
        writer.shutdown().await.unwrap();
        assert!(contents(&std) == model.bytes, "at the end");
    });
}

#[test]
fn a_cold_file_is_read_whole() {
    on_every_way(|_| async {
        let bytes = noise(3 << 20);
        for piece in [1000, 300_000] {
            let (file, std) = file(&bytes);
            cool(&std);
            let mut reader = file.reader();
            let mut got = Vec::new();
            let mut buf = vec![0; piece];
            loop {
                match reader.read(&mut buf).await.unwrap() {
                    0 => break,
                    n => got.extend_from_slice(&buf[..n]),
                }
            }
            assert!(got == bytes, "by {piece}");
            cool(&std);
            let chunks: Vec<Bytes> = file.reader().into_chunks().map(Result::unwrap).collect().await;
            assert!(chunks.concat() == bytes);
        }
    });
}

#[test]
fn a_file_that_has_grown_is_read_on() {
    on_every_way(|_| async {
        let (file, std) = file(b"one\n");
        let mut reader = file.reader();
        let mut line = String::new();
        for (end, new) in [(4, "two\n"), (8, "three\n")] {
            reader.read_line(&mut line).await.unwrap();
            assert_eq!(reader.read_line(&mut line).await.unwrap(), 0, "the end for now");
            std.write_all_at(new.as_bytes(), end).unwrap();
        }
        reader.read_line(&mut line).await.unwrap();
        assert_eq!(line, "one\ntwo\nthree\n");
    });
}

#[test]
fn there_is_nothing_beyond_the_last_offset() {
    on_every_way(|_| async {
        let (file, _) = file(b"bytes");
        let (mut reader, mut writer) = (file.reader(), file.writer());
        let last = i64::MAX as u64;
        assert_eq!(reader.seek(SeekFrom::Start(last)).await.unwrap(), last);
        assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 0);
        for to in [SeekFrom::Start(last + 1), SeekFrom::Current(1), SeekFrom::End(-6)] {
            assert_eq!(reader.seek(to).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(reader.stream_position().await.unwrap(), last);
        writer.seek(SeekFrom::Start(last)).await.unwrap();
        writer.write_all(b"x").await.unwrap();
        assert_eq!(errno(&writer.flush().await.unwrap_err()), Some(22));
    });
}

#[test]
fn a_reader_that_failed_tries_again() {
    on_every_way(|_| async {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("write only")).await.unwrap();
        let (mut reader, mut chunks) = (file.reader(), file.reader().into_chunks());
        for _ in 0..3 {
            assert_eq!(errno(&reader.read(&mut [0; 10]).await.unwrap_err()), Some(9));
            assert_eq!(errno(&chunks.next().await.unwrap().unwrap_err()), Some(9));
        }
    });
}

#[test]
fn each_error_of_a_writer_is_told_once_and_none_is_lost() {
    on_every_way(|_| async {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("read only"), "").unwrap();
        let file = File::open(dir.path().join("read only")).await.unwrap();
        let bytes = noise(256 << 10);
        for end in ["flush", "shutdown", "seek"] {
            let mut writer = file.writer();
            // Accepted, because nothing has been written yet.
            writer.write_all(&bytes).await.unwrap();
            let (mut accepted, mut errors) = (1, 0);
            while accepted < 5 {
                // The error is returned instead of accepting bytes.
                match writer.write(&bytes).await {
                    Ok(n) => {
                        assert_eq!(n, bytes.len());
                        accepted += 1;
                    }
                    Err(e) => {
                        assert_eq!(errno(&e), Some(9));
                        errors += 1;
                    }
                }
            }
            // At most the piece in flight and the gathered one.
            assert!(errors == 3 || errors == 4, "{errors} errors");
            for _ in errors..5 {
                let error = match end {
                    "flush" => writer.flush().await,
                    "shutdown" => writer.shutdown().await,
                    _ => writer.seek(SeekFrom::Start(0)).await.map(drop),
                };
                assert_eq!(errno(&error.unwrap_err()), Some(9), "{end}");
            }
            writer.flush().await.unwrap();
            writer.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_seek_that_failed_moves_nothing_later() {
    on_every_way(|_| async {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("read only"), "").unwrap();
        let mut writer = File::open(dir.path().join("read only")).await.unwrap().writer();
        writer.write_all(b"one").await.unwrap();
        assert_eq!(errno(&writer.seek(SeekFrom::Start(100)).await.unwrap_err()), Some(9));
        // The position stays behind the bytes that failed.
        assert_eq!(writer.stream_position().await.unwrap(), 3);
        writer.write_all(b"two").await.unwrap();
        assert_eq!(errno(&writer.flush().await.unwrap_err()), Some(9));
        assert_eq!(writer.stream_position().await.unwrap(), 6);
    });
}

#[test]
fn a_seek_that_nobody_completed_moves_nothing_later() {
    on_every_way(|_| async {
        let (file, std) = file(b"one two three");
        let mut writer = file.writer();
        for (bytes, end) in [("ONE", 3), (" TWO", 7), (" T", 9)] {
            Pin::new(&mut writer).start_seek(SeekFrom::Start(100)).unwrap();
            writer.write_all(bytes.as_bytes()).await.unwrap();
            assert_eq!(writer.stream_position().await.unwrap(), end);
        }
        writer.shutdown().await.unwrap();
        assert_eq!(contents(&std), b"ONE TWO Three");
        let mut reader = file.reader();
        let mut three = [0; 3];
        Pin::new(&mut reader).start_seek(SeekFrom::Start(100)).unwrap();
        reader.read_exact(&mut three).await.unwrap();
        assert_eq!((&three, reader.stream_position().await.unwrap()), (b"ONE", 3));
        Pin::new(&mut reader).start_seek(SeekFrom::Start(100)).unwrap();
        assert_eq!(reader.fill_buf().await.unwrap(), b" TWO Three");
        assert_eq!(reader.stream_position().await.unwrap(), 3);
    });
}

#[test]
fn a_full_disk_is_told_by_the_flush() {
    on_every_way(|_| async {
        let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
        let mut writer = full.writer();
        writer.write_all(b"x").await.unwrap();
        assert_eq!(writer.flush().await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        writer.flush().await.unwrap();
    });
}

#[test]
fn what_appends_appends_in_order() {
    on_every_way(|_| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "before").unwrap();
        let mut writer = OpenOptions::new().append(true).open(&path).await.unwrap().writer();
        let bytes = noise(2 << 20);
        writer.write_all(&bytes).await.unwrap();
        writer.shutdown().await.unwrap();
        assert!(std::fs::read(&path).unwrap() == [b"before", &bytes[..]].concat());
    });
}

#[test]
fn a_nowait_read_of_nothing_in_the_middle_of_a_file_is_not_its_end() {
    const NAME: &str = "stream::a_nowait_read_of_nothing_in_the_middle_of_a_file_is_not_its_end";
    if child::task().is_none() {
        for without in ["", "sendfile,mapping"] {
            child::run(child::command(NAME, "").env("MILLSTREAM_DISABLE", without));
        }
        return;
    }
    seccomp::nowait_reads_nothing();
    on_every_way(|_| async {
        let bytes = noise(100_000);
        let (file, _) = file(&bytes);
        assert!(file.read_at(500, 20_000).await.unwrap() == bytes[500..20_500]);
        assert!(file.read_at(90_000, 20_000).await.unwrap() == bytes[90_000..], "up to the end");
        assert!(file.read_at(100_000, 1).await.unwrap().is_empty(), "at the end");
        let mut whole = Vec::new();
        file.reader().read_to_end(&mut whole).await.unwrap();
        assert!(whole == bytes);
        #[cfg(feature = "body")]
        for range in [100..20_000, 1..100_000] {
            let body = FileBody::new(&file, range.clone()).unwrap().collect().await.unwrap().to_bytes();
            assert!(body == bytes[range.start as usize..range.end as usize]);
        }
    });
}
