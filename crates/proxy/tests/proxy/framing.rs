//! Messages whose framing, or whose fields, two servers could read differently.

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

/// Starts an upstream that answers the requests of all connections with these bytes, one after another, and keeps what it
/// was sent.
async fn scripted(answer: &'static [u8]) -> (SocketAddr, Arc<std::sync::Mutex<Vec<u8>>>) {
    let seen = Arc::<std::sync::Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&seen);
    let addr = raw_upstream(move |mut stream| {
        let all = Arc::clone(&all);
        async move {
            let mut buf = [0; 10_000];
            let mut asked = Vec::new();
            while let Ok(n @ 1..) = stream.read(&mut buf).await {
                all.lock().unwrap().extend_from_slice(&buf[..n]);
                asked.extend_from_slice(&buf[..n]);
                while let Some(end) = end_of_request(&asked) {
                    asked.drain(..end);
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            }
        }
    })
    .await;
    (addr, seen)
}

/// Returns the length of the first request with its body, if all of it is there.
fn end_of_request(asked: &[u8]) -> Option<usize> {
    let find = |from: usize, what: &[u8]| {
        asked[from..].windows(what.len()).position(|found| found == what).map(|at| from + at + what.len())
    };
    let body = find(0, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&asked[..body]).to_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return find(body, b"0\r\n\r\n");
    }
    let length = head.split("content-length: ").nth(1).map_or("0", |rest| rest.split("\r\n").next().unwrap());
    Some(body + length.parse::<usize>().unwrap()).filter(|&end| end <= asked.len())
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn soon_seen(seen: &std::sync::Mutex<Vec<u8>>, part: &str) -> String {
    let text = || String::from_utf8_lossy(&seen.lock().unwrap()).to_lowercase();
    soon(part, || text().contains(part)).await;
    text()
}

#[test]
fn a_coding_overrides_the_length_of_a_response() {
    const BOTH: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nexpected\r\n0\r\n\r\n";
    on_both(async || {
        let (upstream, _) = scripted(BOTH).await;
        let addr = proxy(plan(upstream, false)).await;
        let answer = h1(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(answer.headers().get("content-length"), None);
        assert_eq!(whole(answer).await.unwrap(), "expected");
    });
}

#[test]
fn a_body_with_another_coding_is_no_response() {
    on_both(async || {
        for (coding, expected) in [
            ("Chunked", 200),
            ("gzip, chunked", 502),
            ("gzip\r\nTransfer-Encoding: chunked", 502),
            ("gzip", 502),
            ("chunked, chunked", 502),
        ] {
            let upstream = raw_upstream(move |mut stream| async move {
                head_of(&mut stream).await;
                let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
                stream.write_all([head.as_bytes(), b"2\r\nok\r\n0\r\n\r\n"].concat().as_slice()).await.unwrap();
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;
            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            assert_eq!(answer.status(), expected, "{coding}");
        }
    });
}

#[test]
fn a_request_with_another_coding_is_not_passed_on() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        for coding in ["gzip, chunked", "chunked, chunked", "identity, chunked", "gzip\r\nTransfer-Encoding: chunked"] {
            let mut client = Raw::connect(addr).await;
            client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: {coding}\r\n\r\n")).await;
            client.send("2\r\nok\r\n0\r\n\r\n").await;
            assert_eq!(client.head().await.status, 501, "{coding}");
        }
        assert!(seen.lock().unwrap().is_empty(), "the upstream is not asked");
    });
}

