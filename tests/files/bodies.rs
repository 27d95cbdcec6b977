//! Bodies that panic, that consist of several slices, or that wait long between frames; and upgraded connections.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::net::{TcpListener, TcpStream};
use millstream::server::RequestBody;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};

use testkit::http::{Answer, Raw, boxed, h1, h2, on_both, pages, request, sha256, start, whole};
use testkit::noise;

type Frames = mpsc::Receiver<Bytes>;

/// Returns a body whose frames are sent through a channel.
fn events(frames: Frames) -> Answer {
    let frames = stream::unfold(frames, async |mut frames| {
        let frame = frames.recv().await?;
        Some((Ok::<_, io::Error>(Frame::data(frame)), frames))
    });
    Response::new(boxed(StreamBody::new(frames)))
}

async fn data(answer: &mut Response<Incoming>, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        let frame = answer.body_mut().frame().await.expect("no end").unwrap();
        got.extend_from_slice(&frame.into_data().unwrap());
    }
    got
}

/// Starts a server of event streams: each request takes the next channel.
async fn start_events() -> (SocketAddr, mpsc::Sender<Frames>) {
    let (streams, next) = mpsc::channel::<Frames>(8);
    let next = std::sync::Arc::new(Mutex::new(next));
    let addr = start(move |_| {
        let next = std::sync::Arc::clone(&next);
        async move { events(next.lock().await.recv().await.unwrap()) }
    })
    .await;
    (addr, streams)
}

#[test]
fn an_event_arrives_while_its_stream_stays_open_and_idle() {
    on_both(async || {
        let (addr, streams) = start_events().await;
        for protocol in ["h1", "h2"] {
            let (sender, frames) = mpsc::channel(1);
            streams.send(frames).await.unwrap();
            let mut answer = match protocol {
                "h1" => h1(addr).await.send_request(request("/")).await.unwrap(),
                _ => h2(addr).await.send_request(request("/")).await.unwrap(),
            };
            // The last of these fill every buffer between server and client.
            for len in [1, 40, 255, 256, 3000, 16 << 10, (16 << 10) + 1, 70_000, 1 << 20, 5 << 20, 7] {
                let event = Bytes::from(noise(len));
                sender.send(event.clone()).await.unwrap();
                assert!(data(&mut answer, len).await == event, "{len} bytes over {protocol}");
            }
        }
    });
}

#[test]
fn a_written_byte_leaves_without_another_write_or_a_timer() {
    on_both(async || {
        // The gather limit is longer than any test.
        let listener =
            TcpListener::builder().gather_limit(Duration::from_secs(3600)).bind("127.0.0.1:0").await.unwrap();
        let mut theirs = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut ours, _) = listener.accept().await.unwrap();
        for len in [1, 1000, 60_000, 300_000, 4 << 20] {
            let sent = noise(len);
            let expected = sent.clone();
            let writer = tokio::spawn(async move {
                ours.write_all(&sent).await.unwrap();
                ours
            });
            let mut got = vec![0; len];
            theirs.read_exact(&mut got).await.unwrap();
            assert!(got == expected, "{len}");
            ours = writer.await.unwrap();
        }
    });
}

/// Returns a body of `k` events and a panic.
fn bomb(k: usize) -> Answer {
    let frames = stream::unfold(0, move |n| async move {
        tokio::task::yield_now().await;
        assert!(n < k, "expected panic of the body");
        Some((Ok::<_, io::Error>(Frame::data(Bytes::from(format!("tick {n}\n")))), n + 1))
    });
    Response::new(boxed(StreamBody::new(Box::pin(frames))))
}

