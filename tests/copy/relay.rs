//! Relays: both directions at once.

use std::time::Duration;

use millstream::copy::{CopyPath, copy, copy_bidirectional};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::ends::{Plain, ours, tcp};
use super::noise;
use testkit::http::{on_both, sha256};

/// A stream to relay, and its other end.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send + Sized + 'static {
    type Peer: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    async fn both() -> (Self, Self::Peer);
}

impl Duplex for TcpStream {
    type Peer = Self;
    async fn both() -> (Self, Self) {
        tcp().await
    }
}

impl Duplex for UnixStream {
    type Peer = Self;
    async fn both() -> (Self, Self) {
        Self::pair().unwrap()
    }
}

impl Duplex for millstream::net::TcpStream {
    type Peer = TcpStream;
    async fn both() -> (Self, TcpStream) {
        ours().await
    }
}

impl Duplex for tokio::io::DuplexStream {
    type Peer = Self;
    async fn both() -> (Self, Self) {
        tokio::io::duplex(3000)
    }
}

/// Transfers bytes in both directions, ends one, continues the other, and ends that.
async fn exchange<A: Duplex, B: Duplex>(up: usize, down: usize) {
    let ((mut a, client), (mut b, server)) = (A::both().await, B::both().await);
    let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
    let client = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(client);
        let send = async {
            write.write_all(noise(up)).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, received) = tokio::join!(send, read.read_to_end(&mut got));
        received.unwrap();
        got
    });
    let (mut read, mut write) = tokio::io::split(server);
    let mut got = Vec::new();
    let (sent, received) = tokio::join!(write.write_all(noise(down)), read.read_to_end(&mut got));
    sent.unwrap();
    received.unwrap();
    assert_eq!(sha256(&got), sha256(noise(up)));
    // The other direction is still open.
    write.write_all(b"after the end of the other direction").await.unwrap();
    write.shutdown().await.unwrap();
    let (there, back) = relay.await.unwrap().unwrap();
    let got = client.await.unwrap();
    assert_eq!((there.bytes, back.bytes), (up as u64, down as u64 + 36));
    assert!(got[..down] == *noise(down) && got[down..] == *b"after the end of the other direction");
}

#[test]
fn bytes_go_both_ways_and_ends_one_at_a_time() {
    on_both(|| async {
        for (up, down) in [(0, 0), (0, 5), (100, 0), (20_000, 3 << 20), (3 << 20, 3 << 20)] {
            exchange::<TcpStream, TcpStream>(up, down).await;
            exchange::<TcpStream, UnixStream>(up, down).await;
            exchange::<UnixStream, millstream::net::TcpStream>(up, down).await;
            exchange::<millstream::net::TcpStream, millstream::net::TcpStream>(up, down).await;
            exchange::<millstream::net::TcpStream, TcpStream>(up, down).await;
        }
        exchange::<tokio::io::DuplexStream, TcpStream>(200_000, 200_000).await;
        exchange::<millstream::net::TcpStream, tokio::io::DuplexStream>(200_000, 200_000).await;
    });
}

#[test]
fn small_messages_are_answered_and_pumped() {
    on_both(|| async {
        const ROUNDS: u64 = 200;
        let ((mut a, mut client), (mut b, mut server)) = (TcpStream::both().await, TcpStream::both().await);
        let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
        let echo = tokio::spawn(async move {
            let mut message = [0; 64];
            while server.read_exact(&mut message).await.is_ok() {
                server.write_all(&message).await.unwrap();
            }
        });
        for round in 0..ROUNDS {
            let message = [round as u8; 64];
            client.write_all(&message).await.unwrap();
            let mut got = [0; 64];
            client.read_exact(&mut got).await.unwrap();
            assert_eq!(got, message);
        }
        drop(client);
        let (there, back) = relay.await.unwrap().unwrap();
        echo.await.unwrap();
        for report in [there, back] {
            assert_eq!((report.bytes, report.path), (64 * ROUNDS, CopyPath::Pump));
            // One read and one write each, and the end.
            assert_eq!(report.syscalls, 2 * ROUNDS + 1, "{report:?}");
        }
    });
}

#[test]
fn a_flood_is_spliced_in_few_calls() {
    if testkit::lacks("splice") {
        return;
    }
    on_both(|| async {
        const LEN: usize = 10 << 20;
        let ((mut a, mut client), (mut b, mut server)) = (TcpStream::both().await, TcpStream::both().await);
        let send = tokio::spawn(async move { client.write_all(noise(LEN)).await.map(|()| drop(client)) });
        let receive = tokio::spawn(async move {
            let mut all = Vec::new();
            server.read_to_end(&mut all).await.map(|_| all)
        });
        let (there, _) = copy_bidirectional(&mut a, &mut b).await.unwrap();
        send.await.unwrap().unwrap();
        assert!(receive.await.unwrap().unwrap() == noise(LEN));
        assert_eq!((there.bytes, there.path), (LEN as u64, CopyPath::Splice), "{there:?}");
        // 8 KiB at a time would need 2560 calls; the amount per call depends on the machine.
        assert!(there.syscalls < 1280, "{there:?}");
    });
}

