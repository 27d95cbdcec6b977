//! File operations by offset: the same results on every driver and runtime kind.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::FutureExt;
use millstream::fs::{Error, File, OpenOptions, Root, Step};
use millstream::metrics::Snapshot;
use millstream::runtime::Io;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::runtime::{Handle, RuntimeFlavor};

use testkit::ways::{cool, on_every_way};
use testkit::{alone, lacks, noise, skip};

/// Returns step, path and errno of an error.
fn told(error: &Error) -> (Step, &Path, Option<Errno>) {
    assert_eq!(error.to_string(), format!("{}: {}", error.path().display(), error.step()));
    (error.step(), error.path(), error.raw_os_error().map(Errno::from_raw_os_error))
}

fn dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    (dir, path)
}

/// Returns a file open for reading and writing, and the same for std.
async fn file() -> (File, std::fs::File) {
    let (_dir, path) = dir();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).await.unwrap();
    (file, std::fs::File::open(&path).unwrap())
}

#[test]
fn what_is_written_is_read() {
    on_every_way(|_| async {
        let (file, std) = file().await;
        for len in [0, 1, 4096, 64 << 10, (64 << 10) + 1, 300_000, (3 << 20) + 7] {
            for offset in [0, 1, 4095, 1 << 20] {
                let bytes = Bytes::from(noise(len));
                file.write_at(offset, bytes.clone()).await.unwrap();
                let mut there = vec![0; len];
                std.read_exact_at(&mut there, offset).unwrap();
                assert!(there == bytes, "{len} at {offset}");
                assert!(file.read_at(offset, len).await.unwrap() == bytes, "{len} at {offset}");
            }
        }
    });
}

/// Returns whether an operation that is not done at once goes by ring, and is not done before the task waits. The pool may be
/// fast enough for that, and another worker may complete what goes by ring.
fn ring_waits(io: Io) -> bool {
    let is_alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
    io != Io::Epoll && is_alone && !lacks("io_uring")
}

#[test]
fn what_is_not_in_memory_is_waited_for_elsewhere() {
    on_every_way(|io| async move {
        let (file, std) = file().await;
        let bytes = Bytes::from(noise(2 << 20));
        file.write_at(0, bytes.clone()).await.unwrap();
        for (offset, len) in [(100_000, 1), (0, 4096), (1_000_001, 60_000), (0, 2 << 20)] {
            if !cool(&std) {
                return;
            }
            let read = file.read_at(offset, len);
            let mut read = std::pin::pin!(read);
            let at_once = read.as_mut().now_or_never();
            assert!(at_once.is_none() || !ring_waits(io), "{len} bytes at {offset} of a disk at once");
            if let Some(read) = at_once {
                assert!(read.unwrap() == bytes[offset as usize..][..len]);
                continue;
            }
            assert!(read.await.unwrap() == bytes[offset as usize..][..len]);
        }
        if cool(&std) {
            file.read_at(0, 4096).await.unwrap();
            assert!(file.read_at(0, 64 << 10).await.unwrap() == bytes[..64 << 10]);
        }
    });
}

#[test]
fn what_is_in_memory_is_read_at_once_unless_all_goes_by_ring() {
    if lacks("read_nowait") {
        return;
    }
    on_every_way(|io| async move {
        let (file, _) = file().await;
        file.write_at(0, noise(200_000)).await.unwrap();
        for len in [1, 64 << 10] {
            let at_once = file.read_at(5, len).now_or_never().is_some();
            assert!(if io == Io::Uring { !at_once || !ring_waits(io) } else { at_once }, "{len}");
        }
        assert!(file.read_at(5, 100_000).now_or_never().is_none() || !ring_waits(io), "more than a turn has time for");
        let at_once = file.metadata().now_or_never().is_some();
        assert!(if io == Io::Uring { !at_once || !ring_waits(io) } else { at_once }, "the status");
    });
}

#[test]
fn a_read_ends_with_the_file() {
    on_every_way(|_| async {
        let (file, _) = file().await;
        assert_eq!(file.read_at(0, 100).await.unwrap(), "");
        file.write_at(0, noise(100_000)).await.unwrap();
        for (offset, len, got) in [(0, 200_000, 100_000), (99_999, 4096, 1), (100_000, 1, 0), (1 << 40, 1, 0)] {
            assert_eq!(file.read_at(offset, len).await.unwrap().len(), got, "{len} at {offset}");
        }
    });
}

