//! The received bytes are the sent bytes: between ours, and between Python and HTTP clients.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Request, Response};
use millstream::net::{TcpListener, UnixListener};
use millstream::server::{Limits, serve};
use millstream_frames::{FrameReceiver, FrameSender};

use crate::{connected, frames, soon};
use testkit::HANGS;
use testkit::http::{Answer, Flavour, Raw, boxed, h1, h2, on_both, request, sha256, start, watched, whole};
use testkit::{alone, child, noise, skip};

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shared_frames.py");

#[test]
fn bytes_pass_from_one_to_the_other() {
    on_both(async || {
        let bytes = noise(5_000_000);
        for piece in [1, 1000, 32 << 10, (32 << 10) + 1, 1 << 20, 5_000_000] {
            let (mut sender, mut receiver) = connected(FrameReceiver::builder().frames(3)).await;
            let len = bytes.len().min(piece * 2000);
            let sending = async {
                for piece in bytes[..len].chunks(piece) {
                    sender.send(piece).await.unwrap();
                }
                sender.finish().await.unwrap();
            };
            let receiving = async {
                let mut got = Vec::new();
                while let Some(piece) = receiver.next().await {
                    got.extend_from_slice(&piece.unwrap());
                }
                got
            };
            let ((), got) = tokio::join!(sending, receiving);
            assert!(got == bytes[..len], "pieces of {piece}");
        }
    });
}

/// Ready data is sent as one frame. Pending data does not delay it.
#[test]
fn a_body_is_gathered_until_it_waits() {
    on_both(async || {
        let (mut sender, mut receiver) = connected(FrameReceiver::builder()).await;
        let (feed, fed) = tokio::sync::mpsc::channel::<Bytes>(16);
        let frames = stream::unfold(fed, |mut fed| async move {
            let piece: Bytes = fed.recv().await?;
            Some((Ok::<_, std::io::Error>(Frame::data(piece)), fed))
        });
        let body = StreamBody::new(frames);
        let sending = tokio::spawn(async move {
            let sent = sender.send_body(body).await.unwrap();
            sender.finish().await.unwrap();
            sent
        });
        for word in ["one", "two"] {
            feed.send(word.into()).await.unwrap();
            assert_eq!(receiver.next().await.unwrap().unwrap(), word);
        }
        for word in ["three", "four"] {
            feed.send(word.into()).await.unwrap();
        }
        drop(feed);
        let mut rest = Vec::new();
        while let Some(piece) = receiver.next().await {
            rest.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(rest, b"threefour");
        assert_eq!(sending.await.unwrap(), 15);
    });
}

/// Serves what connects to a socket: `GET` gives the frames of a producer, `PUT` sends the body to a consumer.
async fn service(socket: &Path) -> std::net::SocketAddr {
    let listener = Arc::new(UnixListener::bind(socket).await.unwrap());
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = http.local_addr().unwrap();
    let service = tower::service_fn(move |request: Request<millstream::server::RequestBody>| {
        let listener = Arc::clone(&listener);
        async move {
            let (stream, _) = listener.accept().await?;
            if request.method() == Method::GET {
                return Ok::<Answer, Box<dyn std::error::Error + Send + Sync>>(Response::new(boxed(
                    FrameReceiver::handshake(stream).await?,
                )));
            }
            let mut sender = FrameSender::handshake(stream).await?;
            let sent = sender.send_body(request.into_body()).await?;
            sender.finish().await?;
            Ok(Response::new(boxed(Full::from(sent.to_string()))))
        }
    });
    tokio::spawn(serve(http, service).limits(Limits::default().streaming_requests(|_| true)).into_future());
    addr
}

/// Starts the client in Python, or returns `None` if there is no interpreter.
fn python(args: &[&str], stdin: Stdio, stdout: Stdio) -> Option<Child> {
    match Command::new("python3").arg(PYTHON).args(args).stdin(stdin).stdout(stdout).spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            skip("python3", error);
            None
        }
    }
}

