//! Copies: a relay between sockets, messages through it, file to socket, file to file.
//!
//! | case | method |
//! |---|---|
//! | millstream | [`copy`], [`copy_bidirectional`], [`Copier`] on streams and files of tokio, and on ours where stated |
//! | tokio | its function of the same name |
//! | tokio copy_buf | 32 KiB at a time, like Go's `io.Copy` |
//! | floor, std loop | `read` and `write` of 64 KiB on blocking descriptors |
//! | floor, std::fs::copy | the same calls as ours, on the calling thread |
//!
//! Senders and receivers are threads without other work, and every byte is compared; for files, outside of the measured
//! time. For sockets CPU time is that of the copying thread, on a current-thread runtime; for files that of the
//! process. The files are in the page cache, on the file system of the temporary directory.
//!
//! **Noise**: wall time where sender, receiver and relay share two CPUs, and all writes to a shared disk.

use std::fs::File as StdFile;
use std::io::{self, Read, Write};
use std::net::TcpStream as StdStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use millstream::copy::{Copier, copy, copy_bidirectional};
use millstream::fs::File;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

mod common;
use common::contest::{Case, Contender, Spent};
use common::options::options;
use common::suite::Suite;
use common::{PERIOD, noise, pair, runtime};

/// Bytes that a sender writes, and a receiver reads, at a time.
const PIECE: usize = 256 << 10;

/// The repeated bytes that are sent, and one more piece.
struct Stream(Vec<u8>);

impl Stream {
    fn new() -> Arc<Self> {
        Arc::new(Self(noise(PERIOD + PIECE)))
    }

    /// Returns the bytes at an offset.
    fn at(&self, offset: usize, len: usize) -> &[u8] {
        &self.0[offset % PERIOD..][..len]
    }

    fn send(&self, to: &mut StdStream, len: usize) {
        let mut sent = 0;
        while sent < len {
            let piece = PIECE.min(len - sent);
            to.write_all(self.at(sent, piece)).unwrap();
            sent += piece;
        }
    }

    fn receive(&self, from: &mut StdStream, len: usize) {
        let mut piece = vec![0; PIECE];
        let mut got = 0;
        while got < len {
            let n = from.read(&mut piece).unwrap();
            assert!(n > 0, "it ended after {got} bytes");
            assert!(piece[..n] == *self.at(got, n), "wrong bytes at {got}");
            got += n;
        }
    }
}

fn tokio_stream(stream: StdStream) -> TcpStream {
    stream.set_nonblocking(true).unwrap();
    TcpStream::from_std(stream).unwrap()
}

/// A way to relay between two connections until both have ended.
type Relay = fn(StdStream, StdStream);

fn by_millstream(a: StdStream, b: StdStream) {
    runtime().block_on(async {
        copy_bidirectional(&mut tokio_stream(a), &mut tokio_stream(b)).await.unwrap();
    });
}

fn by_millstream_streams(a: StdStream, b: StdStream) {
    runtime().block_on(async {
        let ours = |stream| millstream::net::TcpStream::from_std(stream).unwrap();
        copy_bidirectional(&mut ours(a), &mut ours(b)).await.unwrap();
    });
}

fn by_tokio(a: StdStream, b: StdStream) {
    runtime().block_on(async {
        tokio::io::copy_bidirectional(&mut tokio_stream(a), &mut tokio_stream(b)).await.unwrap();
    });
}

