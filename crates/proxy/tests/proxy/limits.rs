//! Limits of requests and heads, and the circuit breaker.

use millstream_proxy::Circuit;
use tokio::sync::Semaphore;

use super::*;
use testkit::http::{Flavour, watched};

/// An upstream that answers a request when it is allowed to.
struct Gated {
    addr: SocketAddr,
    allowed: Arc<Semaphore>,
    /// Connections: open ones, the most at a time, and all.
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
}

async fn gated() -> Gated {
    let allowed = Arc::new(Semaphore::new(0));
    let [open, most, accepted] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&allowed), Arc::clone(&open), Arc::clone(&most), Arc::clone(&accepted));
    let addr = raw_upstream(move |mut stream| {
        let (allowed, open, most, accepted) = counts.clone();
        accepted.fetch_add(1, Ordering::Relaxed);
        most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        async move {
            let mut head = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                head.push(byte);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
                    stream.write_all(head).await.unwrap();
                    allowed.acquire().await.unwrap().forget();
                    // The proxy may have left.
                    let _ = stream.write_all(b"ok").await;
                }
            }
            open.fetch_sub(1, Ordering::Relaxed);
        }
    })
    .await;
    Gated { addr, allowed, open, most, accepted }
}

#[test]
fn requests_wait_for_a_connection_and_get_it_in_the_end() {
    const CLIENTS: usize = 12;
    on_both(async || {
        let upstream = gated().await;
        let built = plan(upstream.addr, false).requests(3).queue(CLIENTS, Duration::from_secs(30)).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let asking: Vec<_> =
            (0..CLIENTS).map(|_| tokio::spawn(async move { Raw::connect(addr).await.get("/").await })).collect();
        soon("three are sent, the others wait", || {
            upstream.open.load(Ordering::Relaxed) == 3 && built.state().waiting == CLIENTS - 3
        })
        .await;
        assert_eq!(built.state().in_progress, 3);
        upstream.allowed.add_permits(CLIENTS);
        for asked in asking {
            assert_eq!(timeout(HANGS, asked).await.expect("a response").unwrap(), (200, b"ok".to_vec()));
        }
        assert_eq!(upstream.most.load(Ordering::Relaxed), 3);
        assert_eq!(upstream.accepted.load(Ordering::Relaxed), 3, "connections are used again");
        soon("all places are free", || built.state().in_progress == 0).await;
        let state = built.state();
        assert_eq!((state.waiting, state.refused, state.idle_connections), (0, 0, 3));
    });
}

#[test]
fn requests_that_may_not_wait_are_refused() {
    on_both(async || {
        for upstream_h2 in [false, true] {
            let upstream = start(async |_| {
                Response::new(boxed(StreamBody::new(stream::pending::<Result<Frame<Bytes>, io::Error>>())))
            })
            .await;
            let built = plan(upstream, upstream_h2).requests(1).queue(1, Duration::from_secs(3600)).build().unwrap();
            let addr = proxy_of(built.clone()).await;
            let mut first = Raw::connect(addr).await;
            first.ask("/").await;
            assert_eq!(first.head().await.status, 200);
            let mut second = Raw::connect(addr).await;
            second.ask("/").await;
            soon("the second waits", || built.state().waiting == 1).await;
            let (status, text) = Raw::connect(addr).await.get("/").await;
            assert!(status == 503 && text.starts_with(b"too many"), "{status} {}", String::from_utf8_lossy(&text));
            assert_eq!(built.state().refused, 1);
            drop(first);
            assert_eq!(timeout(HANGS, second.head()).await.expect("its turn").status, 200);
            // One that leaves while it waits takes no place.
            let mut third = Raw::connect(addr).await;
            third.ask("/").await;
            soon("the third waits", || built.state().waiting == 1).await;
            drop(third);
            soon("no request waits", || built.state().waiting == 0).await;
            drop(second);
            soon("no request is left", || built.state().in_progress == 0).await;
        }
    });
}

#[test]
fn requests_wait_for_a_time() {
    on_both(async || {
        let upstream = gated().await;
        let built = plan(upstream.addr, false).requests(1).queue(1, Duration::from_millis(50)).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let mut first = Raw::connect(addr).await;
        first.ask("/").await;
        first.head().await;
        assert_eq!(Raw::connect(addr).await.get("/").await.0, 503);
        assert_eq!(built.state().refused, 1);
        upstream.allowed.add_permits(1);
        assert_eq!(first.body(2).await.unwrap(), b"ok");
    });
}