#[test]
fn pieces_lie_side_by_side() {
    on_every_way(|_| async {
        let (file, std) = file().await;
        let bytes = Bytes::from(noise(1 << 20));
        for lens in [vec![], vec![0], vec![10, 0, 4096], vec![300_000, 1, 0, 500_000], vec![37; 3000]] {
            let mut rest = bytes.clone();
            let pieces: Vec<Bytes> = lens.iter().map(|&len| rest.split_to(len)).collect();
            file.set_len(0).await.unwrap();
            file.write_vectored_at(7, pieces.clone()).await.unwrap();
            let total = lens.iter().sum();
            let mut there = vec![0; total];
            std.read_exact_at(&mut there, 7).unwrap();
            assert!(there == bytes[..total], "{lens:?}");
            assert!(file.read_vectored_at(7, &lens).await.unwrap() == pieces, "{lens:?}");
        }
        file.set_len(150_000).await.unwrap();
        let lens = [100_000, 100_000, 5];
        let got = file.read_vectored_at(0, &lens).await.unwrap();
        assert_eq!(got.iter().map(Bytes::len).collect::<Vec<_>>(), [100_000, 50_000, 0]);
    });
}

#[test]
fn holes_read_as_zeros_and_offsets_may_be_large() {
    on_every_way(|_| async {
        let (file, std) = file().await;
        for offset in [(1 << 31) - 10, (1 << 32) - 10, 1 << 40] {
            file.write_at(offset, noise(100_000)).await.unwrap();
            let mut there = vec![0; 100_000];
            std.read_exact_at(&mut there, offset).unwrap();
            assert!(there == noise(100_000));
            let around = file.read_at(offset - 50, 100_100).await.unwrap();
            assert!(around[..50] == [0; 50] && around[50..100_050] == there);
        }
        assert!(file.read_at(5, 500_000).await.unwrap().iter().all(|&byte| byte == 0));
        assert_eq!(file.metadata().await.unwrap().len(), (1 << 40) + 100_000);
        assert!(std.metadata().unwrap().len() > 1 << 40);
    });
}

#[test]
fn length_room_and_status_are_those_of_the_file() {
    on_every_way(|_| async {
        let (file, std) = file().await;
        file.set_len(5000).await.unwrap();
        assert_eq!(std.metadata().unwrap().len(), 5000);
        let (before, room) =
            (std.metadata().unwrap(), std::os::unix::fs::MetadataExt::blocks(&std.metadata().unwrap()));
        match file.allocate(0, 1 << 20).await {
            Ok(()) => {
                assert_eq!(std.metadata().unwrap().len(), 1 << 20);
                assert!(std::os::unix::fs::MetadataExt::blocks(&std.metadata().unwrap()) > room);
            }
            Err(e) if told(&e).2 == Some(Errno::OPNOTSUPP) => skip("room for a file", e),
            Err(e) => panic!("{e}"),
        }
        file.set_len(9).await.unwrap();
        file.write_at(0, "x").await.unwrap();
        file.sync_data().await.unwrap();
        file.sync().await.unwrap();
        let status = file.metadata().await.unwrap();
        assert_eq!((status.len(), status.is_file()), (9, true));
        assert_eq!(status.inode(), std::os::unix::fs::MetadataExt::ino(&before));
        assert_eq!(status.modified(), Some(std.metadata().unwrap().modified().unwrap()));
    });
}

