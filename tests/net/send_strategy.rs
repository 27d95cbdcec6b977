//! The I/O paths of a stream, checked by the counters; a change of the path under load loses no byte. Counters are per
//! process, so each test runs in its own.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::metrics::Snapshot;
#[cfg(feature = "uring-net")]
use millstream::net::Receive;
use millstream::net::{SendStrategy, TcpListener, TcpListenerBuilder, TcpStream};
use millstream::runtime::{DriverBuilder, Io};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::http::{Flavour, watched};
use testkit::{alone, noise};

fn with<R: Future<Output = ()>>(io: Io, flavour: Flavour, test: impl FnOnce() -> R + Send + 'static) {
    watched(move || {
        flavour.runtime().block_on(async {
            DriverBuilder::new().io(io).install().unwrap();
            test().await;
        });
    });
}

async fn connect(path: SendStrategy) -> (TcpStream, tokio::net::TcpStream) {
    connect_to(TcpListener::builder().send_strategy(path)).await
}

#[cfg(feature = "uring-net")]
async fn connect_multishot() -> (TcpStream, tokio::net::TcpStream) {
    connect_to(TcpListener::builder().receive(Receive::Multishot)).await
}

async fn connect_to(builder: TcpListenerBuilder) -> (TcpStream, tokio::net::TcpStream) {
    let listener = builder.gather_limit(Duration::from_secs(60)).bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Returns the counters of `PIECES` small writes in one turn, after all bytes have arrived.
async fn burst(ours: &mut TcpStream, theirs: &mut tokio::net::TcpStream) -> Snapshot {
    let before = Snapshot::now();
    for _ in 0..PIECES {
        ours.write_all(b"0123456789").await.unwrap();
    }
    let mut got = [0; 10 * PIECES as usize];
    theirs.read_exact(&mut got).await.unwrap();
    assert!(got.chunks(10).all(|piece| piece == b"0123456789"));
    // The bytes arrive before the queue is updated.
    while ours.queued() > 0 {
        yield_now().await;
    }
    Snapshot::now().since(&before)
}

const PIECES: u64 = 20;

#[test]
fn the_path_decides_whether_writes_gather_and_how_they_leave() {
    if alone::ran_in_child() {
        return;
    }
    for by_builder in [true, false] {
        with(Io::Auto, Flavour::CurrentThread, move || async move {
            let ring = !testkit::lacks("io_uring");
            for &path in SendStrategy::ALL {
                let at_first = if by_builder { path } else { SendStrategy::Auto };
                let (mut ours, mut theirs) = connect(at_first).await;
                let handle = ours.handle();
                assert_eq!(handle.send_strategy(), Some(at_first));
                handle.set_send_strategy(path);
                let counted = burst(&mut ours, &mut theirs).await;
                let calls = if path == SendStrategy::NoCork { PIECES } else { 1 };
                let by_ring = u64::from(path.as_str() == "uring" && ring);
                assert_eq!((counted.writes, counted.ring_sends), (calls, by_ring), "{path}\n{counted}");
                assert_eq!(
                    counted.gathered,
                    if path == SendStrategy::NoCork { 0 } else { PIECES },
                    "{path}\n{counted}"
                );
                drop(ours);
                assert_eq!(handle.send_strategy(), None);
                handle.set_send_strategy(SendStrategy::Auto);
            }
        });
    }
}

#[cfg(feature = "uring-net")]
#[test]
fn where_all_goes_by_ring_one_stream_does_without() {
    if alone::ran_in_child() {
        return;
    }
    with(Io::Uring, Flavour::CurrentThread, || async {
        if testkit::lacks("io_uring") {
            return;
        }
        let (mut ours, mut theirs) = connect_multishot().await;
        let echo = async |ours: &mut TcpStream, theirs: &mut tokio::net::TcpStream| {
            let before = Snapshot::now();
            for n in 0..10u8 {
                theirs.write_all(&[n; 100]).await.unwrap();
                let mut got = [0; 100];
                ours.read_exact(&mut got).await.unwrap();
                ours.write_all(&got).await.unwrap();
                theirs.read_exact(&mut got).await.unwrap();
                assert_eq!(got, [n; 100]);
            }
            Snapshot::now().since(&before)
        };
        let by_ring = echo(&mut ours, &mut theirs).await;
        assert!(by_ring.receive_buffers >= 10 && by_ring.ring_sends >= 10, "{by_ring}");
        let handle = ours.handle();
        handle.set_send_strategy(SendStrategy::Epoll);
        let changing = echo(&mut ours, &mut theirs).await;
        assert_eq!(changing.ring_sends, 0, "{changing}");
        let without = echo(&mut ours, &mut theirs).await;
        assert_eq!((without.ring_sends, without.receive_buffers), (0, 0), "{without}");
        // The two streams share no call, although the other one uses the ring.
        let (mut other, mut their_other) = connect_multishot().await;
        let before = Snapshot::now();
        ours.write_all(b"plain").await.unwrap();
        other.write_all(b"ring!").await.unwrap();
        let mut got = [0; 5];
        theirs.read_exact(&mut got).await.unwrap();
        their_other.read_exact(&mut got).await.unwrap();
        let both = Snapshot::now().since(&before);
        assert_eq!((both.writes, both.ring_sends), (2, 1), "{both}");
        handle.set_send_strategy(SendStrategy::Auto);
        let again = echo(&mut ours, &mut theirs).await;
        assert!(again.receive_buffers >= 9 && again.ring_sends >= 10, "{again}");
        drop(ours);
    });
}

#[cfg(feature = "uring-net")]
#[test]
fn an_armed_receive_ends_while_its_reader_waits_and_nothing_is_lost() {
    if alone::ran_in_child() {
        return;
    }
    with(Io::Uring, Flavour::CurrentThread, || async {
        if testkit::lacks("io_uring") {
            return;
        }
        let (mut ours, mut theirs) = connect_multishot().await;
        let handle = ours.handle();
        let payload = noise(300_000);
        let sent = payload.clone();
        let writer = tokio::spawn(async move {
            for (n, piece) in sent.chunks(700).enumerate() {
                theirs.write_all(piece).await.unwrap();
                handle.set_send_strategy([SendStrategy::Epoll, SendStrategy::Auto][n % 2]);
                yield_now().await;
            }
            theirs
        });
        let mut got = vec![0; payload.len()];
        ours.read_exact(&mut got).await.unwrap();
        assert!(got == payload);
        drop(writer.await.unwrap());
        assert_eq!(ours.read(&mut got).await.unwrap(), 0);
    });
}

async fn file(len: usize) -> (Vec<u8>, Vec<Bytes>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = noise(len);
    std::fs::write(&path, &bytes).unwrap();
    let mut body = FileBody::new(&File::open(&path).await.unwrap(), ..).unwrap();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    (bytes, pieces)
}

#[test]
fn without_sendfile_files_leave_from_their_memory() {
    if alone::ran_in_child() {
        return;
    }
    with(Io::Auto, Flavour::CurrentThread, || async {
        if testkit::lacks("sendfile") || testkit::lacks("mapping") {
            return;
        }
        let (bytes, pieces) = file(1 << 20).await;
        for &path in SendStrategy::ALL {
            let (mut ours, theirs) = connect(path).await;
            let expected = [b"head", &bytes[..]].concat();
            let before = Snapshot::now();
            let reader = tokio::spawn(read_all(theirs));
            ours.write_all(b"head").await.unwrap();
            for piece in &pieces {
                let mut rest = &piece[..];
                while !rest.is_empty() {
                    // With a slice before it in the same write, and without.
                    let n = match rest.len() == piece.len() {
                        true => ours.write_vectored(&[IoSlice::new(&[]), IoSlice::new(rest)]).await.unwrap(),
                        false => ours.write(rest).await.unwrap(),
                    };
                    rest = &rest[n..];
                }
            }
            ours.shutdown().await.unwrap();
            assert!(reader.await.unwrap() == expected, "{path}");
            let counted = Snapshot::now().since(&before);
            let by_sendfile = if path == SendStrategy::NoSendfile { 0 } else { 1 << 20 };
            assert_eq!(counted.bytes_by_sendfile, by_sendfile, "{path}\n{counted}");
            assert_eq!(counted.bytes_written, expected.len() as u64, "{path}\n{counted}");
        }
    });
}

async fn read_all(mut theirs: tokio::net::TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).await.unwrap();
    got
}