#[test]
fn a_tunnel_keeps_its_place() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let built = plan(upstream, false).build().unwrap();
        let mut client = Raw::connect(proxy_of(built.clone()).await).await;
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
        assert_eq!(client.head().await.status, 101);
        assert_eq!(built.state().in_progress, 1);
        drop(client);
        soon("the tunnel ends", || built.state().in_progress == 0).await;
    });
}

#[test]
fn a_tunnel_without_a_byte_gives_up_its_place() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(head).await.unwrap();
            // The end of the client is no reason to leave.
            std::future::pending().await
        })
        .await;
        let built = plan(upstream, false).tunnel_timeout(Duration::from_millis(100)).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = Raw::connect(addr).await;
            client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
            assert_eq!(client.head().await.status, 101);
            clients.push(client);
        }
        // One client leaves, and one is silent.
        clients.pop();
        soon("both tunnels end", || built.state().in_progress == 0).await;
        assert_eq!(clients[0].drain().await, b"");
    });
}

#[test]
fn a_slow_upload_does_not_keep_the_circuit_from_closing() {
    on_both(async || {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let upstream = raw_upstream(move |mut stream| {
            let fails = count.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let is_upload = head_of(&mut stream).await.starts_with("POST");
                match (fails, is_upload) {
                    (true, _) => {}
                    (false, true) => std::future::pending().await,
                    (false, false) => {
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                    }
                }
            }
        })
        .await;
        let built = plan(upstream, false).breaker(1, Duration::from_millis(50)).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let mut failed = Raw::connect(addr).await;
        failed.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(failed.head().await.status, 502);
        soon("the back-off ends", || built.state().circuit == Circuit::HalfOpen).await;
        let mut upload = Raw::connect(addr).await;
        upload.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 10\r\n\r\nx").await;
        soon("the upload is the probe", || asked.load(Ordering::Relaxed) == 2).await;
        assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
        assert_eq!(built.state().circuit, Circuit::Closed);
    });
}

#[test]
fn a_tunnel_takes_the_place_of_an_idle_connection() {
    on_both(async || {
        let [open, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counts = (Arc::clone(&open), Arc::clone(&most));
        let upstream = raw_upstream(move |mut stream| {
            let (open, most) = counts.clone();
            most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        let changes = String::from_utf8_lossy(&head).to_lowercase().contains("upgrade: echo");
                        head.clear();
                        let answer = match changes {
                            true => "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
                            false => "200 OK\r\nContent-Length: 2\r\n\r\nok",
                        };
                        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
                    }
                }
                open.fetch_sub(1, Ordering::Relaxed);
            }
        })
        .await;
        let built = plan(upstream, false).requests(2).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let mut tunnels = Vec::new();
        for idle in [1, 0] {
            assert_eq!(Raw::connect(addr).await.get("/").await.0, 200);
            soon("the connection is kept", || built.state().in_progress == tunnels.len()).await;
            let mut client = Raw::connect(addr).await;
            client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
            assert_eq!(client.head().await.status, 101);
            tunnels.push(client);
            assert_eq!(built.idle_connections(), idle);
        }
        // The end of the idle one may arrive after the begin of the tunnel.
        soon("two are open", || open.load(Ordering::Relaxed) == 2).await;
        assert!(most.load(Ordering::Relaxed) <= 3);
    });
}

/// Asks while another request probes the upstream. Returns the status; `None` if there was none within the back-off, after
/// which the request may be the next probe.
async fn asked_during_a_probe(back_off: Duration) -> Option<u16> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = raw_upstream(move |mut stream| {
        let fails = count.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            head_of(&mut stream).await;
            if !fails {
                std::future::pending::<()>().await;
            }
        }
    })
    .await;
    let plan = plan(upstream, false).requests(1).queue(10, Duration::from_secs(3600));
    let built = plan.breaker(1, back_off).build().unwrap();
    let addr = proxy_of(built.clone()).await;
    assert_eq!(Raw::connect(addr).await.get("/").await.0, 502);
    soon("the back-off ends", || built.state().circuit == Circuit::HalfOpen).await;
    let mut probe = Raw::connect(addr).await;
    probe.ask("/").await;
    soon("a request has the only place", || asked.load(Ordering::Relaxed) == 2).await;
    timeout(back_off, async { Raw::connect(addr).await.get("/").await.0 }).await.ok()
}