fn by_copy_buf(a: StdStream, b: StdStream) {
    runtime().block_on(async {
        let (a, b) = (tokio_stream(a).into_split(), tokio_stream(b).into_split());
        let one_way = async |from, mut to: tokio::net::tcp::OwnedWriteHalf| {
            tokio::io::copy_buf(&mut BufReader::with_capacity(32 << 10, from), &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        };
        tokio::join!(one_way(a.0, b.1), one_way(b.0, a.1));
    });
}

/// In one direction: the other has no data.
fn by_std(mut a: StdStream, mut b: StdStream) {
    let mut piece = vec![0; 64 << 10];
    loop {
        match a.read(&mut piece).unwrap() {
            0 => return b.shutdown(std::net::Shutdown::Write).unwrap(),
            n => b.write_all(&piece[..n]).unwrap(),
        }
    }
}

fn relay(suite: &mut Suite) {
    let len: usize = options().pick(8 << 20, 32 << 20, 128 << 20);
    let stream = Stream::new();
    let contender = |name, relay: Relay| {
        let stream = Arc::clone(&stream);
        let run = move |operations| {
            let mut all = Spent::default();
            for _ in 0..operations {
                let ((mut client, a), (b, mut server)) = (pair(), pair());
                let (up, down) = (Arc::clone(&stream), Arc::clone(&stream));
                let sender = thread::spawn(move || {
                    up.send(&mut client, len);
                    client.shutdown(std::net::Shutdown::Write).unwrap();
                    client
                });
                let receiver = thread::spawn(move || down.receive(&mut server, len));
                all.on_this_thread(|| relay(a, b));
                drop(sender.join().unwrap());
                receiver.join().unwrap();
            }
            all
        };
        Contender::new(name, run)
    };
    let contenders = vec![
        contender("millstream", by_millstream),
        contender("millstream, our streams", by_millstream_streams),
        contender("tokio copy_bidirectional", by_tokio),
        contender("tokio copy_buf, 32 KiB", by_copy_buf),
        contender("floor, std loop, one way", by_std),
    ];
    suite.run(&Case::new("socket to socket", "CPU us/MiB", (len >> 20) as u64), || contenders);
}

/// Round trips of messages, one at a time.
fn messages(suite: &mut Suite) {
    let count: usize = options().pick(100, 1000, 5000);
    let contender = |name, relay: Relay| {
        let run = move |operations| {
            let mut all = Spent::default();
            for _ in 0..operations {
                let ((mut client, a), (b, mut server)) = (pair(), pair());
                let asks = thread::spawn(move || {
                    for n in 0..count {
                        let mut message = [n as u8; 64];
                        client.write_all(&message).unwrap();
                        client.read_exact(&mut message).unwrap();
                        assert!(message == [n as u8; 64]);
                    }
                });
                let answers = thread::spawn(move || {
                    let mut message = [0; 64];
                    while server.read_exact(&mut message).is_ok() {
                        server.write_all(&message).unwrap();
                    }
                });
                all.on_this_thread(|| relay(a, b));
                asks.join().unwrap();
                answers.join().unwrap();
            }
            all
        };
        Contender::new(name, run)
    };
    let contenders = vec![
        contender("millstream", by_millstream),
        contender("millstream, our streams", by_millstream_streams),
        contender("tokio copy_bidirectional", by_tokio),
        contender("tokio copy_buf, 32 KiB", by_copy_buf),
    ];
    suite.run(&Case::new("64 B there and back", "CPU us/message", count as u64), || contenders);
}

/// A file to copy, and a directory for the copies.
struct Sample {
    dir: tempfile::TempDir,
    len: usize,
}

impl Sample {
    fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("from"), noise(len)).unwrap();
        Self { dir, len }
    }

    fn from(&self) -> PathBuf {
        self.dir.path().join("from")
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    /// Checks and removes the copy.
    fn check(&self) {
        let mut copy = StdFile::open(self.to()).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), self.len as u64);
        let (bytes, mut piece) = (noise(PERIOD + PIECE), vec![0; PIECE]);
        let mut at = 0;
        while at < self.len {
            let n = PIECE.min(self.len - at);
            copy.read_exact(&mut piece[..n]).unwrap();
            assert!(piece[..n] == bytes[at % PERIOD..][..n], "wrong bytes at {at}");
            at += n;
        }
        std::fs::remove_file(self.to()).unwrap();
    }
}

