//! Failing upstreams, clients that disconnect, and peers that do not read.

use tokio::sync::Semaphore;

use super::*;

#[test]
fn an_upstream_that_fails_before_its_head_is_said_to() {
    on_both(async || {
        let nobody = testkit::Reserved::new();
        let closes = raw_upstream(async |mut stream| drop(head_of(&mut stream).await)).await;
        let babbles = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(b"what?\r\n\r\n").await.unwrap();
        })
        .await;
        let silent = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            std::future::pending().await
        })
        .await;
        for (upstream, status, text) in [
            (nobody.addr, 502, "cannot be reached"),
            (closes, 502, "without an answer"),
            (babbles, 502, "not valid"),
            (silent, 504, "in time"),
        ] {
            // Only one of them is to be too late, however slow the machine is.
            let timeout = if status == 504 { Duration::from_millis(200) } else { HANGS };
            let addr = proxy(plan(upstream, false).timeout(timeout)).await;
            let (got, body) = Raw::connect(addr).await.get("/").await;
            let body = String::from_utf8(body).unwrap();
            assert!(got == status && body.contains(text), "{got} {body}");
            assert!(!body.contains("127.0.0.1"), "the response names an address: {body}");
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            assert_eq!(answer.status(), status);
        }
    });
}

#[test]
fn a_connection_that_ends_after_a_failure_is_said_to() {
    on_both(async || {
        let gone = testkit::Reserved::new();
        let answers = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        })
        .await;
        for (upstream, fields, status, closes) in [
            (gone.addr, "Content-Length: 5", 502, true),
            (gone.addr, "Content-Length: 0", 502, false),
            (gone.addr, "Transfer-Encoding: gzip, chunked", 501, true),
            (answers, "Content-Length: 5", 413, true),
            (answers, "Content-Length: 0", 413, false),
        ] {
            let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
            // The body does not come.
            client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\n{fields}\r\n\r\n")).await;
            let head = client.head().await;
            assert_eq!((head.status, head.field("connection")), (status, closes.then_some("close")), "{fields}");
        }
    });
}

#[test]
fn an_upload_that_takes_its_time_is_not_a_timeout() {
    on_both(async || {
        let addr = proxy(plan(start(mirror).await, false).timeout(Duration::from_secs(6))).await;
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 14\r\n\r\n").await;
        for _ in 0..14 {
            // Each pause is far below the timeout; their sum is above it.
            tokio::time::sleep(Duration::from_millis(500)).await;
            client.send("x").await;
        }
        assert_eq!(client.head().await.status, 200);
        // A stalled upload fails.
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 10\r\n\r\nx").await;
        assert_eq!(client.head().await.status, 504);
    });
}

#[test]
fn an_upload_that_breaks_a_limit_is_not_the_fault_of_the_upstream() {
    on_both(async || {
        let upstream = start(mirror).await;
        for upstream_h2 in [false, true] {
            let built = plan(upstream, upstream_h2).breaker(1, HANGS).build().unwrap();
            for (body, expected) in [(format!("7d0\r\n{}\r\n", "x".repeat(2000)), 413), ("2\r\nxx\r\n".into(), 408)] {
                // Only one of them is to be too late, however slow the machine is.
                let progress = if expected == 408 { Duration::from_millis(100) } else { HANGS };
                let limits = Limits::default().body(1000).body_progress(progress);
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                tokio::spawn(serve(listener, built.clone()).limits(limits).into_future());
                let mut client = Raw::connect(addr).await;
                let head = "POST / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n";
                client.send(format!("{head}{body}")).await;
                assert_eq!(client.head().await.status, expected, "HTTP/2: {upstream_h2}");
                let state = built.state();
                assert_eq!((state.failures, state.circuit), (0, millstream_proxy::Circuit::Closed));
            }
        }
    });
}

