//! TLS record sizes on the wire.

use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream::net::CountedIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use testkit::http::{on_both, sha256};

/// A connection that records the received bytes.
struct Tapped {
    stream: TcpStream,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Tapped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.seen.lock().unwrap().extend_from_slice(&buf.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Returns the sizes of the records in `bytes`, each with its header of type, version and length (RFC 8446 §5.1).
fn sizes(mut bytes: &[u8]) -> Vec<usize> {
    let mut sizes = Vec::new();
    while let [kind, 3, 3, high, low, rest @ ..] = bytes {
        assert_eq!(*kind, 23, "application data");
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        sizes.push(5 + len);
        bytes = &rest[len..];
    }
    assert_eq!(bytes, [0; 0], "whole records");
    sizes
}

const SMALL: usize = 1400;
const FULL: usize = 16 << 10;

#[test]
fn records_are_small_while_a_connection_is_young_or_was_idle_and_full_later() {
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        for version in BOTH {
            for alpn in ["http/1.1", "h2"] {
                let seen = Arc::default();
                let tapped = Tapped { stream: TcpStream::connect(server.addr).await.unwrap(), seen: Arc::clone(&seen) };
                let mut stream = shake(&client(&[version], &[alpn]), tapped).await.unwrap();
                if alpn == "h2" {
                    // The first HTTP/2 frames may share a read with the last handshake record.
                    let mut h2 = testkit::http::h2_over(stream).await;
                    let answer = h2.send_request(testkit::http::request("/large")).await.unwrap();
                    let got = testkit::http::whole(answer).await.unwrap();
                    assert_eq!(sha256(got), sha256(&server.bytes));
                    let seen = seen.lock().unwrap();
                    // Frames have at most 16 KiB and share records with their headers.
                    assert!(seen.len() > LARGE && seen.len() < LARGE + LARGE / 20);
                    continue;
                }
                // In TLS 1.3, tickets come after the handshake, before the first response.
                let mut raw = Raw::over(&mut stream);
                assert_eq!(raw.get("/fine").await.1, b"fine");
                seen.lock().unwrap().clear();

                let (status, got) = raw.get("/large").await;
                assert_eq!((status, sha256(got)), (200, sha256(&server.bytes)));
                let first = sizes(&std::mem::take(&mut *seen.lock().unwrap()));
                let young = first.iter().take_while(|&&size| size <= SMALL).count();
                let young_bytes: usize = first[..young].iter().sum();
                assert!((60 << 10..80 << 10).contains(&young_bytes), "{young} small records, {young_bytes} bytes");
                let full = first[young..].iter().filter(|&&size| size > FULL).count();
                // More than half, because a stall of a second makes records small again.
                assert!(full * 2 > first.len() - young, "{full} full of {}", first.len() - young);

                tokio::time::sleep(Duration::from_millis(1100)).await;
                assert_eq!(raw.get("/kept").await.1.len(), KEPT);
                let second = sizes(&std::mem::take(&mut *seen.lock().unwrap()));
                let small = second.iter().take_while(|&&size| size <= SMALL).map(|size| size - 5).sum::<usize>();
                assert!(small >= 64 << 10, "{small} bytes in small records after a pause");
            }
        }
    });
}

#[test]
fn a_read_takes_all_records_that_have_arrived() {
    on_both(async || {
        let tls = IDENTITIES[0].tls();
        for version in BOTH {
            let config = client(&[version], &["http/1.1"]);
            // In memory, where all that is written has arrived. A ring receives what a socket has, one piece after another.
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (stream, client) = tokio::join!(tls.accept(CountedIo::new(ours)), shake(&config, theirs));
            let (mut stream, mut client) = (stream.unwrap(), client.unwrap());
            for piece in ["one ", "two ", "three"] {
                client.write_all(piece.as_bytes()).await.unwrap();
                client.flush().await.unwrap();
            }
            client.get_mut().0.shutdown().await.unwrap();
            let mut got = [0; 100];
            assert_eq!(stream.read(&mut got[..6]).await.unwrap(), 6, "as far as there is room");
            assert_eq!(stream.read(&mut got[6..]).await.unwrap(), 7, "all that is left");
            assert_eq!(&got[..13], b"one two three");
            let error = stream.read(&mut got).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "an end without close_notify is seen");
        }
    });
}