#[test]
fn python_produces_for_http_clients() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let (socket, file) = (dir.path().join("socket"), dir.path().join("file"));
        let addr = service(&socket).await;
        let bytes = noise(3_000_001);
        std::fs::write(&file, &bytes).unwrap();
        for frame in ["1000", "40000", "1000000", "3000001"] {
            for version in [1, 2] {
                let input = std::fs::File::open(&file).unwrap();
                let args = ["produce", socket.to_str().unwrap(), "--frame", frame];
                let Some(mut child) = python(&args, input.into(), Stdio::inherit()) else { return };
                let got = match version {
                    1 => whole(h1(addr).await.send_request(request("/")).await.unwrap()).await.unwrap(),
                    _ => whole(h2(addr).await.send_request(request("/")).await.unwrap()).await.unwrap(),
                };
                assert!(got == bytes, "HTTP/{version}, frames of {frame}: {} bytes", got.len());
                let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
                assert!(ended.success(), "{ended}");
            }
        }
    });
}

#[test]
fn python_consumes_uploads() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let (socket, file) = (dir.path().join("socket"), dir.path().join("file"));
        let addr = service(&socket).await;
        for len in [0, 1, 3_000_001] {
            let output = std::fs::File::create(&file).unwrap();
            let args = ["consume", socket.to_str().unwrap()];
            let Some(mut child) = python(&args, Stdio::null(), output.into()) else { return };
            let bytes = noise(len);
            let mut client = Raw::connect(addr).await;
            client.send(format!("PUT / HTTP/1.1\r\nHost: mill\r\nContent-Length: {len}\r\n\r\n")).await;
            client.send(&bytes).await;
            let head = client.head().await;
            assert_eq!(head.status, 200);
            assert_eq!(client.body(head.content_length()).await.unwrap(), len.to_string().as_bytes());
            let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
            assert!(ended.success(), "{ended}");
            assert!(std::fs::read(&file).unwrap() == bytes, "{len} bytes");
        }
    });
}

/// From one of ours to the other, and to a client by HTTP/1, with many streams at once. Nothing is left of them.
#[test]
fn many_streams_at_once_are_not_mixed() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const STREAMS: usize = 20;
        let bytes: Arc<Vec<u8>> = Arc::new(noise(2_000_000 + STREAMS));
        let source = Arc::clone(&bytes);
        let addr = start(move |request| {
            let bytes = Arc::clone(&source);
            async move {
                let n: usize = request.uri().path()[1..].parse().unwrap();
                let (mut sender, receiver) = connected(FrameReceiver::builder().frames(2)).await;
                tokio::spawn(async move {
                    for piece in bytes[n..][..2_000_000].chunks(100_000) {
                        sender.send(piece).await.unwrap();
                    }
                    sender.finish().await.unwrap();
                });
                Response::new(boxed(receiver))
            }
        })
        .await;
        let gets = (0..STREAMS).map(|n| {
            let bytes = Arc::clone(&bytes);
            async move {
                let got = whole(h1(addr).await.send_request(request(&format!("/{n}"))).await.unwrap()).await.unwrap();
                assert!(sha256(got) == sha256(&bytes[n..][..2_000_000]), "stream {n}");
            }
        });
        tokio::time::timeout(HANGS, futures_util::future::join_all(gets)).await.unwrap();
        soon("no frame is left", || frames() == (0, 0)).await;
    });
}

/// A mapping is not possible everywhere.
#[test]
fn frames_are_read_where_they_cannot_be_mapped() {
    if child::task().is_none() {
        let mut command = child::command("bytes::frames_are_read_where_they_cannot_be_mapped", "mapping");
        child::run(command.env("MILLSTREAM_DISABLE", "mapping"));
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let bytes = noise(1_000_000);
            let (mut sender, receiver) = connected(FrameReceiver::builder()).await;
            let (sent, got) = tokio::join!(sender.send(&bytes[..]), async {
                let mut receiver = receiver;
                let mut got = Vec::new();
                while got.len() < 1_000_000 {
                    got.extend_from_slice(&receiver.next().await.unwrap().unwrap());
                }
                assert_eq!(frames().1, 0, "mapped all the same");
                got
            });
            sent.unwrap();
            assert!(got == bytes);
        });
    });
}

#[test]
fn a_body_is_collected_like_any_other() {
    on_both(async || {
        let (mut sender, receiver) = connected(FrameReceiver::builder()).await;
        let (sent, got) = tokio::join!(
            async {
                sender.send_body(Full::new(Bytes::from_static(b"hello"))).await.unwrap();
                sender.finish().await
            },
            receiver.collect()
        );
        sent.unwrap();
        assert_eq!(got.unwrap().to_bytes(), "hello");
    });
}
