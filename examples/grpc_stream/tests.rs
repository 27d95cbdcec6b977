//! tonic on millstream's listener: messages received, and number of calls.
//!
//! Counters belong to the process, so the test that reads them runs in its own process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{Stream, stream};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Server};

use crate::ticks::{Ticks, WatchRequest, watch};
use testkit::alone;
use testkit::counted::Counted;
use testkit::http::{Flavour, watched};

const STREAMS: u64 = 100;
const TICKS: u64 = 20;

fn serve<IO>(incoming: impl Stream<Item = io::Result<IO>> + Send + 'static)
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    tokio::spawn(async move { Server::builder().serve_with_incoming(Ticks, incoming).await.unwrap() });
}

/// Serves like `Server::serve`, with a stream that counts writes.
async fn serve_stock(writes: Arc<AtomicU64>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    serve(stream::unfold(listener, move |listener| {
        let writes = Arc::clone(&writes);
        async move {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            Some((Ok(Counted(stream, writes)), listener))
        }
    }));
    addr
}

async fn serve_ours() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    serve(listener.incoming());
    addr
}

async fn connect(addr: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap()
}

/// Reads one whole stream and compares it.
async fn read(channel: Channel, asked: WatchRequest) {
    let mut stream = watch(channel, asked).await.unwrap();
    for number in 0..asked.count {
        let tick = stream.message().await.unwrap().expect("as many as were asked for");
        assert_eq!((tick.number, tick.payload), (number, vec![b'x'; asked.payload as usize].into()));
    }
    assert_eq!(stream.message().await.unwrap(), None);
}

/// Reads all streams on one connection, with simultaneous ticks.
async fn tick_together(addr: SocketAddr, payload: u32) {
    let channel = connect(addr).await;
    let asked = WatchRequest { hz: 50, payload, count: TICKS };
    let reads: Vec<_> = (0..STREAMS).map(|_| tokio::spawn(read(channel.clone(), asked))).collect();
    for read in reads {
        read.await.unwrap();
    }
}

#[test]
fn streams_that_tick_together_share_their_calls() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for flavour in Flavour::BOTH {
            for payload in [100, 300] {
                let before = Snapshot::now();
                flavour.runtime().block_on(async { tick_together(serve_ours().await, payload).await });
                let ours = Snapshot::now().since(&before).writes;
                let stock = Arc::new(AtomicU64::new(0));
                let counter = Arc::clone(&stock);
                flavour.runtime().block_on(async { tick_together(serve_stock(counter).await, payload).await });
                let stock = stock.load(Ordering::Relaxed);
                println!("{flavour:?}, {payload} B: {} messages, {ours} writes, tonic's own {stock}", STREAMS * TICKS);
                match (flavour, payload) {
                    // On one thread the connection is polled after all its streams, so h2 already gathers small frames
                    // itself.
                    (Flavour::CurrentThread, 100) => assert!(ours <= stock + 4 * TICKS, "{ours}, tonic's own {stock}"),
                    // On two threads, the number of frames that h2 gathers depends on timing.
                    _ => assert!(ours * 10 <= STREAMS * TICKS, "{ours}, tonic's own {stock}"),
                }
            }
        }
    });
}

#[test]
fn messages_of_every_size_arrive_in_order() {
    watched(|| {
        for flavour in Flavour::BOTH {
            flavour.runtime().block_on(async {
                let channel = connect(serve_ours().await).await;
                // Without a rate, from empty payloads to those longer than a frame.
                for payload in [0, 1, 255, 256, 300, 16_384, 200_000] {
                    let asked = WatchRequest { hz: 0, payload, count: 40 };
                    let reads: Vec<_> = (0..5).map(|_| tokio::spawn(read(channel.clone(), asked))).collect();
                    for read in reads {
                        read.await.unwrap();
                    }
                }
                let refused = watch(channel, WatchRequest { hz: 1001, payload: 0, count: 1 }).await.unwrap_err();
                assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            });
        }
    });
}
