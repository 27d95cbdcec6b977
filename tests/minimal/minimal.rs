//! Listeners, streams and gathering without any feature.

#![cfg(test)]

use std::io::IoSlice;

use millstream::net::{SendStrategy, TcpListener, TcpStream, UnixListener, UnixStream};
use millstream::{Capabilities, Support};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Returns `len` bytes without a period.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

/// Sends `sent` in vectored writes of many lengths, and returns what comes back from a server that echoes it.
async fn echoed<S, C>(server: S, client: C, sent: Vec<u8>) -> Vec<u8>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let echo = tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(server);
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let (mut reader, mut writer) = tokio::io::split(client);
    let send = tokio::spawn(async move {
        let (mut rest, mut len) = (&sent[..], 1);
        while !rest.is_empty() {
            len = len * 7 % 40_009 + 1;
            let (head, tail) = rest[..len.min(rest.len())].split_at(len.min(rest.len()) / 3);
            let n = writer.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]).await.unwrap();
            rest = &rest[n..];
        }
        writer.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).await.unwrap();
    send.await.unwrap();
    echo.await.unwrap();
    got
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_echoed_over_tcp_and_unix_sockets() {
    let sent = bytes(3_000_000);
    for &strategy in SendStrategy::ALL {
        let listener = TcpListener::builder().send_strategy(strategy).bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert!(echoed(server, client, sent.clone()).await == sent, "{strategy}");

        let path = std::env::temp_dir().join(format!("millstream-minimal-{}", std::process::id()));
        let listener = UnixListener::builder().send_strategy(strategy).bind(&path).await.unwrap();
        let client = UnixStream::connect(&path).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert!(echoed(server, client, sent.clone()).await == sent, "{strategy}");
    }
}

#[tokio::test]
async fn small_writes_are_gathered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let handle = server.handle();
    for _ in 0..100 {
        server.write_all(b"a piece ").await.unwrap();
    }
    let mut got = [0; 800];
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(got, b"a piece ".repeat(100)[..]);
    let stats = handle.stats().unwrap();
    assert_eq!((stats.frames, stats.sent), (100, 800));
    assert!(stats.writes <= 2, "{stats:?}");
    drop(server);
    assert_eq!(client.read(&mut got).await.unwrap(), 0);
}

#[test]
fn the_missing_ring_is_explained() {
    let Support::No(reason) = Capabilities::get().io_uring() else { panic!("there is no ring in this build") };
    assert!(reason.contains("feature `fs`"), "{reason}");
}
