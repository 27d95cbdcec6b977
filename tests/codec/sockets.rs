//! Real sockets: short writes, slow readers, resets, and TLS.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use millstream::codec::{Reader, Shape, Writer};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use testkit::http::{narrow, on_both, sha256};
use testkit::noise;

/// Returns a connection with the smallest buffers, and its other end.
async fn tight() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_send_buffer_size(4096).unwrap();
    let theirs = narrow(listener.local_addr().unwrap()).await;
    (listener.accept().await.unwrap().0, theirs)
}

#[test]
fn short_writes_go_on_at_the_right_byte() {
    on_both(async || {
        for (shape, by_turn) in [
            (Shape::Vectored, false),
            (Shape::Flat, false),
            (Shape::Auto, false),
            (Shape::Auto, true),
            (Shape::Flat, true),
        ] {
            let (ours, mut theirs) = tight().await;
            let builder = Writer::builder(ours).shape(shape).high_mark(100_000);
            let mut writer = match by_turn {
                true => builder.gather_limit(Duration::from_millis(1)).build(),
                false => builder.build(),
            };
            let all = Bytes::from(noise(1 << 20));
            let sent = all.clone();
            let writing = tokio::spawn(async move {
                let mut at = 0;
                let mut turn = 0;
                while at < sent.len() {
                    let len = [1, 700, 5000, 40, 13_000][turn % 5].min(sent.len() - at);
                    match turn % 2 {
                        0 => writer.send(sent.slice(at..at + len)).await.unwrap(),
                        _ => writer.write_all(&sent[at..at + len]).await.unwrap(),
                    }
                    at += len;
                    turn += 1;
                }
                writer.shutdown().await.unwrap();
            });
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            writing.await.unwrap();
            assert_eq!(sha256(&got), sha256(&all), "{shape:?}, {by_turn}: {} bytes", got.len());
        }
    });
}

#[test]
fn a_slow_reader_stops_the_writer_at_its_limit() {
    on_both(async || {
        const LIMIT: usize = 64 << 10;
        let (ours, mut theirs) = tight().await;
        let mut writer = Writer::builder(ours).high_mark(LIMIT).gather_limit(Duration::from_millis(1)).build();
        let piece = Bytes::from(noise(1000));
        let mut most = 0;
        // Until the connection is full.
        while tokio::time::timeout(Duration::from_millis(50), writer.send(piece.clone())).await.is_ok() {
            most = most.max(writer.queued());
            assert!(most <= LIMIT + 1000, "{most} bytes wait");
        }
        let waiting = writer.queued();
        assert!((LIMIT / 16..=LIMIT + 1000).contains(&waiting), "{waiting}");
        let reading = tokio::spawn(async move {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            got.len()
        });
        for _ in 0..1000 {
            writer.send(piece.clone()).await.unwrap();
            assert!(writer.queued() <= LIMIT + 1000);
        }
        writer.shutdown().await.unwrap();
        drop(writer);
        assert_eq!(reading.await.unwrap() % 1000, 0);
    });
}

#[test]
fn a_reset_in_the_middle_is_an_error_soon_and_lets_go() {
    on_both(async || {
        for by_turn in [false, true] {
            let (ours, mut theirs) = tight().await;
            let builder = Writer::builder(ours);
            let mut writer = match by_turn {
                true => builder.gather_limit(Duration::from_millis(1)).build(),
                false => builder.build(),
            };
            let kept = Bytes::from(noise(100_000));
            let reset = async {
                theirs.read_exact(&mut [0; 5000]).await.unwrap();
                SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
                drop(theirs);
            };
            let write = async {
                loop {
                    writer.send(kept.slice(..)).await?;
                    writer.flushed().await?;
                }
            };
            let (written, ()): (std::io::Result<()>, _) =
                tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(write, reset) }).await.unwrap();
            let kind = written.unwrap_err().kind();
            assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind), "{kind:?}");
            assert_eq!(writer.queued(), 0);
            assert!(kept.is_unique(), "the queue was dropped");
            assert_eq!(writer.write(b"more").await.unwrap_err().kind(), kind);
        }
    });
}

/// The writer offers everything at once, and the kernel accepts it: 1024 pieces are one call.
#[test]
fn pipes_and_unix_sockets_take_many_pieces() {
    on_both(async || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let all = noise(600 * 1024);
        let pieces = Bytes::from(all.clone());
        tokio::spawn(async move {
            let mut writer = Writer::builder(ours).high_mark(1 << 20).build();
            for piece in pieces.chunks(600) {
                writer.push(pieces.slice_ref(piece)).unwrap();
            }
            writer.shutdown().await.unwrap();
        });
        let mut reader = Reader::vectored(theirs);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        assert_eq!(sha256(got), sha256(all));
    });
}
