//! Bodies that are moved from socket to socket give the same bytes as those in frames.

use millstream::metrics::Snapshot;

use super::*;

/// Sizes around those at which the way changes.
const SIZES: [usize; 9] = [0, 1, 10_000, 16_383, 16_384, 30_000, 100_000, 1 << 20, (9 << 20) + 7];

/// Starts an upstream that sends as many bytes as the path says, in pieces, on connections that persist. Returns the number
/// of its connections.
async fn sized(piece: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let addr = raw_upstream(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let len = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
                let all = [head.as_bytes(), &noise(len)].concat();
                for piece in all.chunks(piece) {
                    if stream.write_all(piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await;
    (addr, accepted)
}

#[test]
fn bytes_are_the_same_by_every_way() {
    on_both(async || {
        for piece in [1000, 1 << 30] {
            let (upstream, accepted) = sized(piece).await;
            let addr = proxy(plan(upstream, false)).await;
            let mut client = Raw::connect(addr).await;
            for len in SIZES {
                let (status, body) = client.get(&format!("/{len}")).await;
                assert!(status == 200 && body == noise(len), "{len} in pieces of {piece}: {} bytes", body.len());
            }
            assert_eq!(accepted.load(Ordering::Relaxed), 1, "the connection is used again after each body");
            let mut two = h2(addr).await;
            for len in SIZES {
                let answer = two.send_request(request(&format!("http://mill/{len}"))).await.unwrap();
                assert!(whole(answer).await.unwrap() == noise(len), "{len} by HTTP/2");
            }
        }
    });
}

/// hyper frames the answer to `CONNECT` in a way that is not certain, so the connection is not taken from it afterwards.
#[test]
fn bodies_arrive_behind_an_answer_that_stays_with_hyper() {
    on_both(async || {
        let (upstream, _) = sized(1 << 30).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.send("CONNECT mill:80 HTTP/1.1\r\nHost: mill:80\r\n\r\n").await;
        let head = client.head().await;
        assert_eq!(head.status, 501);
        client.body(head.content_length()).await.unwrap();
        for len in SIZES {
            let (status, body) = timeout(HANGS, client.get(&format!("/{len}"))).await.expect("it arrives");
            assert!(status == 200 && body == noise(len), "{len}: {} bytes", body.len());
        }
    });
}

#[test]
fn long_bodies_are_moved_and_short_ones_are_not() {
    if lacks("splice") {
        return;
    }
    if std::env::var("MILLSTREAM_DISABLE").is_ok_and(|names| names.contains("takeover")) {
        return skip("takeover", "turned off by MILLSTREAM_DISABLE");
    }
    const LONG: usize = 8 << 20;
    on_both(async || {
        let (upstream, _) = sized(1 << 30).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        let before = Snapshot::now();
        client.get(&format!("/{LONG}")).await;
        let after = Snapshot::now();
        assert!(after.responses_taken_over > before.responses_taken_over);
        let moved = after.copied_by_splice - before.copied_by_splice;
        // All but the first reads, which tell that there is more.
        assert!(moved > LONG as u64 / 2, "{moved} bytes");
    });
}

#[test]
fn pipelined_requests_get_their_bodies_in_order() {
    on_both(async || {
        let (upstream, _) = sized(1 << 30).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        let ask = |len| format!("GET /{len} HTTP/1.1\r\nHost: mill\r\n\r\n");
        client.send(SIZES.map(ask).concat()).await;
        for len in SIZES {
            assert_eq!(client.head().await.content_length(), len);
            assert!(client.body(len).await.unwrap() == noise(len), "{len}");
        }
    });
}

#[test]
fn a_slow_reader_gets_every_byte() {
    on_both(async || {
        let (upstream, _) = sized(1 << 30).await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::over(narrow(addr).await);
        let len = 3 << 20;
        client.ask(&format!("/{len}")).await;
        client.head().await;
        let expected = noise(len);
        let mut at = 0;
        while at < len {
            let n = (len - at).min(50_000);
            assert!(client.body(n).await.unwrap() == expected[at..at + n], "at {at}");
            at += n;
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn bytes_beyond_the_length_reach_no_client() {
    on_both(async || {
        for len in [100, 200_000] {
            let upstream = raw_upstream(move |mut stream| async move {
                head_of(&mut stream).await;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
                let extra = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
                let _ = stream.write_all(&[head.as_bytes(), &noise(len), extra].concat()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;
            let mut client = Raw::connect(addr).await;
            for _ in 0..3 {
                assert_eq!(client.get("/").await, (200, noise(len)));
            }
        }
    });
}

#[test]
fn an_upstream_that_ends_at_any_byte_ends_the_response_there() {
    const LEN: usize = 300_000;
    on_both(async || {
        for sent in [0, 1, 1000, 65_536, 100_000, 200_000, LEN - 1] {
            for reset in [false, true] {
                let upstream = raw_upstream(move |mut stream| async move {
                    head_of(&mut stream).await;
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n");
                    stream.write_all(&[head.as_bytes(), &noise(LEN)[..sent]].concat()).await.unwrap();
                    if reset {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                })
                .await;
                let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
                client.ask("/").await;
                // hyper drops what it has not written when a body fails, the head too.
                let Ok(head) = client.try_head().await else { continue };
                assert_eq!(head.content_length(), LEN);
                let got = timeout(HANGS, client.drain()).await.expect("the connection ends");
                assert!(noise(LEN).starts_with(&got) && got.len() <= sent, "{} of {sent}", got.len());
            }
        }
    });
}

#[test]
fn an_upstream_that_pauses_for_too_long_ends_the_response() {
    on_both(async || {
        for sent in [1000, 200_000] {
            let upstream = raw_upstream(move |mut stream| async move {
                head_of(&mut stream).await;
                let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
                stream.write_all(&[head, &noise(sent)[..]].concat()).await.unwrap();
                std::future::pending().await
            })
            .await;
            // Longer than the upstream needs for the part that it sends, on a busy machine too.
            let addr = proxy(plan(upstream, false).body_timeout(Duration::from_secs(4))).await;
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            client.head().await;
            assert_eq!(timeout(HANGS, client.drain()).await.expect("the connection ends").len(), sent);
        }
    });
}

#[test]
fn a_kept_connection_that_has_ended_costs_no_request() {
    on_both(async || {
        // Answers one request on each connection, and closes it without saying so, as late as it can.
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let upstream = raw_upstream(move |mut stream| {
            let count = Arc::clone(&count);
            async move {
                head_of(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                head_of(&mut stream).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"ok".to_vec()));
        assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"ok".to_vec()));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the second request was sent twice");
        // A request that may have had an effect is not.
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(client.head().await.status, 502);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_client_that_leaves_ends_the_connection_to_the_upstream() {
    on_both(async || {
        for reset in [false, true] {
            let (tell, mut told) = tokio::sync::mpsc::channel(1);
            let upstream = raw_upstream(move |mut stream| {
                let tell = tell.clone();
                async move {
                    head_of(&mut stream).await;
                    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
                    stream.write_all(&[head, &noise(200_000)[..]].concat()).await.unwrap();
                    // Neither sends nor reads until the proxy ends it.
                    let _ = stream.read(&mut [0]).await;
                    tell.send(()).await.unwrap();
                }
            })
            .await;
            let addr = proxy(plan(upstream, false)).await;
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            client.head().await;
            client.body(200_000).await.unwrap();
            if reset {
                client.reset();
            } else {
                drop(client);
            }
            timeout(HANGS, told.recv()).await.expect("the upstream is left").unwrap();
        }
    });
}
