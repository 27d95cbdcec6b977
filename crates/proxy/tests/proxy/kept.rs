//! Connections that are kept: those that are used again, and those that must not be.

use std::sync::Mutex;

use futures_util::future::join_all;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Notify;

use super::*;
use testkit::http::{Flavour, watched};

#[test]
fn a_request_that_may_not_be_repeated_avoids_an_ended_connection() {
    on_both(async || {
        // Keeps a connection for one request, as it says only by its end.
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        })
        .await;
        let built = plan(upstream, false).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        for _ in 0..20 {
            let mut client = Raw::connect(addr).await;
            client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 0\r\n\r\n").await;
            assert_eq!(client.head().await.status, 200);
            // The end of the connection has arrived.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn an_idempotent_request_with_a_body_is_sent_again_when_a_kept_connection_ends() {
    on_both(async || {
        // The second request of the first connection gets no answer.
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let upstream = raw_upstream(move |mut stream| {
            let asked = Arc::clone(&count);
            async move {
                for nth in 1.. {
                    let mut first = [0; 1];
                    if stream.read_exact(&mut first).await.is_err() {
                        return;
                    }
                    head_of(&mut stream).await;
                    let mut body = [0; 5];
                    stream.read_exact(&mut body).await.unwrap();
                    assert_eq!(body, *b"hello");
                    if nth == 2 {
                        asked.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                }
            }
        })
        .await;
        for (method, expected) in [("PUT", 200), ("POST", 502)] {
            asked.store(0, Ordering::Relaxed);
            let built = plan(upstream, false).build().unwrap();
            let addr = proxy_of(built.clone()).await;
            for expected in [200, expected] {
                let mut client = Raw::connect(addr).await;
                client.send(format!("{method} / HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello")).await;
                assert_eq!(client.head().await.status, expected, "{method}");
                soon("the request ends", || built.state().in_progress == 0).await;
            }
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{method}");
        }
    });
}

#[test]
fn a_request_whose_new_connection_fails_is_not_sent_again() {
    on_both(async || {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let upstream = raw_upstream(move |mut stream| {
            let asked = Arc::clone(&count);
            async move {
                head_of(&mut stream).await;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        assert_eq!(Raw::connect(addr).await.get("/").await.0, 502);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_ended_connection_gives_way_to_one_that_is_kept() {
    on_both(async || {
        let accepted = Arc::new(AtomicUsize::new(0));
        let [first, second, gone] = [(); 3].map(|()| Arc::new(Notify::new()));
        let (count, told) = (Arc::clone(&accepted), (Arc::clone(&first), Arc::clone(&second), Arc::clone(&gone)));
        let upstream = raw_upstream(move |mut stream| {
            let ends = count.fetch_add(1, Ordering::Relaxed) == 1;
            let (first, second, gone) = told.clone();
            async move {
                loop {
                    let head = head_of(&mut stream).await;
                    if head.starts_with("GET /wait") {
                        if ends { second.notified().await } else { first.notified().await }
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                    if ends {
                        drop(stream);
                        return gone.notify_one();
                    }
                }
            }
        })
        .await;
        let built = plan(upstream, false).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let ask = |path| async move { timeout(HANGS, async { Raw::connect(addr).await.get(path).await.0 }).await };
        let asking = [tokio::spawn(ask("/wait")), tokio::spawn(ask("/wait"))];
        soon("both are sent", || accepted.load(Ordering::Relaxed) == 2).await;
        // The second becomes idle last, and would be taken first.
        first.notify_one();
        soon("one is idle", || built.idle_connections() == 1).await;
        second.notify_one();
        for asked in asking {
            assert_eq!(asked.await.unwrap(), Ok(200));
        }
        gone.notified().await;
        // Its end has arrived.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(ask("/").await, Ok(200));
        assert_eq!(accepted.load(Ordering::Relaxed), 2, "the kept connection is used");
    });
}

#[test]
fn a_connection_with_more_than_its_response_is_not_kept() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more").await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let built = plan(upstream, false).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"ok".to_vec()));
        // A connection is given back before its place.
        soon("the request ends", || built.state().in_progress == 0).await;
        assert_eq!(built.idle_connections(), 0);
    });
}

#[test]
fn idle_connections_are_closed_in_time_whatever_runtime_has_ended() {
    watched(|| {
        let upstream_runtime = Flavour::TwoWorkers.runtime();
        let upstream = upstream_runtime.block_on(start(mirror));
        let built = plan(upstream, false).idle_timeout(Duration::from_secs(6)).build().unwrap();
        for _ in 0..2 {
            let runtime = Flavour::TwoWorkers.runtime();
            runtime.block_on(async {
                let addr = proxy_of(built.clone()).await;
                assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
                soon("the connection is kept", || built.idle_connections() > 0).await;
            });
        }
        Flavour::TwoWorkers.runtime().block_on(async {
            let addr = proxy_of(built.clone()).await;
            assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
            soon("old connections are closed", || built.idle_connections() == 0).await;
        });
    });
}

/// Starts a server of HTTP/2 that takes one request at a time on a connection. `/wait` is answered on none of the first
/// connection, which ends when it is told to.
async fn one_at_a_time() -> (SocketAddr, Arc<AtomicUsize>, Arc<Notify>) {
    let (waiting, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let first = Mutex::new(Some(Arc::clone(&end)));
    let count = Arc::clone(&waiting);
    let addr = raw_upstream(move |stream| {
        let ends = first.lock().unwrap().take();
        let (count, is_first) = (Arc::clone(&count), ends.is_some());
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let waits = is_first && request.uri().path() == "/wait";
            let count = Arc::clone(&count);
            async move {
                if waits {
                    count.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                Ok::<_, io::Error>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(1);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        async move {
            let end = async {
                match ends {
                    Some(end) => end.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = connection => {}
                () = end => {}
            }
        }
    })
    .await;
    (addr, waiting, end)
}

#[test]
fn requests_that_were_not_sent_go_over_another_connection() {
    const REQUESTS: usize = 6;
    async fn ask(addr: SocketAddr, method: &str) -> u16 {
        let mut client = Raw::connect(addr).await;
        client.send(format!("{method} /wait HTTP/1.1\r\nHost: mill\r\nContent-Length: 0\r\n\r\n")).await;
        client.head().await.status
    }
    // The connection ends without a GOAWAY: requests that hyper has begun to send are lost, unless they are idempotent.
    on_both(async || {
        for (method, expected) in [("GET", REQUESTS..=REQUESTS), ("POST", 1..=REQUESTS - 1)] {
            let (upstream, waiting, end) = one_at_a_time().await;
            let built = plan(upstream, true).build().unwrap();
            let addr = proxy_of(built.clone()).await;
            // From here on the limit of the upstream is known.
            assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
            let asking: Vec<_> = (0..REQUESTS).map(|_| tokio::spawn(ask(addr, method))).collect();
            soon("one is at work, the others wait", || {
                waiting.load(Ordering::Relaxed) == 1 && built.state().in_progress == REQUESTS
            })
            .await;
            // The last ones reach hyper.
            tokio::time::sleep(Duration::from_millis(100)).await;
            end.notify_one();
            let statuses = timeout(HANGS, join_all(asking)).await.expect("responses").into_iter().map(Result::unwrap);
            let good = statuses.filter(|&status| status == 200).count();
            assert!(expected.contains(&good), "{good} of {REQUESTS} by {method}");
        }
    });
}

#[test]
fn an_old_connection_gets_no_more_requests() {
    on_both(async || {
        for (age, expected) in [(Duration::ZERO, 3), (Duration::MAX, 1)] {
            let accepted = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&accepted);
            let upstream = raw_upstream(move |stream| {
                count.fetch_add(1, Ordering::Relaxed);
                let service = hyper::service::service_fn(async |_| {
                    Ok::<_, io::Error>(Response::new(Full::new(Bytes::from_static(b"ok"))))
                });
                let connection =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                async { drop(connection.await) }
            })
            .await;
            let addr = proxy(plan(upstream, true).http2_age(age)).await;
            for _ in 0..3 {
                assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
            }
            assert_eq!(accepted.load(Ordering::Relaxed), expected, "{age:?}");
        }
    });
}

#[test]
fn a_burst_waits_for_what_a_new_connection_allows() {
    on_both(async || {
        let (upstream, ..) = one_at_a_time().await;
        let addr = proxy(plan(upstream, true)).await;
        let asking = (0..20).map(|_| async { Raw::connect(addr).await.get("/").await.0 });
        assert_eq!(timeout(HANGS, join_all(asking)).await.expect("responses"), [200; 20]);
    });
}

#[test]
fn readers_that_stop_do_not_stop_others_of_their_connection() {
    /// Together they want more than the usual window of a connection.
    const STALLED: usize = 120;
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let service = tower::service_fn(|_: Request<millstream::server::RequestBody>| {
            let frames = stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[b'x'; 10_000]))));
            std::future::ready(Ok::<_, io::Error>(Response::new(boxed(StreamBody::new(frames)))))
        });
        tokio::spawn(serve(listener, service).limits(Limits::default().http2_streams(1000)).into_future());
        let addr = proxy(plan(upstream, true)).await;
        let mut stalled = Vec::new();
        for _ in 0..STALLED {
            let mut client = Raw::connect_narrow(addr).await;
            client.ask("/").await;
            client.head().await;
            stalled.push(client);
        }
        let mut reader = Raw::connect(addr).await;
        reader.ask("/").await;
        reader.head().await;
        let reading = async {
            for _ in 0..300 {
                reader.body(100_000).await.unwrap();
            }
        };
        timeout(HANGS, reading).await.expect("the others read on");
    });
}
