//! A ring without room behaves like no ring: programs that never end neither stop nor delay what others ask for.

use std::fs;
use std::future::Future;
use std::io::{PipeReader, PipeWriter};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream::Chain;
use millstream::chain::OpenOptions;
use millstream::fs::File;
use millstream::net::{IoPath, TcpListener};
use millstream::runtime::{DriverBuilder, Io};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

mod support;
use support::http::{Flavour, watched};

/// Bounds what must not hang. Nothing is measured by it.
const HANGS: Duration = Duration::from_secs(30);

/// Runs `test` on a runtime with rings of so many entries.
fn on<R: Future<Output = ()> + Send + 'static>(flavour: Flavour, io: Io, entries: u32, test: R) {
    println!("{flavour:?}, {io}, {entries} entries");
    let runtime = flavour.runtime();
    runtime.block_on(async {
        DriverBuilder::new().io(io).entries(entries).install().unwrap();
        tokio::spawn(timeout(HANGS, test)).await.unwrap().expect("it hangs");
    });
    runtime.shutdown_background();
}

fn pipe() -> (Arc<PipeReader>, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Arc::new(reader), writer)
}

/// Runs `chain` as a task.
fn start(chain: Chain) -> JoinHandle<()> {
    tokio::spawn(async { drop(chain.run().await) })
}

async fn turns(n: usize) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

fn noise_file(len: usize) -> (File, Vec<u8>) {
    let file = tempfile::tempfile().unwrap();
    let bytes = support::noise(len);
    file.write_all_at(&bytes, 0).unwrap();
    (File::from_std(file), bytes)
}

#[test]
fn programs_that_were_given_up_leave_their_room_to_others() {
    watched(|| {
        for (io, entries) in [(Io::Auto, 128), (Io::Uring, 32), (Io::Epoll, 32)] {
            on(Flavour::CurrentThread, io, entries, async {
                let (reader, _writer) = pipe();
                let reads = (0..600).map(|_| Chain::new().on(Arc::clone(&reader)).read(1).run());
                let reads = reads.map(|read| timeout(Duration::from_millis(20), read));
                let ended = futures_util::future::join_all(reads).await;
                assert!(ended.iter().all(Result::is_err), "nothing was ever written");
                let (file, bytes) = noise_file(1 << 20);
                assert!(file.read_at(0, 1 << 20).await.unwrap() == bytes);
            });
        }
    });
}

#[test]
fn chains_that_hold_files_open_delay_no_other_program() {
    watched(|| {
        for io in [Io::Auto, Io::Uring, Io::Epoll] {
            on(Flavour::CurrentThread, io, 128, async {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("file");
                fs::write(&path, "bytes").unwrap();
                let (reader, _writer) = pipe();
                let wait = |path: &Path| {
                    let chain = Chain::new().open(path, OpenOptions::new().read(true)).read(1);
                    start(chain.on(Arc::clone(&reader)).read(1))
                };
                let waiting: Vec<_> = (0..300).map(|_| wait(&path)).collect();
                turns(50).await;
                let (file, bytes) = noise_file(1 << 20);
                assert!(file.read_at(0, 1 << 20).await.unwrap() == bytes);
                let chain = Chain::new().open(&path, OpenOptions::new().read(true)).read(5);
                assert_eq!(chain.run().await.unwrap().reads()[0], "bytes");
                assert!(waiting.iter().all(|task| !task.is_finished()));
            });
        }
    });
}

#[test]
fn streams_send_while_the_ring_is_full() {
    watched(|| {
        on(Flavour::CurrentThread, Io::Uring, 32, async {
            let (reader, _writer) = pipe();
            let waiting: Vec<_> = (0..600).map(|_| start(Chain::new().on(Arc::clone(&reader)).read(1))).collect();
            turns(50).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            for _ in 0..3 {
                let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.handle().set_path(IoPath::Uring);
                for n in 0..10u8 {
                    // Not flushed by this task: the flusher hands it to the ring.
                    stream.write_all(&[n; 100]).await.unwrap();
                    let mut got = [0; 100];
                    client.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, [n; 100]);
                }
            }
            assert!(waiting.iter().all(|task| !task.is_finished()));
        });
    });
}