#[test]
fn a_length_is_passed_on_as_one_number() {
    const SHORT: usize = 5;
    const LONG: usize = 20_000;
    on_both(async || {
        for (length, len, expected) in [
            ("Content-Length: 5, 5", SHORT, Some("5")),
            ("Content-Length: 5\r\nContent-Length: 5", SHORT, Some("5")),
            ("Content-Length: 20000, 20000", LONG, Some("20000")),
            ("Content-Length: 5\r\nContent-Length: 6", SHORT, None),
            ("Content-Length: +5", SHORT, None),
        ] {
            let upstream = raw_upstream(move |mut stream| async move {
                let head = head_of(&mut stream).await;
                let body = if head.starts_with("HEAD") { Vec::new() } else { noise(len) };
                let answer = [format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n").as_bytes(), &body].concat();
                // The proxy may have left.
                let _ = stream.write_all(&answer).await;
                let _ = stream.read(&mut [0]).await;
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;
            for method in ["GET", "HEAD"] {
                let mut client = Raw::connect(addr).await;
                client.send(format!("{method} / HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
                let head = timeout(HANGS, client.head()).await.expect("a response");
                assert_eq!(head.status, if expected.is_some() { 200 } else { 502 }, "{method}, {length}");
                if let Some(expected) = expected {
                    assert_eq!(head.field("content-length"), Some(expected), "{method}, {length}");
                }
                if method == "GET" && expected.is_some() {
                    assert!(client.body(len).await.unwrap() == noise(len), "{length}");
                }
                let mut request = request("http://mill/");
                *request.method_mut() = method.parse().unwrap();
                let answer = h2(addr).await.send_request(request).await.unwrap();
                let lengths = answer.headers().get_all("content-length").iter().count();
                assert!(lengths == 1 && (answer.status() == 200) == expected.is_some(), "{method}, {length}");
            }
        }
    });
}

#[test]
fn a_length_of_a_request_is_one_number() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post("http://mill/").body(Full::<Bytes>::from("hello")).unwrap();
        for _ in 0..2 {
            request.headers_mut().append("content-length", HeaderValue::from_static("5"));
        }
        assert_eq!(client.send_request(request).await.unwrap().status(), 200);
        let seen = soon_seen(&seen, "hello").await;
        assert_eq!(seen.matches("content-length").count(), 1, "{seen}");
    });
}

#[test]
fn the_crumbs_of_a_cookie_are_one_field_for_http1() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut request = request("http://mill/");
        for crumb in ["a=1", "b=2", "c=3; d=4"] {
            request.headers_mut().append("cookie", HeaderValue::from_static(crumb));
        }
        assert_eq!(h2(addr).await.send_request(request).await.unwrap().status(), 200);
        let seen = soon_seen(&seen, "\r\n\r\n").await;
        assert!(seen.contains("\r\ncookie: a=1; b=2; c=3; d=4\r\n"), "{seen}");
        assert_eq!(seen.matches("cookie:").count(), 1, "{seen}");
    });
}

#[test]
fn the_hops_of_a_probe_are_counted() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let ask = async |method: &str, hops: &str| {
            let mut client = Raw::connect(addr).await;
            client.send(format!("{method} / HTTP/1.1\r\nHost: mill\r\nMax-Forwards: {hops}\r\n\r\n")).await;
            client.head().await.status
        };
        assert_eq!((ask("OPTIONS", "0").await, ask("TRACE", "0").await), (200, 501));
        assert!(seen.lock().unwrap().is_empty(), "the upstream is not asked");
        for (method, hops, passed) in [
            ("OPTIONS", "3", "2"),
            ("TRACE", "1", "0"),
            ("GET", "0", "0"),
            ("OPTIONS", "many", "many"),
            // More than the proxy supports.
            ("OPTIONS", "99999999999999999999", "18446744073709551614"),
        ] {
            seen.lock().unwrap().clear();
            assert_eq!(ask(method, hops).await, 200);
            let seen = soon_seen(&seen, "\r\n\r\n").await;
            assert!(seen.contains(&format!("max-forwards: {passed}\r\n")), "{seen}");
        }
    });
}

#[test]
fn an_address_of_ipv4_is_written_as_one() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let listener = TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(listener, plan(upstream, false).forwarded(true).build().unwrap()).into_future());
        Raw::connect(([127, 0, 0, 1], port).into()).await.get("/").await;
        let seen = soon_seen(&seen, "\r\n\r\n").await;
        assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
        assert!(seen.contains("forwarded: for=127.0.0.1;"), "{seen}");
    });
}

#[test]
fn the_body_of_a_get_reaches_the_upstream() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsearch\r\n0\r\n\r\n").await;
        assert_eq!(client.head().await.status, 200);
        let seen = soon_seen(&seen, "search").await;
        assert!(seen.contains("transfer-encoding: chunked"), "{seen}");
    });
}

#[test]
fn the_host_stays_whatever_is_named_as_a_connection_field() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: host, x-forwarded-for\r\n\r\n").await;
        assert_eq!(client.head().await.status, 200);
        let seen = soon_seen(&seen, "\r\n\r\n").await;
        assert!(seen.contains("host: mill") && seen.contains("x-forwarded-for: 127.0.0.1"), "{seen}");
    });
}

#[test]
fn a_change_to_http2_is_not_passed_on() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        let fields = "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
        client.send(format!("GET / HTTP/1.1\r\nHost: mill\r\n{fields}\r\n\r\n")).await;
        assert_eq!(client.head().await.status, 200);
        let seen = soon_seen(&seen, "\r\n\r\n").await;
        assert!(!seen.contains("h2c") && !seen.contains("http2-settings"), "{seen}");
    });
}

