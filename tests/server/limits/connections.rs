//! Limits on the number of connections.

use std::net::SocketAddr;

use hyper::{StatusCode, header};
use hyper_util::rt::TokioIo;
use millstream::server::Trusted;
use millstream::server::{Limits, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{hello, is_reset, start, text};
use testkit::HANGS;
use testkit::http::{Answer, Head, Raw, on_both};

/// Opens a connection and checks that it is served; `None` if it is refused.
async fn served(addr: SocketAddr) -> Option<Raw> {
    let (mut client, head) = ask(addr, b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").await?;
    client.body(head.content_length()).await.unwrap();
    Some(client)
}

/// Sends `request` on a new connection; `None` if it is refused.
async fn ask(addr: SocketAddr, request: &[u8]) -> Option<(Raw, Head)> {
    let asked = async {
        let mut client = Raw::over(TcpStream::connect(addr).await?);
        client.io.write_all(request).await?;
        let head = client.try_head().await?;
        Ok((client, head))
    };
    match asked.await {
        Ok((mut client, head)) if head.status == 503 => {
            assert_eq!(head.field("connection"), Some("close"));
            assert!(matches!(head.field("retry-after"), Some("1" | "2" | "3")));
            assert!(client.drain().await.is_empty(), "closed");
            None
        }
        Ok(answered) => Some(answered),
        Err(error) => {
            assert!(is_reset(&error), "{error}");
            None
        }
    }
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: mill\r\nUpgrade: mirror\r\nConnection: upgrade\r\n\r\n";

/// Retries [`served`], because the server sees a disconnect later.
async fn served_soon(addr: SocketAddr) -> Raw {
    let soon = async {
        loop {
            if let Some(client) = served(addr).await {
                return client;
            }
        }
    };
    tokio::time::timeout(HANGS, soon).await.expect("a free place")
}

#[test]
fn there_are_so_many_connections_and_no_more_and_each_place_is_given_back() {
    on_both(async || {
        let all = Limits::default().connections(5);
        let one = Limits::default().per_address(5).exempt(Trusted::none());
        for limits in [all, one] {
            let addr = start(limits, tower::service_fn(hello)).await;
            for round in 0..3 {
                let mut five = Vec::new();
                for _ in 0..5 {
                    five.push(served_soon(addr).await);
                }
                for _ in 0..3 {
                    assert!(served(addr).await.is_none(), "the sixth");
                }
                // An HTTP/2 client receives the refusal too.
                let mut sixth = Raw::connect(addr).await;
                sixth.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
                let told = sixth.drain().await;
                let (settings, goaway) = told.split_at(9);
                assert_eq!(settings, b"\0\0\0\x04\0\0\0\0\0");
                assert_eq!(goaway, b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b", "ENHANCE_YOUR_CALM");
                for client in &mut five {
                    assert_eq!(client.get("/").await.0, 200, "open connections are served");
                }
                if round == 0 {
                    // The server refuses without waiting for a request.
                    assert!(Raw::connect(addr).await.drain().await.is_empty());
                }
            }
        }
    });
}

#[test]
fn a_place_is_given_back_after_a_panic_too() {
    on_both(async || {
        let panics = tower::service_fn(async |request: hyper::Request<RequestBody>| {
            assert_ne!(request.uri().path(), "/panic", "panic of the test's service");
            Ok::<_, std::convert::Infallible>(text("hello"))
        });
        let addr = start(Limits::default().connections(1), panics).await;
        for _ in 0..3 {
            let mut victim = served_soon(addr).await;
            victim.ask("/panic").await;
            assert!(victim.try_head().await.is_err());
        }
        served_soon(addr).await;
    });
}

#[test]
fn loopback_is_exempt_from_the_limit_for_an_address() {
    on_both(async || {
        let addr = start(Limits::default().per_address(1), tower::service_fn(hello)).await;
        let first = served(addr).await.unwrap();
        assert!(served(addr).await.is_some());
        drop(first);
    });
}

#[test]
fn an_upgraded_connection_counts_until_it_is_closed() {
    on_both(async || {
        let upgrade = tower::service_fn(async |mut request: hyper::Request<RequestBody>| {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move { TokioIo::new(upgraded.await.unwrap()).read_to_end(&mut Vec::new()).await });
            Ok::<_, std::convert::Infallible>(switching())
        });
        // Shorter than the waits below: HTTP timeouts end with the upgrade. Longer than a request takes on a busy machine.
        let limit = std::time::Duration::from_secs(4);
        let addr = start(Limits::default().connections(1).keep_alive(limit).head_time(limit), upgrade).await;
        for _ in 0..2 {
            let mut client = upgraded_soon(addr).await;
            tokio::time::sleep(limit + limit / 4).await;
            assert!(ask(addr, UPGRADE).await.is_none());
            client.send("still there").await;
            let waited = tokio::time::timeout(limit / 4, client.drain()).await;
            assert!(waited.is_err(), "closed by the server: {waited:?}");
        }
    });
}

#[test]
fn an_upgraded_connection_whose_client_takes_nothing_is_reset() {
    on_both(async || {
        let (sender, mut ended) = mpsc::channel(1);
        let upgrade = tower::service_fn(move |mut request: hyper::Request<RequestBody>| {
            let (upgraded, sender) = (hyper::upgrade::on(&mut request), sender.clone());
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgraded.await.unwrap());
                while io.write_all(&[7; 64 << 10]).await.is_ok() {}
                sender.send(()).await.unwrap();
            });
            std::future::ready(Ok::<_, std::convert::Infallible>(switching()))
        });
        let limits = Limits::default().write_stall(std::time::Duration::from_millis(500));
        let mut client = Raw::connect_narrow(start(limits, upgrade).await).await;
        client.send(UPGRADE).await;
        assert_eq!(client.head().await.status, 101);
        tokio::time::timeout(HANGS, ended.recv()).await.expect("reset").unwrap();
    });
}

fn switching() -> Answer {
    let mut answer = text("");
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::UPGRADE, "mirror".parse().unwrap());
    answer.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
    answer
}

async fn upgraded_soon(addr: SocketAddr) -> Raw {
    let soon = async {
        loop {
            if let Some((client, head)) = ask(addr, UPGRADE).await {
                assert_eq!(head.status, 101);
                return client;
            }
        }
    };
    tokio::time::timeout(HANGS, soon).await.expect("a free place")
}
