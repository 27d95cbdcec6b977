//! Frames of 1 MiB from another thread, as it would be another process, to an HTTP client: in shared memory, and over a
//! Unix stream.
//!
//! The CPU time is that of the server's thread. The producer writes each frame into new memory, or to the stream. The
//! client reads and compares all bytes.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, mpsc};
use std::thread;

use futures_util::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use millstream::body::from_reader;
use millstream::net::{TcpListener, UnixStream};
use millstream::server::serve;
use millstream_frames::{FrameReceiver, FrameSender};
use tokio_util::io::ReaderStream;

use crate::common::contest::{By, Case, Contender, Goal, Spent};
use crate::common::options::options;
use crate::common::server::spawn;
use crate::common::suite::Suite;
use crate::common::{listener, noise, runtime};

const FRAME: usize = 1 << 20;
/// Bound for our CPU time, as a share of that of a Unix stream.
const OF_STREAM: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
enum Way {
    Shared,
    Ours,
    Stock,
}

fn produce(way: Way, socket: StdUnixStream, frame: &[u8], count: usize) {
    if matches!(way, Way::Shared) {
        return runtime().block_on(async {
            let mut sender = FrameSender::handshake(UnixStream::from_std(socket).unwrap()).await.unwrap();
            for _ in 0..count {
                sender.send(frame).await.unwrap();
            }
            sender.finish().await.unwrap();
        });
    }
    let mut socket = socket;
    for _ in 0..count {
        socket.write_all(frame).unwrap();
    }
}

fn consume(mut client: TcpStream, frame: &[u8], count: usize) {
    client.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").unwrap();
    let mut piece = vec![0; FRAME];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut piece[..1]).unwrap();
        head.push(piece[0]);
    }
    for _ in 0..count {
        client.read_exact(&mut piece).unwrap();
        assert!(piece == frame, "wrong bytes");
    }
}

fn response<B: Body>(len: usize, body: B) -> Result<Response<B>, Infallible> {
    Ok(Response::builder().header("content-length", len).body(body).unwrap())
}

/// Serves one connection, which the client closes.
async fn answer(way: Way, listener: std::net::TcpListener, socket: StdUnixStream, len: usize) {
    let socket = Arc::new(std::sync::Mutex::new(Some(socket)));
    let take = move || socket.lock().unwrap().take().unwrap();
    let tokios = |socket: StdUnixStream| {
        socket.set_nonblocking(true).unwrap();
        tokio::net::UnixStream::from_std(socket).unwrap()
    };
    if matches!(way, Way::Stock) {
        listener.set_nonblocking(true).unwrap();
        let (stream, _) = tokio::net::TcpListener::from_std(listener).unwrap().accept().await.unwrap();
        let service = service_fn(|_: Request<hyper::body::Incoming>| {
            let stream = ReaderStream::with_capacity(tokios(take()), 64 << 10);
            async move { response(len, StreamBody::new(stream.map_ok(Frame::data))) }
        });
        return http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.unwrap();
    }
    let service = tower::service_fn(move |_: Request<millstream::server::RequestBody>| {
        let socket = take();
        async move {
            let body = match way {
                Way::Shared => {
                    let stream = UnixStream::from_std(socket).unwrap();
                    let receiver = FrameReceiver::handshake(stream).await.unwrap();
                    receiver.map_err(io::Error::from).boxed_unsync()
                }
                _ => from_reader(tokios(socket)).boxed_unsync(),
            };
            response(len, body)
        }
    });
    serve(TcpListener::from_std(listener).unwrap(), service).await.unwrap();
}

fn run_once(way: Way, frame: &Arc<Vec<u8>>, count: usize) -> Spent {
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let listener = listener();
    let addr = listener.local_addr().unwrap();
    let (done, ended) = tokio::sync::oneshot::channel::<()>();
    let (report, spent) = mpsc::channel();
    let server = spawn(move || {
        let mut spent = Spent::default();
        spent.on_this_thread(|| {
            runtime().block_on(async {
                // In a task, as servers run.
                let serving = tokio::spawn(answer(way, listener, ours, count * FRAME));
                ended.await.unwrap();
                serving.abort();
            });
        });
        report.send(spent).unwrap();
    });
    let producer = {
        let frame = Arc::clone(frame);
        thread::spawn(move || produce(way, theirs, &frame, count))
    };
    consume(TcpStream::connect(addr).unwrap(), frame, count);
    producer.join().unwrap();
    done.send(()).unwrap();
    server.join().unwrap();
    spent.recv().unwrap()
}

pub(crate) fn run(suite: &mut Suite) {
    let count: usize = options().pick(8, 64, 256);
    let frame = Arc::new(noise(FRAME));
    let goals = ["millstream from_reader, Unix stream", "hyper ReaderStream, Unix stream"].map(|against| Goal {
        against,
        by: By::Cpu,
        most: OF_STREAM,
    });
    let title = "frames of 1 MiB, process to HTTP client";
    let case = Case { operations: Some(1), goals: &goals, ..Case::new(title, "us per MiB", count as u64) };
    suite.run(&case, || {
        let contender = |name, way| {
            let frame = Arc::clone(&frame);
            Contender::new(name, move |operations| {
                let mut all = Spent::default();
                for _ in 0..operations {
                    let spent = run_once(way, &frame, count);
                    all.cpu += spent.cpu;
                    all.wall += spent.wall;
                }
                all
            })
        };
        vec![
            contender("millstream shared frames", Way::Shared),
            contender("millstream from_reader, Unix stream", Way::Ours),
            contender("hyper ReaderStream, Unix stream", Way::Stock),
        ]
    });
}
