//! Misbehaving peers: they read a byte at a time, close their side early, or disconnect.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use millstream::body::FileBody;
use millstream::fs::File;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use testkit::HANGS;
use testkit::http::{BoxError, Raw, boxed, on_both, pages, sha256, start, start_hyper};

/// Waits for a condition, for at most [`HANGS`].
async fn soon(what: &str, fine: impl Fn() -> bool) {
    let since = Instant::now();
    while !fine() {
        assert!(since.elapsed() < HANGS, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_reader_of_single_bytes_behind_a_tiny_send_buffer_gets_them_all() {
    const LEN: usize = 200_000;
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let bytes = pages(LEN);
        std::fs::write(dir.path().join("file"), &bytes).unwrap();
        let file = File::open(dir.path().join("file")).await.unwrap();
        let sent = Bytes::from(bytes.clone());
        let small = |stream: &millstream::net::TcpStream| {
            let socket = SockRef::from(stream);
            socket.set_send_buffer_size(4096).unwrap();
            // The kernel doubles the requested size.
            assert!(socket.send_buffer_size().unwrap() <= 2 * 4096);
        };
        let addr = start_hyper(
            |_| {},
            small,
            move |request| {
                let body = match request.uri().path() {
                    "/file" => boxed(FileBody::new(&file, ..).unwrap()),
                    _ => boxed(Full::new(sent.clone())),
                };
                std::future::ready(Response::new(body))
            },
        )
        .await;
        for path in ["/file", "/memory"] {
            let mut client = Raw::connect_narrow(addr).await;
            client.ask(path).await;
            let head = client.head().await;
            let mut got = client.buffered();
            let mut byte = [0];
            while got.len() < head.content_length() {
                assert_eq!(client.io.read(&mut byte).await.unwrap(), 1, "the end after {} bytes", got.len());
                got.push(byte[0]);
            }
            assert_eq!((got.len(), sha256(got)), (LEN, sha256(&bytes)), "{path}");
        }
    });
}

#[test]
fn the_answer_to_a_peer_that_ended_its_side_is_whole() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let bytes = pages(5 << 20);
        std::fs::write(dir.path().join("file"), &bytes).unwrap();
        let file = File::open(dir.path().join("file")).await.unwrap();
        let sent = Bytes::from(bytes.clone());
        // By default hyper treats the end of the peer's side as the end of the connection.
        let half_close = |builder: &mut hyper::server::conn::http1::Builder| {
            builder.half_close(true);
        };
        let answer = move |request: Request<_>| {
            let body = match request.uri().path() {
                "/file" => boxed(FileBody::new(&file, ..).unwrap()),
                _ => boxed(Full::new(sent.clone())),
            };
            std::future::ready(Response::new(body))
        };
        let addr = start_hyper(half_close, |_| {}, answer).await;
        for path in ["/file", "/memory"] {
            let mut client = Raw::connect_narrow(addr).await;
            client.ask(path).await;
            client.io.shutdown().await.unwrap();
            let head = client.head().await;
            let got = client.body(head.content_length()).await.expect("all of it");
            assert_eq!(sha256(got), sha256(&bytes), "{path}");
            assert_eq!(client.drain().await, b"", "and then the end");
        }
    });
}

#[test]
fn a_peer_that_ended_its_side_never_takes_a_part_for_the_whole() {
    on_both(async || {
        let bytes = pages(5 << 20);
        let sent = Bytes::from(bytes.clone());
        let addr = start(move |_| std::future::ready(Response::new(boxed(Full::new(sent.clone()))))).await;
        // `serve` keeps hyper's default: a half-closed peer cannot be told from a disconnected one, so it counts as
        // gone.
        let mut client = Raw::connect_narrow(addr).await;
        client.ask("/").await;
        client.io.shutdown().await.unwrap();
        if let Ok(head) = client.try_head().await {
            assert_eq!(head.content_length(), bytes.len());
            if let Ok(got) = client.body(bytes.len()).await {
                assert!(got == bytes);
            }
        }
    });
}

/// A body that holds a permit and is always pending.
struct Silent(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Body for Silent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[test]
fn clients_that_leave_before_the_first_byte_give_back_what_the_body_holds() {
    const CLIENTS: usize = 1000;
    on_both(async || {
        let permits = Arc::new(Semaphore::new(CLIENTS));
        let taken = Arc::new(AtomicUsize::new(0));
        // For each client: signals that the handler runs, and learns that the client is gone.
        let (entered, mut entering) = tokio::sync::mpsc::channel::<oneshot::Sender<()>>(1);
        let (held, count) = (Arc::clone(&permits), Arc::clone(&taken));
        let addr = start(move |request| {
            let permit = Arc::clone(&held).try_acquire_owned().expect("as many permits as clients");
            count.fetch_add(1, Ordering::Relaxed);
            let entered = entered.clone();
            async move {
                let (left, leaving) = oneshot::channel();
                entered.send(left).await.unwrap();
                if request.uri().path() == "/handler" {
                    leaving.await.unwrap();
                }
                Response::new(boxed(Silent(permit)))
            }
        })
        .await;
        for n in 0..CLIENTS {
            let mut client = Raw::connect(addr).await;
            client.ask(["/handler", "/body"][n % 2]).await;
            let left = entering.recv().await.unwrap();
            match n % 4 < 2 {
                true => client.reset(),
                false => drop(client),
            }
            // The receiver is gone if hyper has noticed already, or if the body has begun.
            let _ = left.send(());
        }
        soon("a permit is missing", || permits.available_permits() == CLIENTS).await;
        assert_eq!(taken.load(Ordering::Relaxed), CLIENTS);
    });
}
