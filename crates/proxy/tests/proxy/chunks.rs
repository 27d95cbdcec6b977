//! Chunked responses, which the proxy decodes itself.

use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Starts an upstream that answers each request of all connections with these pieces, each after a pause. Returns the number
/// of connections, too.
async fn pieces(pieces: Vec<String>) -> (SocketAddr, Arc<AtomicUsize>) {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let addr = raw_upstream(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let pieces = pieces.clone();
        async move {
            let mut buf = [0; 10_000];
            while let Ok(1..) = stream.read(&mut buf).await {
                for piece in &pieces {
                    if stream.write_all(piece.as_bytes()).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    })
    .await;
    (addr, accepted)
}

/// Returns the body, and whether it ended in order.
async fn read(answer: Response<hyper::body::Incoming>) -> (Vec<u8>, bool) {
    let mut body = answer.into_body();
    let mut got = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => got.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (got, false),
        }
    }
    (got, true)
}

#[test]
fn trailers_that_http2_forbids_end_here() {
    on_both(async || {
        let trailers = "Connection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 9\r\nX-Sum: 2\r\n";
        let (upstream, _) = pieces(vec![format!("{HEAD}3\r\nabc\r\n0\r\n{trailers}\r\n")]).await;
        let answer = h2(proxy(plan(upstream, false)).await).await.send_request(request("http://mill/")).await.unwrap();
        let body = answer.into_body().collect().await.expect("a body");
        let names: Vec<_> = body.trailers().unwrap().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-sum"]);
        assert_eq!(body.to_bytes(), "abc");
    });
}