#[test]
fn changing_the_path_under_load_keeps_every_byte_in_order() {
    if alone::ran_in_child() {
        return;
    }
    for (io, flavour) in
        [(Io::Auto, Flavour::CurrentThread), (Io::Uring, Flavour::CurrentThread), (Io::Auto, Flavour::TwoWorkers)]
    {
        with(io, flavour, || async {
            let (bytes, pieces) = file(300_000).await;
            for slow in [false, true] {
                let (mut ours, mut theirs) = connect(SendStrategy::Auto).await;
                socket2::SockRef::from(&ours).set_send_buffer_size(8192).unwrap();
                let handle = ours.handle();
                // This task sets the path in each step, and a thread sets it all the time.
                let done = std::sync::Arc::new(AtomicBool::new(false));
                let (ended, other) = (done.clone(), handle.clone());
                let switcher = std::thread::spawn(move || {
                    for &path in SendStrategy::ALL.iter().cycle() {
                        if ended.load(Ordering::Relaxed) {
                            return;
                        }
                        other.set_send_strategy(path);
                        std::thread::yield_now();
                    }
                });
                let reader = tokio::spawn(async move {
                    let (mut sum, mut buf) = (Sha256::new(), vec![0; if slow { 500 } else { 100_000 }]);
                    loop {
                        match theirs.read(&mut buf).await.unwrap() {
                            0 => return sum.finalize().to_vec(),
                            n => sum.update(&buf[..n]),
                        }
                    }
                });
                let mut expected = Sha256::new();
                for n in 0..400usize {
                    handle.set_send_strategy(SendStrategy::ALL[n * 7 % SendStrategy::ALL.len()]);
                    let len = [1, 300, 7, 20_000, 64, 5000][n % 6];
                    let piece = &bytes[n..n + len];
                    ours.write_all(piece).await.unwrap();
                    expected.update(piece);
                    if n % 40 == 0 {
                        for piece in &pieces {
                            let slices = [IoSlice::new(b"frame"), IoSlice::new(piece)];
                            let n = ours.write_vectored(&slices).await.unwrap();
                            let both = [b"frame", &piece[..]].concat();
                            ours.write_all(&both[n..]).await.unwrap();
                            expected.update(&both);
                        }
                    }
                    if n % 5 == 0 {
                        yield_now().await;
                    }
                }
                ours.shutdown().await.unwrap();
                assert_eq!(reader.await.unwrap(), expected.finalize().to_vec());
                done.store(true, Ordering::Relaxed);
                switcher.join().unwrap();
            }
        });
    }
}