#[test]
fn a_request_without_a_host_gets_that_of_the_upstream() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.0\r\nX-Forwarded-For:\r\n\r\n").await;
        assert_eq!(client.head().await.status, 200);
        let seen = soon_seen(&seen, "\r\n\r\n").await;
        assert!(seen.contains(&format!("host: {upstream}\r\n")), "{seen}");
        assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
    });
}

#[test]
fn a_request_to_no_resource_reaches_both_versions() {
    on_both(async || {
        let upstream = start(mirror).await;
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            let mut client = Raw::connect(addr).await;
            client.send("OPTIONS * HTTP/1.1\r\nHost: mill\r\n\r\n").await;
            assert_eq!(client.head().await.status, 200, "HTTP/2: {upstream_h2}");
        }
    });
}

/// RFC 9112 sections 2.2, 5.1 and 5.2.
/// Returns the status with which the proxy passes on the answer of an upstream to a request with `fields`.
async fn passed_on(answer: String, fields: &str) -> u16 {
    let upstream = raw_upstream(move |mut stream| {
        let answer = answer.clone();
        async move {
            head_of(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Until the proxy leaves.
            let _ = stream.read(&mut [0]).await;
        }
    })
    .await;
    let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
    client.send(&format!("GET / HTTP/1.1\r\nHost: mill\r\n{fields}\r\n")).await;
    client.head().await.status
}

#[test]
fn a_head_that_two_recipients_could_read_differently_is_no_response() {
    on_both(async || {
        for (fields, expected) in [
            ("X: a\r\n", 200),
            ("X: a\r\n b\r\n", 502),
            ("X: a\r\n\tContent-Length: 0\r\n", 502),
            (" X: a\r\n", 502),
            ("X : a\r\n", 502),
            ("Content-Length : 0\r\n", 502),
            ("X: a\rContent-Length: 0\r\n", 502),
            ("X: a\0\r\n", 502),
            ("X\r\n", 502),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok");
            assert_eq!(passed_on(answer, "").await, expected, "{fields:?}");
        }
    });
}

#[test]
fn a_change_to_no_protocol_is_no_tunnel() {
    on_both(async || {
        for fields in [
            "",
            "Connection: upgrade\r\nUpgrade: h2c\r\n",
            // Not asked for (RFC 9110 section 7.8).
            "Connection: upgrade\r\nUpgrade: echo\r\n",
            "Connection: upgrade\r\nUpgrade: websocket, echo\r\n",
            "Connection: upgrade\r\nUpgrade:\r\n",
        ] {
            let answer = format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n");
            let asked = "Connection: upgrade\r\nUpgrade: websocket\r\n";
            assert_eq!(passed_on(answer, asked).await, 502, "{fields}");
        }
    });
}

#[test]
fn clients_are_told_apart_by_the_scheme_of_the_proxy() {
    on_both(async || {
        let (upstream, seen) = scripted(OK).await;
        let addr = proxy(plan(upstream, false).scheme("https")).await;
        Raw::connect(addr).await.get("/").await;
        assert!(soon_seen(&seen, "\r\n\r\n").await.contains("x-forwarded-proto: https"));
    });
}

#[test]
fn an_upload_that_was_answered_early_is_no_part_of_the_next_request() {
    // A long response, which is worth to be moved, before the upstream has read the upload.
    const LEN: usize = 100_000;
    const UPLOAD: usize = 16 << 20;
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            loop {
                let mut first = [0; 1];
                if stream.read_exact(&mut first).await.is_err() {
                    return;
                }
                let head = format!("{}{}", char::from(first[0]), head_of(&mut stream).await);
                let upload = if head.starts_with("POST / HTTP/1.1\r\n") { UPLOAD } else { 0 };
                let is_known = upload > 0 || head.starts_with("GET /next HTTP/1.1\r\n");
                let status = if is_known { "200 OK" } else { "400 Bad Request" };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {LEN}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), &noise(LEN)].concat()).await.unwrap();
                if stream.read_exact(&mut vec![0; upload]).await.is_err() {
                    return;
                }
            }
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        let upload = vec![b'x'; UPLOAD];
        client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: {}\r\n\r\n", upload.len())).await;
        let (mut from, mut to) = client.io.into_split();
        let sending = tokio::spawn(async move { drop(to.write_all(&upload).await) });
        let mut got = Vec::new();
        let reading = async {
            let mut buf = vec![0; 64 << 10];
            while got.len() < LEN {
                match from.read(&mut buf).await {
                    Ok(n @ 1..) => got.extend_from_slice(&buf[..n]),
                    _ => break,
                }
            }
        };
        timeout(HANGS, reading).await.expect("a response");
        sending.abort();
        let (status, body) = Raw::connect(addr).await.get("/next").await;
        assert!(status == 200 && body == noise(LEN), "{status}, {} bytes", body.len());
    });
}
