//! Settings change while requests run; every response is complete.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::net::SendStrategy;
use millstream_layers::{BreakerPin, CanaryLayer, StampLayer, Thresholds};
use tower::{Layer, service_fn};

use super::servers::{Client, STRANGER, start};
use testkit::http::on_both;

const CLIENTS: u64 = 4;
const REQUESTS: u64 = 150;
const PATHS: [SendStrategy; 2] = [SendStrategy::NoSendfile, SendStrategy::NoCork];

#[test]
fn every_answer_is_whole_while_everything_changes() {
    on_both(|| async {
        // Timing is unreliable on a loaded machine; only pins and clearing open and close paths here.
        let thresholds = Thresholds::default().p99(Duration::from_secs(60));
        let canary = CanaryLayer::builder().thresholds(thresholds).build().unwrap();
        let handle = canary.handle();
        let expected: String = (0..50).map(|n| format!("piece {n} of an answer\n")).collect();
        let service = service_fn(async |_: Request<_>| {
            let pieces = (0..50).map(|n| {
                let piece = format!("piece {n} of an answer\n");
                Ok::<_, Infallible>(Frame::data(Bytes::from(piece)))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(pieces))))
        });
        let service = StampLayer::new().layer(canary.layer(service));
        let (addr, _) = start(service).await;

        let done = Arc::new(AtomicBool::new(false));
        let changer = tokio::spawn({
            let (handle, done) = (handle.clone(), Arc::clone(&done));
            async move {
                let mut changes = 0usize;
                while !done.load(Ordering::Relaxed) {
                    let path = PATHS[changes % 2];
                    handle.set_share(path, [25.0, 3.0, 0.0][changes % 3]).unwrap();
                    match changes % 5 {
                        0 => handle.pin(path, BreakerPin::Open),
                        1 => handle.pin(path, BreakerPin::Closed),
                        2 => handle.unpin(path),
                        3 => handle.clear(path),
                        _ => handle.set_report(changes.is_multiple_of(2)),
                    }
                    handle.set_token(Some("a-token-that-changes").filter(|_| changes.is_multiple_of(2))).unwrap();
                    drop(handle.state());
                    changes += 1;
                    tokio::task::yield_now().await;
                }
                changes
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let expected = expected.clone();
                tokio::spawn(async move {
                    let mut client =
                        if n % 2 == 0 { Client::one(STRANGER, addr).await } else { Client::two(STRANGER, addr).await };
                    for _ in 0..REQUESTS {
                        let ask = ("x-millstream-canary", "no-cork;a-token-that-changes");
                        let answer = client.ask(&[ask]).await;
                        assert!(answer.status().is_success() && *answer.body() == expected);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(changer.await.unwrap() > 10);
        let state = handle.state();
        assert_eq!(state.paths.iter().map(|path| path.requests).sum::<u64>(), CLIENTS * REQUESTS);
        assert_eq!(state.paths.iter().map(|path| path.errors + path.resets).sum::<u64>(), 0);
        assert_eq!((state.heard, state.refused), (0, CLIENTS * REQUESTS), "no peer is trusted");
        assert!(state.paths[1..].iter().any(|path| path.requests > 0));
    });
}
