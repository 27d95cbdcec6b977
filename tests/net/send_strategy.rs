//! The I/O paths of a stream, checked by the counters; a change of the path under load loses no byte. Counters are per
//! process, so each test runs in its own.

#[cfg(all(feature = "body", feature = "fs"))]
mod files;

use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream::net::{SendStrategy, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::alone;
use testkit::http::{Flavour, watched};

fn with<R: Future<Output = ()>>(flavour: Flavour, test: impl FnOnce() -> R + Send + 'static) {
    watched(move || flavour.runtime().block_on(test()));
}

async fn connect(path: SendStrategy) -> (TcpStream, tokio::net::TcpStream) {
    let builder = TcpListener::builder().send_strategy(path).gather_limit(Duration::from_secs(60));
    let listener = builder.bind("127.0.0.1:0").await.unwrap();
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
        with(Flavour::CurrentThread, move || async move {
            for &path in SendStrategy::ALL {
                let at_first = if by_builder { path } else { SendStrategy::Auto };
                let (mut ours, mut theirs) = connect(at_first).await;
                let handle = ours.handle();
                assert_eq!(handle.send_strategy(), Some(at_first));
                handle.set_send_strategy(path);
                let counted = burst(&mut ours, &mut theirs).await;
                let calls = if path == SendStrategy::NoCork { PIECES } else { 1 };
                assert_eq!(counted.writes, calls, "{path}\n{counted}");
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