#[test]
fn an_upstream_that_dies_in_its_body_is_no_clean_end() {
    /// Framing of the upstream's body, and how the upstream dies.
    const DEATHS: [(&str, &str, bool); 4] = [
        ("Content-Length: 1000000", "", false),
        ("Content-Length: 1000000", "", true),
        ("Transfer-Encoding: chunked", "186a0\r\n", false),
        ("Transfer-Encoding: chunked", "186a0\r\n", true),
    ];
    on_both(async || {
        for (framing, begin, reset) in DEATHS {
            // Given when the client has the head.
            let may_die = Arc::new(Semaphore::new(0));
            let dies = Arc::clone(&may_die);
            let upstream = raw_upstream(move |mut stream| {
                let dies = Arc::clone(&dies);
                async move {
                    head_of(&mut stream).await;
                    let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{begin}");
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream.write_all(&noise(50_000)).await.unwrap();
                    dies.acquire().await.unwrap().forget();
                    if reset {
                        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                }
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;

            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            let head = client.head().await;
            assert_eq!(head.status, 200);
            may_die.add_permits(1);
            let got = timeout(HANGS, client.drain()).await.expect("the connection ends");
            match head.field("content-length") {
                Some(_) => assert!(noise(50_000).starts_with(&got), "{} bytes", got.len()),
                None => assert!(!got.ends_with(b"0\r\n\r\n"), "a last chunk"),
            }

            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            may_die.add_permits(1);
            whole(answer).await.expect_err("HTTP/1: cut");
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            may_die.add_permits(1);
            let error = whole(answer).await.expect_err("HTTP/2: reset");
            let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(reason.contains("stream error"), "{error}: {reason}");
        }
    });
}

/// Starts an upstream whose bodies never end. Returns counts of its live bodies and of the bytes read from them.
async fn endless() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (alive, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, bytes) = (Arc::clone(&alive), Arc::clone(&taken));
    let addr = start(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let (alive, bytes) = (Alive(Arc::clone(&count)), Arc::clone(&bytes));
        let waits = request.uri().path() == "/wait";
        async move {
            if waits {
                std::future::pending::<()>().await;
            }
            let frames = stream::unfold(alive, move |alive| {
                bytes.fetch_add(10_000, Ordering::Relaxed);
                async { Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[b'x'; 10_000]))), alive)) }
            });
            Response::new(boxed(StreamBody::new(Box::pin(frames))))
        }
    })
    .await;
    (addr, alive, taken)
}

#[test]
fn a_client_that_leaves_takes_the_upstream_with_it() {
    on_both(async || {
        let (upstream, alive, _) = endless().await;
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            for (path, head, reset) in
                [("/wait", false, false), ("/wait", false, true), ("/", true, false), ("/", true, true)]
            {
                let mut client = Raw::connect(addr).await;
                client.ask(path).await;
                if head {
                    assert_eq!(client.head().await.status, 200);
                }
                soon("the request arrives", || alive.load(Ordering::Relaxed) == 1).await;
                if reset {
                    client.reset()
                } else {
                    drop(client)
                }
                soon("the upstream's body is dropped", || alive.load(Ordering::Relaxed) == 0).await;
            }
            // One stream among others of its connection.
            let mut client = h2(addr).await;
            let kept = client.send_request(request("http://mill/")).await.unwrap();
            let left = client.send_request(request("http://mill/")).await.unwrap();
            soon("both arrive", || alive.load(Ordering::Relaxed) == 2).await;
            drop(left);
            soon("one body is dropped", || alive.load(Ordering::Relaxed) == 1).await;
            let frame = kept.into_body().frame().await.unwrap().unwrap();
            assert!(frame.is_data(), "the other stream continues");
            soon("the other body is dropped", || alive.load(Ordering::Relaxed) == 0).await;
        }
    });
}

/// Waits until a count stops growing, and returns it.
async fn settled(count: &AtomicUsize) -> usize {
    let mut last = usize::MAX;
    loop {
        let now = count.load(Ordering::Relaxed);
        if now == last {
            return now;
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// More than all sockets and queues between two ends hold.
const PLENTY: usize = 48 << 20;

#[test]
fn a_reader_that_stops_stops_the_upstream() {
    on_both(async || {
        let (upstream, _, taken) = endless().await;
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            let before = taken.load(Ordering::Relaxed);
            let mut client = Raw::over(narrow(addr).await);
            client.ask("/").await;
            client.head().await;
            let there = settled(&taken).await - before;
            assert!(there < PLENTY, "{there} bytes for a stalled reader");
            // The transfer resumes when the reader does.
            let more = taken.load(Ordering::Relaxed);
            let mut read = 0;
            while taken.load(Ordering::Relaxed) == more {
                read += client.body(100_000).await.unwrap().len();
                assert!(read < 2 * PLENTY);
            }
        }
    });
}

#[test]
fn an_upstream_that_does_not_read_stops_the_upload() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
            head_of(&mut stream).await;
            std::future::pending().await
        })
        .await;
        let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
        client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: {}\r\n\r\n", 4 * PLENTY)).await;
        let mut sent = 0;
        let piece = vec![b'x'; 64 << 10];
        while let Ok(n) = timeout(Duration::from_millis(300), client.io.write(&piece)).await {
            sent += n.unwrap();
            assert!(sent < PLENTY, "{sent} bytes for a stalled server");
        }
    });
}