#[test]
fn a_request_does_not_queue_for_an_open_circuit() {
    on_both(async || {
        // A busy machine needs more time for the two requests.
        for back_off in [50, 1000, 20_000].map(Duration::from_millis) {
            if let Some(status) = asked_during_a_probe(back_off).await {
                return assert_eq!(status, 503);
            }
        }
        panic!("it queues");
    });
}

#[test]
fn large_heads_are_refused() {
    on_both(async || {
        let upstream = start(async |request| {
            let mut wanted = request.uri().path().split('/').skip(1).map(|part| part.parse::<usize>().unwrap());
            let (bytes, count) = (wanted.next().unwrap(), wanted.next().unwrap());
            let mut response = Response::new(boxed(Full::from("ok")));
            let value = HeaderValue::from_str(&"x".repeat(bytes)).unwrap();
            response.headers_mut().insert("x-long", value);
            for n in 0..count {
                response.headers_mut().append("x-many", n.into());
            }
            response
        })
        .await;
        for upstream_h2 in [false, true] {
            let limited = proxy(plan(upstream, upstream_h2).response_head_bytes(3000).response_head_fields(30)).await;
            let roomy =
                proxy(plan(upstream, upstream_h2).response_head_bytes(200_000).response_head_fields(1000)).await;
            let usual = proxy(plan(upstream, upstream_h2)).await;
            for (path, expected) in [
                ("/1000/20", [200, 200, 200]),
                ("/3100/1", [502, 200, 200]),
                ("/1/40", [502, 200, 200]),
                ("/50000/1", [502, 200, 200]),
                ("/100000/1", [502, 200, 502]),
                ("/1/200", [502, 200, 502]),
            ] {
                for (addr, expected) in [limited, roomy, usual].into_iter().zip(expected) {
                    let (status, body) = Raw::connect(addr).await.get(path).await;
                    let text = String::from_utf8_lossy(&body);
                    assert_eq!(status, expected, "{path}, HTTP/2: {upstream_h2}: {text}");
                }
            }
        }
    });
}

#[test]
fn an_upstream_that_fails_in_a_row_is_left_alone_for_a_time() {
    // Long enough for a request on a slow machine.
    const BACK_OFF: Duration = Duration::from_secs(5);
    watched(|| {
        Flavour::TwoWorkers.runtime().block_on(async {
            let (asked, works) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (count, state) = (Arc::clone(&asked), Arc::clone(&works));
            let upstream = raw_upstream(move |mut stream| {
                let (count, state) = (Arc::clone(&count), Arc::clone(&state));
                async move {
                    head_of(&mut stream).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    if state.load(Ordering::Relaxed) == 1 {
                        stream.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                    }
                }
            })
            .await;
            let plan = plan(upstream, false).idle_connections(0).breaker(3, BACK_OFF);
            let built = plan.build().unwrap();
            let addr = proxy_of(built.clone()).await;
            let ask = async || Raw::connect(addr).await.get("/").await.0;
            // A client that stalls is no failure of the upstream, and neither is a response with a bad status.
            works.store(1, Ordering::Relaxed);
            assert_eq!(ask().await, 500);
            let silent = raw_upstream(async |mut stream| {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            })
            .await;
            let other =
                super::plan(silent, false).breaker(1, BACK_OFF).timeout(Duration::from_secs(2)).build().unwrap();
            let mut staller = Raw::connect(proxy_of(other.clone()).await).await;
            staller.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 10\r\n\r\nx").await;
            assert_eq!((staller.head().await.status, other.state().circuit), (504, Circuit::Closed));
            works.store(0, Ordering::Relaxed);
            for n in 1..=3 {
                assert_eq!(ask().await, 502);
                assert_eq!(built.state().failures, n);
            }
            assert_eq!((built.state().circuit, built.state().trips), (Circuit::Open, 1));
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            let head = client.head().await;
            let after: u64 = head.field("retry-after").unwrap().parse().unwrap();
            assert!(head.status == 503 && (1..=BACK_OFF.as_secs()).contains(&after), "{after}");
            assert_eq!(asked.load(Ordering::Relaxed), 4, "the upstream is not asked");
            works.store(1, Ordering::Relaxed);
            soon("the back-off ends", || built.state().circuit == Circuit::HalfOpen).await;
            assert_eq!(ask().await, 500);
            let state = built.state();
            assert_eq!((state.circuit, state.failures, state.trips), (Circuit::Closed, 0, 1));
            assert_eq!(ask().await, 500);
        });
    });
}
