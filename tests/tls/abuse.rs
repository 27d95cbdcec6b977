//! Clients that send no TLS or stall in the handshake, and descriptors left behind.

use std::time::{Duration, Instant};

use millstream::metrics::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;
use testkit::http::on_both;
use testkit::{HANGS, alone, counted_since, fds};

/// Sends `bytes` and reads until the connection ends; a reset counts as an end.
async fn send(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut got = Vec::new();
    let _: Option<usize> = timeout(HANGS, stream.read_to_end(&mut got)).await.expect("no end").ok();
    got
}

/// Counts the sockets of this process whose local or peer address is `addr`, because other tests open sockets too.
fn sockets(addr: SocketAddr) -> usize {
    let (fds, port) = (fds(), format!(":{:04X}", addr.port()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ours = |row: &Vec<&str>| {
        (row[1].ends_with(&port) || row[2].ends_with(&port)) && fds.contains(&format!("socket:[{}]", row[9]))
    };
    rows.filter(ours).count()
}

/// The first `len` bytes of a ClientHello that declares a greater length.
fn hello(len: usize) -> Vec<u8> {
    let mut bytes = vec![22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    bytes.resize(len, 0x5a);
    bytes
}

#[test]
fn http_without_tls_is_answered_and_garbage_is_not() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let before = Snapshot::now();
        let long = format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 30000\r\n\r\n{}", "x".repeat(30_000));
        for request in ["GET / HTTP/1.1\r\nHost: mill\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*long] {
            let mut stream = TcpStream::connect(server.addr).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut got = String::new();
            timeout(HANGS, stream.read_to_string(&mut got)).await.expect("no end").unwrap();
            let (head, body) = got.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with("HTTP/1.1 400 ") && head.contains(&format!("content-length: {}\r\n", body.len())),
                "{got}"
            );
            // Bytes after the response, such as the rest of a body, cause no reset, which could destroy the response.
            for _ in 0..10 {
                stream.write_all(b"more").await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        for garbage in
            [&b"\0\0\0\0\0\0\0\0"[..], &[0xff; 5000], b"hello\n", &[22, 3, 1, 0xff, 0xff, 1, 1, 1], &[22; 4000]]
        {
            let got = send(server.addr, garbage).await;
            // Record type 21 is an alert.
            assert!(got.is_empty() || got[0] == 21, "{got:?}");
        }
        // A connection without data, such as a health check, is no failed handshake.
        drop(TcpStream::connect(server.addr).await.unwrap());
        let config = client(BOTH, &["http/1.1"]);
        assert_eq!(get(server.addr, &config, "/fine").await, (200, b"fine".to_vec()));
        // A client sees the end of its connection before it is counted.
        let counted = counted_since(&before, |counted| counted.tls_failures >= 8).await;
        assert_eq!((counted.tls_failures, counted.tls_handshakes), (8, 1), "{counted}");
    });
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        // Long enough that the first bytes arrive in time on a busy machine: without any there is no handshake.
        let limit = Duration::from_secs(6);
        let server = Server::limited(IDENTITIES[0].tls(), Limits::default().head_time(limit)).await;
        let before = Snapshot::now();
        let start = Instant::now();
        let slow = async |mut rest: Vec<u8>, step: usize| {
            let mut stream = TcpStream::connect(server.addr).await.unwrap();
            let ended = async {
                let mut byte = [0; 64];
                loop {
                    let next: Vec<u8> = rest.drain(..step.min(rest.len())).collect();
                    if stream.write_all(&next).await.is_err() {
                        return false;
                    }
                    match timeout(Duration::from_millis(20), stream.read(&mut byte)).await {
                        Ok(Ok(1..)) | Err(_) => {}
                        Ok(Ok(0)) => return true,
                        Ok(Err(_)) => return false,
                    }
                }
            };
            timeout(HANGS, ended).await.expect("no end")
        };
        let (_, stopped, silent) = tokio::join!(
            // One byte at a time, a part and then nothing, and nothing at all.
            slow(hello(500), 1),
            slow(hello(100), 100),
            slow(Vec::new(), 0),
        );
        assert!(start.elapsed() >= limit);
        assert!(stopped && silent, "both are closed without a reset");
        let patient = Server::start(IDENTITIES[0].tls()).await;
        assert_eq!(get(patient.addr, &client(BOTH, &["http/1.1"]), "/fine").await.0, 200);
        // The client that sent nothing attempted no handshake.
        assert_eq!(counted_since(&before, |counted| counted.tls_failures >= 2).await.tls_failures, 2);
    });
}

#[test]
fn no_descriptor_is_left() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let config = client(BOTH, &["http/1.1"]);
        // The short limit is for those who exceed it.
        let limits = Limits::default().head_time(Duration::from_millis(300));
        let hasty = Server::limited(IDENTITIES[0].tls(), limits).await;
        let server = Server::start(IDENTITIES[0].tls()).await;
        for _ in 0..5 {
            assert_eq!(get(server.addr, &config, "/kept").await.0, 200);
            send(hasty.addr, b"GET / HTTP/1.1\r\n\r\n").await;
            send(hasty.addr, &[0xff; 100]).await;
            send(hasty.addr, &hello(50)).await;
            let mut leaves = Raw::over(connect(server.addr, &config).await);
            leaves.ask("/large").await;
            leaves.head().await;
        }
        for server in [hasty, server] {
            let addr = server.addr;
            assert!(sockets(addr) > 0, "the listener is open");
            drop(server);
            let gone = async {
                while sockets(addr) > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(HANGS, gone).await.unwrap_or_else(|_| panic!("{} sockets are left", sockets(addr)));
        }
    });
}

/// rustls asserts that it sends one alert: what follows the error of a session must not reach it.
#[test]
fn a_session_that_has_failed_is_not_read_on() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tls, config) = (IDENTITIES[0].tls(), client(BOTH, &[]));
        let accept = async { tls.accept(listener.accept().await.unwrap().0).await.unwrap() };
        let (mut server, mut client) = tokio::join!(accept, connect(addr, &config));
        client.get_mut().0.write_all(&[0xff; 100]).await.unwrap();
        for _ in 0..2 {
            let read = timeout(HANGS, server.read(&mut [0; 10])).await.expect("no end");
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        }
    });
}