/// Copies a file to a socket, one MiB at a time, like responses.
fn file_to_socket(suite: &mut Suite) {
    const CHUNK: usize = 1 << 20;
    const TITLE: &str = "file to socket, 1 MiB at a time";
    if !suite.wants(TITLE) {
        return;
    }
    let sample = Sample::new(options().pick(4 << 20, 32 << 20, 128 << 20));
    let stream = Stream::new();
    let contender = |name, send: fn(&Sample, StdStream)| {
        let (stream, sample) = (Arc::clone(&stream), &sample);
        let run = move |operations| {
            let mut all = Spent::default();
            for _ in 0..operations {
                let (ours, mut theirs) = pair();
                let (stream, len) = (Arc::clone(&stream), sample.len);
                let receiver = thread::spawn(move || stream.receive(&mut theirs, len));
                all.on_this_thread(|| send(sample, ours));
                receiver.join().unwrap();
            }
            all
        };
        Contender::new(name, run)
    };
    let contenders = vec![
        contender("millstream", |sample, socket| {
            runtime().block_on(async {
                let mut reader = File::open(sample.from()).await.unwrap().reader();
                let mut socket = tokio_stream(socket);
                for _ in 0..sample.len / CHUNK {
                    Copier::new().limit(CHUNK as u64).run(&mut reader, &mut socket).await.unwrap();
                }
            });
        }),
        contender("read and write, 64 KiB", |sample, socket| {
            runtime().block_on(async {
                let mut file = StdFile::open(sample.from()).unwrap();
                let mut socket = tokio_stream(socket);
                let mut piece = vec![0; 64 << 10];
                loop {
                    // The file is in memory, so reading on this thread is cheapest.
                    match file.read(&mut piece).unwrap() {
                        0 => break,
                        n => socket.write_all(&piece[..n]).await.unwrap(),
                    }
                }
            });
        }),
        contender("tokio::io::copy", |sample, socket| {
            runtime().block_on(async {
                let mut file = tokio::fs::File::open(sample.from()).await.unwrap();
                tokio::io::copy(&mut file, &mut tokio_stream(socket)).await.unwrap();
            });
        }),
    ];
    let units = (sample.len >> 20) as u64;
    suite.run(&Case::new(TITLE, "CPU us/MiB", units), || contenders);
}

fn std_loop(sample: &Sample) -> io::Result<()> {
    let (mut from, mut to) = (StdFile::open(sample.from())?, StdFile::create(sample.to())?);
    let mut piece = vec![0; 64 << 10];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            n => to.write_all(&piece[..n])?,
        }
    }
}

fn file_to_file(suite: &mut Suite, title: &str, len: usize) {
    if !suite.wants(title) {
        return;
    }
    let sample = Sample::new(len);
    let runtime = runtime();
    let contender = |name, copy: &'static dyn Fn(&Sample, &tokio::runtime::Runtime)| {
        let (sample, runtime) = (&sample, &runtime);
        let run = move |operations| {
            let mut all = Spent::default();
            for _ in 0..operations {
                all.on(|| copy(sample, runtime));
                sample.check();
            }
            all
        };
        Contender::new(name, run)
    };
    let contenders = vec![
        contender("millstream, files of tokio", &|sample, runtime| {
            runtime.block_on(async {
                let mut from = tokio::fs::File::open(sample.from()).await.unwrap();
                let mut to = tokio::fs::File::create(sample.to()).await.unwrap();
                copy(&mut from, &mut to).await.unwrap();
            });
        }),
        contender("millstream, our files", &|sample, runtime| {
            runtime.block_on(async {
                let mut from = File::open(sample.from()).await.unwrap().reader();
                let mut to = File::create(sample.to()).await.unwrap().writer();
                copy(&mut from, &mut to).await.unwrap();
            });
        }),
        contender("tokio::io::copy", &|sample, runtime| {
            runtime.block_on(async {
                let mut from = tokio::fs::File::open(sample.from()).await.unwrap();
                let mut to = tokio::fs::File::create(sample.to()).await.unwrap();
                tokio::io::copy(&mut from, &mut to).await.unwrap();
            });
        }),
        contender("floor, std::fs::copy", &|sample, _| {
            std::fs::copy(sample.from(), sample.to()).unwrap();
        }),
        contender("floor, std loop", &|sample, _| std_loop(sample).unwrap()),
    ];
    suite.run(&Case::new(title, "CPU us/file", 1), || contenders);
}

fn main() {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    relay(&mut suite);
    messages(&mut suite);
    file_to_socket(&mut suite);
    file_to_file(&mut suite, "file to file, 10 KiB", 10 << 10);
    file_to_file(&mut suite, "file to file, 1 MiB", 1 << 20);
    let large = options().pick(9, 32, 256);
    file_to_file(&mut suite, &format!("file to file, {large} MiB"), large << 20);
    suite.finish();
}