#[test]
fn a_body_that_panics_takes_nobody_with_it() {
    on_both(async || {
        let (streams, next) = mpsc::channel::<Frames>(8);
        let next = std::sync::Arc::new(Mutex::new(next));
        let addr = start(move |request| {
            let next = std::sync::Arc::clone(&next);
            async move {
                match request.uri().path().strip_prefix("/bomb/") {
                    Some(k) => bomb(k.parse().unwrap()),
                    None => events(next.lock().await.recv().await.unwrap()),
                }
            }
        })
        .await;
        let mut bystanders = Vec::new();
        let (mut one, mut two) = (h1(addr).await, h2(addr).await);
        for over_one in [true, false] {
            let (sender, frames) = mpsc::channel(1);
            streams.send(frames).await.unwrap();
            let answer = match over_one {
                true => one.send_request(request("/events")).await,
                false => two.send_request(request("/events")).await,
            };
            bystanders.push((sender, answer.unwrap()));
        }
        for k in [0, 1, 2, 17, 100] {
            let path = format!("/bomb/{k}");
            let mut victim = h1(addr).await;
            if let Ok(answer) = victim.send_request(request(&path)).await {
                assert!(whole(answer).await.is_err(), "a panic must not look like the end of the body");
            }
            assert!(victim.ready().await.is_err(), "its connection is gone");
            if let Ok(answer) = two.send_request(request(&path)).await {
                assert!(whole(answer).await.is_err(), "a panic must not look like the end of the body");
            }
            for (sender, answer) in &mut bystanders {
                let event = Bytes::from(format!("still here after {k}"));
                sender.send(event.clone()).await.unwrap();
                assert_eq!(data(answer, event.len()).await, event);
            }
        }
    });
}

type Three = Chain<Bytes, Chain<Bytes, Bytes>>;

/// Slices whose `chunks_vectored` returns only the first, as the default implementation does.
struct Shy(VecDeque<Bytes>);

impl Buf for Shy {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |first| first)
    }

    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            let first = &mut self.0[0];
            let step = n.min(first.len());
            first.advance(step);
            n -= step;
            if first.is_empty() {
                self.0.pop_front();
            }
        }
    }
}

/// Returns `3 * n` pieces of memory of every origin, with sizes around every limit.
async fn pieces(file: &File, n: usize) -> Vec<Bytes> {
    const SIZES: [usize; 11] = [1, 300, 2047, 2048, 5000, 16 << 10, 16_385, 70_000, 262_144, 300_000, 17];
    let noise = Bytes::from(noise(2 << 20));
    let mut all = Vec::new();
    for i in 0..3 * n {
        let len = SIZES[(i * 7 + i / 3) % SIZES.len()];
        let at = (i * 10_007) % (1 << 20);
        all.push(match i % 3 {
            0 => noise.slice(at..at + len),
            1 => {
                let mut lease = millstream::buf::lease(len);
                lease.extend_from_slice(&noise[at..at + len]);
                lease.freeze()
            }
            _ => {
                let mut body = FileBody::new(file, at as u64..).unwrap();
                let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
                frame.slice(..len)
            }
        });
    }
    all
}

fn three(pieces: &[Bytes]) -> Three {
    pieces[0].clone().chain(pieces[1].clone().chain(pieces[2].clone()))
}

fn shy(pieces: &[Bytes]) -> Shy {
    Shy(pieces.iter().cloned().collect())
}

/// Returns a body with a frame of every three pieces, which is pending after every seventh frame.
fn in_threes<D: Buf + Send + 'static>(
    pieces: &[Bytes],
    join: fn(&[Bytes]) -> D,
) -> impl Body<Data = D, Error = io::Error> + Send + use<D> {
    let frames: Vec<_> = pieces.chunks(3).map(join).enumerate().collect();
    let frames = stream::unfold(frames.into_iter(), async |mut frames| {
        let (n, frame) = frames.next()?;
        if n % 7 == 6 {
            tokio::task::yield_now().await;
        }
        Some((Ok(Frame::data(frame)), frames))
    });
    StreamBody::new(Box::pin(frames))
}

async fn start_ours<B>(make: impl Fn() -> B + Clone + Send + 'static) -> SocketAddr
where
    B: Body<Data: Send, Error = io::Error> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |_: Request<RequestBody>| ready(Ok::<_, Infallible>(Response::new(make()))));
    tokio::spawn(millstream::server::serve(listener, service).into_future());
    addr
}

/// Serves the same with tokio's stream and hyper's adapter.
async fn start_stock<B>(make: impl Fn() -> B + Clone + Send + 'static) -> SocketAddr
where
    B: Body<Data: Send, Error = io::Error> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let make = make.clone();
            let service = service_fn(move |_| ready(Ok::<_, Infallible>(Response::new(make()))));
            tokio::spawn(
                async move { http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok() },
            );
        }
    });
    addr
}