/// Sockets with the smallest buffers.
#[test]
fn short_writes_lose_and_repeat_nothing() {
    on_both(|| async {
        const LEN: usize = 600_000;
        let ((mut a, mut client), (mut b, mut server)) = (TcpStream::both().await, TcpStream::both().await);
        SockRef::from(&b).set_send_buffer_size(4096).unwrap();
        let send = tokio::spawn(async move { client.write_all(noise(LEN)).await.map(|()| drop(client)) });
        SockRef::from(&server).set_recv_buffer_size(8192).unwrap();
        let receive = tokio::spawn(async move {
            // Nothing is read until nothing more arrives, so the relay has met a full socket.
            let (mut arrived, mut same) = (0, 0);
            while arrived == 0 || same < 20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let now = rustix::io::ioctl_fionread(&server).unwrap();
                same = if now == arrived { same + 1 } else { 0 };
                arrived = now;
            }
            let (mut all, mut piece) = (Vec::new(), [0; 1777]);
            loop {
                match server.read(&mut piece).await.unwrap() {
                    0 => return all,
                    n => all.extend_from_slice(&piece[..n]),
                }
            }
        });
        let (there, _) = copy_bidirectional(&mut a, &mut b).await.unwrap();
        send.await.unwrap().unwrap();
        assert!(there.waits > 0, "{there:?}");
        let got = receive.await.unwrap();
        assert_eq!(got.len(), LEN);
        assert_eq!(sha256(&got), sha256(noise(LEN)));
    });
}

/// If the reader stops, the sender stops after the capacity of the sockets and one pipe.
#[test]
fn a_reader_that_stops_stops_the_sender() {
    on_both(|| async {
        let ((mut a, mut client), (mut b, mut server)) = (TcpStream::both().await, TcpStream::both().await);
        for socket in [SockRef::from(&a), SockRef::from(&server)] {
            socket.set_recv_buffer_size(64 << 10).unwrap();
        }
        for socket in [SockRef::from(&client), SockRef::from(&b)] {
            socket.set_send_buffer_size(64 << 10).unwrap();
        }
        let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
        let mut sent = 0;
        // Until nothing has moved for a while: every wait here ends with a movement.
        while let Ok(n) = tokio::time::timeout(Duration::from_millis(300), client.write(noise(64 << 10))).await {
            sent += n.unwrap();
            assert!(sent < 4 << 20, "nothing holds it up");
        }
        assert!(sent > 0);
        let mut got = 0;
        drop(tokio::spawn(async move {
            client.shutdown().await.unwrap();
            client.read_to_end(&mut Vec::new()).await
        }));
        let mut piece = vec![0; 64 << 10];
        loop {
            match server.read(&mut piece).await.unwrap() {
                0 => break,
                n => got += n,
            }
        }
        assert_eq!(got, sent);
        drop(server);
        assert_eq!(relay.await.unwrap().unwrap().0.bytes, sent as u64);
    });
}

#[test]
fn what_was_written_before_the_relay_comes_first() {
    on_both(|| async {
        let ((mut a, mut client), (mut b, mut server)) =
            (millstream::net::TcpStream::both().await, millstream::net::TcpStream::both().await);
        // Gathered, so not sent yet.
        b.write_all(b"one ").await.unwrap();
        b.write_all(b"two ").await.unwrap();
        let send = tokio::spawn(async move { client.write_all(noise(1 << 20)).await.map(|()| drop(client)) });
        let receive = tokio::spawn(async move {
            let mut all = Vec::new();
            server.read_to_end(&mut all).await.map(|_| all)
        });
        copy_bidirectional(&mut a, &mut b).await.unwrap();
        send.await.unwrap().unwrap();
        let got = receive.await.unwrap().unwrap();
        assert!(got[..8] == *b"one two " && got[8..] == *noise(1 << 20));
    });
}

#[test]
fn what_was_written_before_a_file_comes_first() {
    on_both(|| async {
        for len in [1000, 1 << 20] {
            let (mut to, server) = ours().await;
            let got = super::ends::collect(server);
            to.write_all(b"one ").await.unwrap();
            to.write_all(b"two ").await.unwrap();
            let mut from = tokio::fs::File::from_std(super::ends::file(noise(len)));
            copy(&mut from, &mut to).await.unwrap();
            to.write_all(b"three").await.unwrap();
            drop(to);
            let got = got.await.unwrap().unwrap();
            assert!(got[..8] == *b"one two " && got[8..8 + len] == *noise(len) && got[8 + len..] == *b"three");
        }
    });
}

#[test]
fn the_types_of_the_ends_do_not_matter() {
    on_both(|| async {
        let ((a, mut client), (b, mut server)) = (TcpStream::both().await, TcpStream::both().await);
        let mut a = Both(Plain(a));
        let mut b = b;
        let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
        client.write_all(noise(100_000)).await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert!(got == noise(100_000));
        drop(server);
        let (there, _) = relay.await.unwrap().unwrap();
        assert_eq!((there.bytes, there.path), (100_000, CopyPath::Pump));
    });
}

struct Both(Plain<TcpStream>);

impl AsyncRead for Both {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Both {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.0.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0.0).poll_shutdown(cx)
    }
}