#[test]
fn errors_name_the_step_and_the_path_and_keep_the_number() {
    if testkit::portable("no space is reserved") {
        return;
    }
    on_every_way(|_| async {
        let (dir, path) = dir();
        std::fs::write(&path, "bytes").unwrap();
        let file = File::open(&path).await.unwrap();
        let error = |result: Result<(), Error>| result.unwrap_err();
        for (error, step, errno) in [
            (error(file.write_at(0, "x").await), Step::Write, Errno::BADF),
            (error(file.write_vectored_at(0, [Bytes::from_static(b"x")]).await), Step::Write, Errno::BADF),
            (error(file.set_len(1).await), Step::SetLength, Errno::INVAL),
            (error(file.allocate(0, 1).await), Step::Allocate, Errno::BADF),
            (error(file.read_at(u64::MAX, 1).await.map(drop)), Step::Read, Errno::INVAL),
            (error(file.read_at(i64::MAX as u64, 1).await.map(drop)), Step::Read, Errno::INVAL),
            (error(file.read_vectored_at(1 << 63, &[1, 1]).await.map(drop)), Step::Read, Errno::INVAL),
            (error(file.write_at(u64::MAX, "x").await), Step::Write, Errno::INVAL),
            (error(file.set_len(u64::MAX).await), Step::SetLength, Errno::INVAL),
        ] {
            assert_eq!(told(&error), (step, &*path, Some(errno)));
        }
        assert_eq!(file.read_at(0, 10).await.unwrap(), "bytes");
        let write_only = OpenOptions::new().write(true).open(&path).await.unwrap();
        for len in [1, 100_000] {
            let error = write_only.read_at(0, len).await.unwrap_err();
            assert_eq!(told(&error), (Step::Read, &*path, Some(Errno::BADF)));
        }
        let folder = File::open(dir.path()).await.unwrap();
        assert_eq!(told(&folder.read_at(0, 10).await.unwrap_err()), (Step::Read, dir.path(), Some(Errno::ISDIR)));
        let missing = dir.path().join("missing");
        assert_eq!(told(&File::open(&missing).await.unwrap_err()), (Step::Open, &*missing, Some(Errno::NOENT)));
        assert_eq!(told(&File::open("a\0b").await.unwrap_err()).0, Step::Open);
    });
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    let file = File::from_std(tempfile::tempfile().unwrap()).unwrap();
    for error in [
        file.read_at(0, 10).now_or_never().unwrap().map(drop).unwrap_err(),
        file.write_at(0, "x").now_or_never().unwrap().unwrap_err(),
        file.metadata().now_or_never().unwrap().map(drop).unwrap_err(),
    ] {
        assert_eq!(told(&error), (Step::Start, Path::new("the open file"), None));
    }
}

/// Builds the options of `bits`, ours and std's.
fn options(bits: u32) -> (OpenOptions, std::fs::OpenOptions) {
    let [read, write, append, truncate, create, create_new] = std::array::from_fn(|n| bits & (1 << n) != 0);
    let ours = OpenOptions::new();
    let ours = ours.read(read).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
    let mut std = std::fs::OpenOptions::new();
    std.read(read).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
    (ours, std)
}

#[test]
fn options_mean_what_they_mean_to_std() {
    on_every_way(|_| async {
        let (dir, path) = dir();
        let twin = dir.path().join("twin");
        for bits in 0..1 << 6 {
            let (ours, std) = options(bits);
            for contents in [None, Some("old")] {
                for path in [&path, &twin] {
                    let _ = std::fs::remove_file(path);
                    contents.into_iter().for_each(|contents| std::fs::write(path, contents).unwrap());
                }
                let (opened, expected) = (ours.open(&path).await, std.open(&twin));
                let message = format!("{ours:?} on {contents:?}");
                match (opened, expected) {
                    (Ok(file), Ok(std)) => {
                        let (got, expected) = (file.read_at(0, 9).await.ok(), std.read_at(&mut [0; 9], 0).ok());
                        assert_eq!(got.map(|bytes| bytes.len()), expected, "{message}");
                        assert_eq!(file.write_at(1, "xy").await.is_ok(), std.write_at(b"xy", 1).is_ok(), "{message}");
                    }
                    (Err(error), Err(expected)) => {
                        told(&error);
                        assert_eq!(error.kind(), expected.kind(), "{message}");
                    }
                    (opened, expected) => panic!("{message}: {opened:?}, expected {expected:?}"),
                }
                assert_eq!(std::fs::read(&path).ok(), std::fs::read(&twin).ok(), "{message}");
            }
        }
    });
}

#[test]
fn what_is_made_has_its_mode_and_links_can_be_refused() {
    on_every_way(|_| async {
        let (dir, path) = dir();
        OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        File::open(&link).await.unwrap();
        let refusing = File::options().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        assert_eq!(told(&refusing.open(&link).await.unwrap_err()).2, Some(Errno::LOOP));
    });
}