#[test]
fn a_connection_is_kept_behind_trailers() {
    on_both(async || {
        let (upstream, accepted) = pieces(vec![format!("{HEAD}3\r\nabc\r\n0\r\nX-Sum: 2\r\n\r\n")]).await;
        let mut client = h2(proxy(plan(upstream, false)).await).await;
        for _ in 0..3 {
            let answer = client.send_request(request("http://mill/")).await.unwrap();
            let body = answer.into_body().collect().await.unwrap();
            assert_eq!(body.trailers().unwrap()["x-sum"], "2");
            assert_eq!(body.to_bytes(), "abc");
        }
        assert_eq!(accepted.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn heads_and_chunks_may_be_cut_anywhere_and_the_connection_is_kept() {
    const WHOLE: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x\r\ndefg\r\n0\r\n\r\n";
    on_both(async || {
        for cut in 1..WHOLE.len() {
            let (upstream, accepted) = pieces(vec![WHOLE[..cut].to_owned(), WHOLE[cut..].to_owned()]).await;
            let addr = proxy(plan(upstream, false)).await;
            let mut client = h1(addr).await;
            for _ in 0..2 {
                client.ready().await.unwrap();
                let answer = client.send_request(request("/")).await.unwrap();
                assert_eq!(read(answer).await, (b"abcdefg".to_vec(), true), "cut after {cut} bytes");
            }
            assert_eq!(accepted.load(Ordering::Relaxed), 1, "cut after {cut} bytes");
        }
    });
}

#[test]
fn chunks_that_arrive_together_are_one_frame() {
    on_both(async || {
        let many: String = (0..100).map(|n| format!("9\r\ntoken {n:03}\r\n")).collect();
        let go_on = Arc::new(tokio::sync::Notify::new());
        let goes_on = Arc::clone(&go_on);
        let upstream = raw_upstream(move |mut stream| {
            let (go_on, rest) = (Arc::clone(&goes_on), format!("{many}0\r\n\r\n"));
            async move {
                head_of(&mut stream).await;
                stream.write_all(format!("{HEAD}1\r\n.\r\n").as_bytes()).await.unwrap();
                go_on.notified().await;
                stream.write_all(rest.as_bytes()).await.unwrap();
            }
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").await;
        assert_eq!(client.head().await.status, 200);
        // The others come once the first has arrived.
        let mut got = client.body(b"1\r\n.\r\n".len()).await.unwrap();
        go_on.notify_one();
        got.extend_from_slice(&client.drain().await);
        let tokens: String = (0..100).map(|n| format!("token {n:03}")).collect();
        assert_eq!(String::from_utf8(got).unwrap(), format!("1\r\n.\r\n384\r\n{tokens}\r\n0\r\n\r\n"));
    });
}

#[test]
fn long_chunks_arrive_whole() {
    on_both(async || {
        let data = noise(3 << 20);
        for len in [1 << 10, 30_000, 1 << 20] {
            let body = data.clone();
            let upstream = raw_upstream(move |mut stream| {
                let body = body.clone();
                async move {
                    head_of(&mut stream).await;
                    stream.write_all(HEAD.as_bytes()).await.unwrap();
                    for chunk in body.chunks(len) {
                        stream.write_all(format!("{:X}\r\n", chunk.len()).as_bytes()).await.unwrap();
                        stream.write_all(chunk).await.unwrap();
                        stream.write_all(b"\r\n").await.unwrap();
                    }
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;
            let got = whole(h1(addr).await.send_request(request("/")).await.unwrap()).await.unwrap();
            assert!(got == data, "chunks of {len} bytes");
            let got = whole(h2(addr).await.send_request(request("http://mill/")).await.unwrap()).await.unwrap();
            assert!(got == data, "chunks of {len} bytes, to HTTP/2");
        }
    });
}

#[test]
fn a_malformed_chunk_is_an_error_of_the_body() {
    on_both(async || {
        for bad in ["3\r\nabcd\r\n0\r\n\r\n", "x\r\n", "0\r\nx-a : b\r\n\r\n", "3 \n"] {
            let (upstream, _) = pieces(vec![format!("{HEAD}2\r\nok\r\n"), bad.to_owned()]).await;
            let built = plan(upstream, false).build().unwrap();
            let addr = proxy_of(built.clone()).await;
            // The connection is reset. On a busy machine that overtakes the head of the response.
            if let Ok(answer) = h1(addr).await.send_request(request("/")).await {
                assert!(!read(answer).await.1, "{bad:?}");
            }
            soon("the request ends", || built.state().in_progress == 0).await;
            assert_eq!((built.idle_connections(), built.state().in_progress), (0, 0), "{bad:?}");
        }
    });
}

#[test]
fn bytes_behind_a_chunked_body_are_no_response() {
    on_both(async || {
        let more = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        let (upstream, accepted) = pieces(vec![format!("{HEAD}2\r\nok\r\n0\r\n\r\n{more}")]).await;
        let addr = proxy(plan(upstream, false)).await;
        for _ in 0..3 {
            let answer = h1(addr).await.send_request(request("/")).await.unwrap();
            assert_eq!(whole(answer).await.unwrap(), "ok");
        }
        assert_eq!(accepted.load(Ordering::Relaxed), 3, "each connection is closed");
    });
}

#[test]
fn heads_that_announce_chunks_may_have_no_body() {
    on_both(async || {
        let (upstream, accepted) = pieces(vec![HEAD.to_owned()]).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        for _ in 0..2 {
            client.send("HEAD / HTTP/1.1\r\nHost: mill\r\n\r\n").await;
            assert_eq!(client.head().await.status, 200);
        }
        assert_eq!(accepted.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_upload_gets_a_chunked_response() {
    on_both(async || {
        let (upstream, _) = pieces(vec![format!("{HEAD}2\r\nok\r\n0\r\n\r\n")]).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        for _ in 0..2 {
            client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 3\r\n\r\nabc").await;
            assert_eq!(client.head().await.status, 200);
            assert_eq!(client.body(12).await.unwrap(), b"2\r\nok\r\n0\r\n\r\n");
        }
    });
}

#[test]
fn a_client_that_leaves_ends_a_chunked_response() {
    on_both(async || {
        let left = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&left);
        let upstream = raw_upstream(move |mut stream| {
            let count = Arc::clone(&count);
            async move {
                head_of(&mut stream).await;
                stream.write_all(format!("{HEAD}1\r\n.\r\n").as_bytes()).await.unwrap();
                assert!(stream.read_u8().await.is_err(), "the proxy sends nothing");
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        let built = plan(upstream, false).build().unwrap();
        let addr = proxy_of(built.clone()).await;
        let mut client = Raw::connect(addr).await;
        client.ask("/").await;
        assert_eq!(client.head().await.status, 200);
        drop(client);
        soon("the upstream is told", || left.load(Ordering::Relaxed) == 1).await;
        soon("the place is free", || built.state().in_progress == 0).await;
    });
}

#[test]
fn an_upload_goes_on_behind_the_head_of_a_chunked_response() {
    const LEN: usize = 4 << 20;
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            stream.write_all(format!("{HEAD}2\r\nok\r\n").as_bytes()).await.unwrap();
            stream.read_exact(&mut vec![0; LEN]).await.unwrap();
            stream.write_all(b"3\r\nall\r\n0\r\n\r\n").await.unwrap();
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send(format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: {LEN}\r\n\r\n")).await;
        assert_eq!(client.head().await.status, 200);
        assert_eq!(client.body(7).await.unwrap(), b"2\r\nok\r\n");
        client.send(vec![1; LEN]).await;
        let end = timeout(HANGS, client.body(13)).await.expect("in time");
        assert_eq!(end.unwrap(), b"3\r\nall\r\n0\r\n\r\n");
    });
}
