//! Requests and responses that pass, and those that do not.

use super::*;

#[test]
fn requests_and_responses_pass_without_what_is_for_one_hop() {
    on_both(async || {
        let mut plan = plan(start(mirror).await, false);
        for stamp in ["ours", "ours too"] {
            plan = plan.response_header(HeaderName::from_static("x-stamp"), HeaderValue::from_static(stamp));
        }
        let addr = proxy(plan).await;
        let mut client = Raw::connect(addr).await;
        let body = noise(300_000);
        client
            .send(format!(
                "POST /path?a=b HTTP/1.1\r\nHost: mill\r\nConnection: x-mine\r\nX-Mine: 1\r\nX-Forwarded-For: 10.9.8.7\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            ))
            .await;
        client.send(&body).await;
        let head = client.head().await;
        assert_eq!((head.status, head.field("x-kept"), head.field("x-stamp")), (200, Some("2"), Some("ours")));
        assert_eq!((head.field("via"), head.field("x-private")), (Some("1.1 millstream"), None));
        let seen = String::from_utf8(client.body(head.content_length()).await.unwrap()).unwrap();
        assert!(seen.starts_with("POST /path?a=b\n"), "{seen}");
        assert!(seen.contains(&format!("{:?}", sha256(&body))), "the body is what was sent");
        for part in [
            "\"host\": \"mill\"",
            "\"x-forwarded-for\": \"10.9.8.7, 127.0.0.1\"",
            "\"x-forwarded-proto\": \"http\"",
            "\"via\": \"1.1 millstream\"",
        ] {
            assert!(seen.contains(part), "{part} in {seen}");
        }
        assert!(!seen.contains("x-mine"), "{seen}");

        let answer = h2(addr).await.send_request(request("http://mill/two")).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        assert_eq!(answer.headers().get_all("x-stamp").iter().collect::<Vec<_>>(), ["ours", "ours too"]);
        let seen = String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap();
        assert!(seen.starts_with("GET /two\n") && seen.contains("\"via\": \"2.0 millstream\""), "{seen}");
        assert!(seen.contains("\"host\": \"mill\""), "{seen}");
    });
}

/// RFC 9110 section 5.3.
#[test]
fn the_lines_of_a_field_keep_their_order() {
    on_both(async || {
        let upstream = start(async |request| {
            let mut response = Response::new(boxed(Full::from("")));
            for line in request.headers().get_all("x-line") {
                response.headers_mut().append("x-line", line.clone());
            }
            response
        })
        .await;
        let lines = ["b", "a, c", "a", "", "z"];
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            let mut asked = request("http://mill/");
            for line in lines {
                asked.headers_mut().append("x-line", HeaderValue::from_static(line));
            }
            for answer in
                [h1(addr).await.send_request(asked.clone()).await, h2(addr).await.send_request(asked.clone()).await]
            {
                let answer = answer.unwrap();
                let got: Vec<_> = answer.headers().get_all("x-line").iter().collect();
                assert_eq!(got, lines, "upstream of HTTP/2: {upstream_h2}");
            }
        }
    });
}

/// RFC 9110 section 7.8.
#[test]
fn an_old_client_cannot_change_the_protocol() {
    on_both(async || {
        let upstream = start(mirror).await;
        let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
        client.send("GET / HTTP/1.0\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        let head = client.head().await;
        let seen = String::from_utf8(client.body(head.content_length()).await.unwrap()).unwrap();
        assert!(head.status == 200 && !seen.contains("upgrade"), "{} {seen}", head.status);
    });
}

#[test]
fn every_version_reaches_every_version() {
    on_both(async || {
        let bytes = noise(3 << 20);
        let sent = bytes.clone();
        let upstream = start(move |_| {
            let frames: Vec<_> = sent.chunks(10_000).map(Bytes::copy_from_slice).collect();
            let frames = stream::iter(frames).map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
            std::future::ready(Response::new(boxed(StreamBody::new(frames))))
        })
        .await;
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
            let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
            assert_eq!(sha256(whole(answer).await.unwrap()), sha256(&bytes));
        }
    });
}

#[test]
fn connections_to_the_upstream_are_used_again() {
    const REQUESTS: usize = 20;
    on_both(async || {
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let adjust = move |_: &millstream::net::TcpStream| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let hello = async |_| Response::new(Full::new(Bytes::from_static(b"hello")));
        let addr = proxy(plan(start_hyper(|_| {}, adjust, hello).await, false)).await;
        for _ in 0..REQUESTS {
            assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"hello".to_vec()));
        }
        // A request may arrive before the connection of the previous one is back in the pool.
        let accepted = accepted.load(Ordering::Relaxed);
        assert!(accepted < REQUESTS / 2, "{accepted} connections for {REQUESTS} requests");
    });
}