#[test]
fn what_is_no_regular_file_holds_up_nobody() {
    on_every_way(|_| async {
        let (dir, _) = dir();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        assert_eq!(told(&File::open(&fifo).await.unwrap_err()), (Step::Open, &*fifo, Some(Errno::SPIPE)));
        let version = File::open("/proc/version").await.unwrap();
        assert!(version.read_at(0, 4096).await.unwrap().starts_with(b"Linux version"));
        let zeros = File::open("/dev/zero").await.unwrap();
        assert_eq!(zeros.read_at(1 << 30, 100_000).await.unwrap(), vec![0; 100_000]);
        let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
        assert_eq!(told(&full.write_at(0, "x").await.unwrap_err()).2, Some(Errno::NOSPC));
    });
}

/// A file of sysfs says that it has 4096 bytes, and ends before.
#[test]
fn a_file_that_is_shorter_than_it_says_turns_no_operation_off() {
    if alone::ran_in_child() {
        return;
    }
    const SHORT: &str = "/sys/devices/system/cpu/online";
    on_every_way(|_| async {
        let before = Snapshot::now();
        let read = File::open(SHORT).await.unwrap().read_at(0, 4096).await.unwrap();
        assert_eq!(read, std::fs::read(SHORT).unwrap());
        assert_eq!(Snapshot::now().since(&before).ring_demotions, 0);
    });
}

#[test]
fn closing_is_for_this_handle_and_into_std_for_all() {
    on_every_way(|_| async {
        let (_dir, path) = dir();
        let file = File::create(&path).await.unwrap();
        let clone = file.clone();
        file.close().await.unwrap();
        clone.write_at(0, "still open").await.unwrap();
        let std = clone.clone().into_std().unwrap();
        std.write_all_at(b"STILL", 0).unwrap();
        clone.close().await.unwrap();
        let file = File::from_std(std).unwrap();
        file.write_at(10, "!").await.unwrap();
        file.close().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"STILL open!");
    });
}

#[test]
fn many_tasks_share_a_file() {
    on_every_way(|_| async {
        let (file, _) = file().await;
        let bytes = Bytes::from(noise(1 << 20));
        let write = |n: usize| {
            let (file, bytes) = (file.clone(), bytes.clone());
            tokio::spawn(
                async move { file.write_at((n * 16384) as u64, bytes.slice(n * 16384..(n + 1) * 16384)).await },
            )
        };
        for task in (0..64).map(write).collect::<Vec<_>>() {
            task.await.unwrap().unwrap();
        }
        let read = |n: usize| {
            let file = file.clone();
            tokio::spawn(async move { file.read_at((n * 7919 % 1_000_000) as u64, 4096).await })
        };
        for (n, task) in (0..256).map(read).collect::<Vec<_>>().into_iter().enumerate() {
            assert!(task.await.unwrap().unwrap() == bytes[n * 7919 % 1_000_000..][..4096], "{n}");
        }
    });
}

#[test]
fn beneath_a_root_there_are_only_regular_files() {
    // The portable build resolves paths without it.
    if !cfg!(millstream_portable) && lacks("openat2") {
        return;
    }
    on_every_way(|_| async {
        let (dir, path) = dir();
        std::fs::write(&path, "bytes").unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let root = Root::open_dir(dir.path()).unwrap();
        let file = root.open("file").await.unwrap();
        assert_eq!(file.read_at(1, 3).await.unwrap(), "yte");
        for (path, errno) in [("sub", Errno::ISDIR), ("../file", Errno::XDEV), ("none", Errno::NOENT)] {
            let error = root.open(path).await.unwrap_err();
            assert_eq!(told(&error), (Step::Open, Path::new(path), Some(errno)));
        }
    });
}

#[test]
fn whoever_reads_what_is_in_memory_lets_others_run() {
    on_every_way(|_| async {
        let (file, _) = file().await;
        file.write_at(0, noise(100_000)).await.unwrap();
        let mut reader = file.reader();
        for by_offset in [true, false] {
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                match by_offset {
                    true => drop(file.read_at(0, 4096).await.unwrap()),
                    false => {
                        reader.rewind().await.unwrap();
                        reader.read_exact(&mut [0; 4096]).await.unwrap();
                    }
                }
            }
        }
    });
}
