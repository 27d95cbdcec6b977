//! The I/O paths of a stream, checked by the counters; a change of the path under load loses no byte. Counters are per
//! process, so each test runs in its own.

#[cfg(all(feature = "body", feature = "fs"))]
mod files;

use std::time::Duration;

use millstream::metrics::Snapshot;
#[cfg(feature = "uring-net")]
use millstream::net::Receive;
use millstream::net::{SendStrategy, TcpListener, TcpListenerBuilder, TcpStream};
use millstream::runtime::{DriverBuilder, Io};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::alone;
use testkit::http::{Flavour, watched};
#[cfg(feature = "uring-net")]
use testkit::noise;

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