#[test]
fn protocols_are_changed_when_both_agree() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            let head = head_of(&mut stream).await.to_lowercase();
            if head.contains("/refuse") {
                return stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
            if head.contains("/unasked") == head.contains("upgrade: echo") {
                return;
            }
            // The first bytes of the new protocol arrive together with the head.
            let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello";
            stream.write_all(head).await.unwrap();
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        let ask = |path| format!("GET {path} HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        let mut client = Raw::connect(addr).await;
        client.send(ask("/")).await;
        let head = client.head().await;
        assert_eq!(
            (head.status, head.field("upgrade"), head.field("connection")),
            (101, Some("echo"), Some("upgrade"))
        );
        assert_eq!(client.body(5).await.unwrap(), b"hello");
        let bytes = noise(1 << 20);
        let (mut from, mut to) = client.io.into_split();
        let sent = bytes.clone();
        tokio::spawn(async move {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        from.read_to_end(&mut got).await.unwrap();
        assert!(got == bytes, "{} bytes", got.len());

        let mut client = Raw::connect(addr).await;
        client.send(ask("/refuse")).await;
        assert_eq!(client.head().await.status, 403);
        let (status, text) = Raw::connect(addr).await.get("/unasked").await;
        assert_eq!(status, 502, "{}", String::from_utf8_lossy(&text));
        let mut client = Raw::connect(addr).await;
        client.send("CONNECT mill:80 HTTP/1.1\r\nHost: mill:80\r\n\r\n").await;
        assert_eq!(client.head().await.status, StatusCode::NOT_IMPLEMENTED);
    });
}

#[test]
fn unix_sockets_on_both_sides() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let (front, back) = (dir.path().join("front"), dir.path().join("back"));
        let upstream = UnixListener::bind(&back).await.unwrap();
        let service = tower::service_fn(|request| async { Ok::<_, std::convert::Infallible>(mirror(request).await) });
        tokio::spawn(serve(upstream, service).into_future());
        let listener = UnixListener::bind(&front).await.unwrap();
        let to: Upstream = format!("unix:{}", back.display()).parse().unwrap();
        tokio::spawn(serve(listener, Proxy::new(to).unwrap()).into_future());
        let mut client = Raw::over(tokio::net::UnixStream::connect(&front).await.unwrap());
        let (status, seen) = client.get("/here").await;
        let seen = String::from_utf8(seen).unwrap();
        assert!(status == 200 && seen.starts_with("GET /here"), "{status} {seen}");
        assert!(!seen.contains("x-forwarded-for"), "{seen}");
    });
}

#[test]
fn options_that_cannot_be_are_refused() {
    let upstream: Upstream = "mill:80".parse().unwrap();
    let builder = || Proxy::builder(upstream.clone());
    let refused = |builder: ProxyBuilder, expected: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
    };
    refused(builder().breaker(0, HANGS), "invalid breaker: 0 failures; allowed: at least 1");
    for scheme in ["", "ht tps", "https:", "1https", "\n"] {
        let expected = format!("invalid scheme: {scheme:?}; allowed: the scheme of a URI, such as `https`");
        refused(builder().scheme(scheme), &expected);
    }
    for name in [hyper::header::CONTENT_LENGTH, hyper::header::TRANSFER_ENCODING] {
        let expected = format!("invalid response_header: {name}; allowed: fields that do not frame the body");
        refused(builder().response_header(name, HeaderValue::from_static("1")), &expected);
    }
    // The value that was set last counts.
    builder().breaker(0, HANGS).breaker(1, HANGS).scheme("a b").scheme("https").build().unwrap();
}