async fn mapped() -> (File, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), pages(3 << 20)).unwrap();
    (File::open(dir.path().join("file")).await.unwrap(), dir)
}

#[test]
fn bodies_of_several_slices_keep_their_order() {
    on_both(async || {
        let (file, _dir) = mapped().await;
        let pieces = pieces(&file, 70).await;
        let expected = sha256(pieces.concat());
        let addr = start_ours(move || in_threes(&pieces, three)).await;
        let answer = h1(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(sha256(whole(answer).await.unwrap()), expected, "h1");
        let answer = h2(addr).await.send_request(request("/")).await.unwrap();
        assert_eq!(sha256(whole(answer).await.unwrap()), expected, "h2");
    });
}

/// Returns whether `bytes` arrive from `addr` unchanged, over HTTP/1.
async fn in_order(addr: SocketAddr, bytes: &[u8]) -> bool {
    match h1(addr).await.send_request(request("/")).await {
        Ok(answer) => whole(answer).await.is_ok_and(|got| sha256(got) == sha256(bytes)),
        Err(_) => false,
    }
}

#[test]
fn slices_that_a_body_hides_are_no_worse_off_than_with_stock_hyper() {
    // https://github.com/hyperium/hyper/issues/3650
    on_both(async || {
        let (file, _dir) = mapped().await;
        let pieces = pieces(&file, 10).await;
        let bytes = pieces.concat();
        let one_frame = {
            let pieces = pieces.clone();
            move || http_body_util::Full::new(shy(&pieces)).map_err(|never| match never {})
        };
        let many_frames = move || in_threes(&pieces, shy);
        let stock = (
            in_order(start_stock(one_frame.clone()).await, &bytes).await,
            in_order(start_stock(many_frames.clone()).await, &bytes).await,
        );
        let ours = (
            in_order(start_ours(one_frame).await, &bytes).await,
            in_order(start_ours(many_frames.clone()).await, &bytes).await,
        );
        println!("in order, one frame and many: stock {stock:?}, ours {ours:?}");
        assert!(stock.0 && ours.0, "with one frame there is nothing to confuse");
        assert!(ours.1 || !stock.1, "stock hyper keeps the order, and this crate does not");
        let answer = h2(start_ours(many_frames).await).await.send_request(request("/")).await.unwrap();
        assert_eq!(sha256(whole(answer).await.unwrap()), sha256(bytes), "h2");
    });
}

#[test]
fn an_upgraded_connection_echoes_every_byte() {
    on_both(async || {
        let addr = start(async |mut request| {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                // hyper returns our stream and the bytes that it has read too far.
                let parts = upgrade.await.unwrap().downcast::<TcpStream>().unwrap();
                let mut io = parts.io;
                io.write_all(&parts.read_buf).await.unwrap();
                let (mut from, mut to) = tokio::io::split(io);
                tokio::io::copy(&mut from, &mut to).await.unwrap();
                to.shutdown().await.unwrap();
            });
            let mut answer = Response::new(boxed(http_body_util::Empty::new()));
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
            answer.headers_mut().insert(header::CONNECTION, "upgrade".parse().unwrap());
            answer
        })
        .await;
        let bytes = noise(2 << 20);
        let mut client = Raw::connect(addr).await;
        let head = "GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        // The first bytes of the new protocol arrive with the request for it.
        client.send([head.as_bytes(), &bytes[..300]].concat()).await;
        assert_eq!(client.head().await.status, 101);
        assert!(client.body(300).await.unwrap() == bytes[..300]);
        let Raw { io, .. } = client;
        let (mut from, mut to) = io.into_split();
        let sent = bytes.clone();
        let writer = tokio::spawn(async move {
            let mut rest = &sent[300..];
            for n in 0.. {
                let (piece, after) = rest.split_at(rest.len().min([1, 40, 3000, 20_000, 100_000][n % 5]));
                to.write_all(piece).await.unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            to.shutdown().await.unwrap();
        });
        let mut got = bytes[..300].to_vec();
        from.read_to_end(&mut got).await.unwrap();
        writer.await.unwrap();
        assert_eq!(sha256(got), sha256(bytes));
    });
}
