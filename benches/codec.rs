//! Adapters for other streams than ours, over loopback TCP with `TCP_NODELAY`: where gathering saves, and where it
//! loses.
//!
//! | case | ours | rivals |
//! |---|---|---|
//! | `N x LEN` | [`Writer`], one flush, of `Bytes` or of slices; the same at the end of the turn | `write_all` of each; tokio's `BufWriter`, one flush; `write_vectored` of all by hand |
//! | `echo` | [`Framed`] | read one, write one; tokio-util's `Framed` with `send`, and with `feed` and a flush for each read |
//!
//! A thread reads and compares every byte; CPU time is that of the sending thread. In `echo` a server on its own thread
//! answers 100 connections. Each sends batches of 32 messages and waits for the responses; CPU time is the server's.
//!
//! **Noise**: wall time, on machines without a free core for the other side.

use std::io::{IoSlice, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, SinkExt, StreamExt};
use millstream::codec::{Framed, Writer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio_util::codec::LengthDelimitedCodec;

mod common;
use common::contest::{By, Case, Contender, Goal, Spent};
use common::suite::Suite;
use common::{cpu_of_others, cpu_of_this_thread, noise, runtime};

const KIB: usize = 1 << 10;
const CONNECTIONS: usize = 100;
const BATCH: usize = 32;

/// The other end of a connection: compares the received bytes with a repeated burst, until the connection ends.
struct Sink {
    expected: Arc<AtomicU64>,
    arrived: Arc<Notify>,
}

impl Sink {
    fn start(mut stream: std::net::TcpStream, burst: Vec<u8>) -> Self {
        let (expected, arrived) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (wanted, tell) = (Arc::clone(&expected), Arc::clone(&arrived));
        std::thread::spawn(move || {
            let mut buffer = vec![0; 256 * KIB];
            let (mut total, mut at) = (0, 0);
            loop {
                let n = stream.read(&mut buffer).unwrap();
                if n == 0 {
                    return;
                }
                let mut got = &buffer[..n];
                while !got.is_empty() {
                    let len = got.len().min(burst.len() - at);
                    // Ends the program: figures of wrong bytes are invalid.
                    if got[..len] != burst[at..at + len] {
                        eprintln!("wrong bytes in {at}..{}", at + len);
                        std::process::exit(1);
                    }
                    got = &got[len..];
                    at = (at + len) % burst.len();
                }
                total += n as u64;
                if total == wanted.load(Ordering::Acquire) {
                    tell.notify_one();
                }
            }
        });
        Self { expected, arrived }
    }
}

enum Way {
    Ours(Writer<TcpStream>),
    OursAsSlices(Writer<TcpStream>),
    OursByTurn(Writer<TcpStream>),
    Each(TcpStream),
    Buffered(BufWriter<TcpStream>),
    ByHand(TcpStream),
}

impl Way {
    async fn burst(&mut self, pieces: &[Bytes]) {
        match self {
            Self::Ours(writer) => {
                for piece in pieces {
                    writer.send(piece.clone()).await.unwrap();
                }
                writer.flush().await.unwrap();
            }
            Self::OursAsSlices(writer) => {
                for piece in pieces {
                    writer.write_all(piece).await.unwrap();
                }
                writer.flush().await.unwrap();
            }
            Self::OursByTurn(writer) => {
                for piece in pieces {
                    writer.send(piece.clone()).await.unwrap();
                }
                while writer.queued() > 0 {
                    yield_now().await;
                }
            }
            Self::Each(stream) => {
                for piece in pieces {
                    stream.write_all(piece).await.unwrap();
                }
            }
            Self::Buffered(writer) => {
                for piece in pieces {
                    writer.write_all(piece).await.unwrap();
                }
                writer.flush().await.unwrap();
            }
            Self::ByHand(stream) => {
                let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                let mut left = &mut slices[..];
                while !left.is_empty() {
                    let n = stream.write_vectored(left).await.unwrap();
                    IoSlice::advance_slices(&mut left, n);
                }
            }
        }
    }
}

fn contender<'a>(
    runtime: &'a Runtime,
    pieces: &'a [Bytes],
    name: &'static str,
    way: impl FnOnce(TcpStream) -> Way,
) -> Contender<'a> {
    let _entered = runtime.enter();
    let (ours, theirs) = common::pair();
    ours.set_nonblocking(true).unwrap();
    let mut way = way(TcpStream::from_std(ours).unwrap());
    let sink = Sink::start(theirs, pieces.concat());
    let len = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    let run = move |bursts: u64| {
        sink.expected.fetch_add(len * bursts, Ordering::Release);
        let (start, cpu) = (Instant::now(), cpu_of_this_thread());
        runtime.block_on(async {
            for _ in 0..bursts {
                way.burst(pieces).await;
            }
            sink.arrived.notified().await;
        });
        Spent { wall: start.elapsed(), cpu: cpu_of_this_thread() - cpu }
    };
    Contender::new(name, run)
}

fn bursts(suite: &mut Suite, title: &str, count: usize, len: usize, goals: &[Goal]) {
    // Each has its own memory, like pieces of different origin.
    let all = noise(count * len);
    let pieces: Vec<Bytes> = all.chunks(len).map(Bytes::copy_from_slice).collect();
    let runtime = runtime();
    let all = |stream| Writer::builder(stream).high_mark(4 << 20);
    let contenders = || {
        vec![
            contender(&runtime, &pieces, "millstream Writer", |s| Way::Ours(all(s).build())),
            contender(&runtime, &pieces, "millstream Writer, slices", |s| Way::OursAsSlices(all(s).build())),
            contender(&runtime, &pieces, "millstream Writer, end of turn", |s| {
                Way::OursByTurn(all(s).gather_limit(Duration::from_millis(1)).build())
            }),
            contender(&runtime, &pieces, "write each", Way::Each),
            contender(&runtime, &pieces, "tokio BufWriter", |s| Way::Buffered(BufWriter::new(s))),
            contender(&runtime, &pieces, "floor, write_vectored", Way::ByHand),
        ]
    };
    suite.run(&Case { goals, ..Case::new(title, "CPU us/burst", 1) }, contenders);
}

#[derive(Clone, Copy)]
enum Server {
    Ours,
    One,
    Send,
    Feed,
}

async fn serve(mut stream: TcpStream, server: Server) {
    match server {
        Server::Ours => {
            let mut framed = Framed::new(stream, LengthDelimitedCodec::new());
            while let Some(message) = framed.next().await {
                framed.feed(message.unwrap().freeze()).await.unwrap();
            }
        }
        Server::One => {
            let mut message = vec![0; 4 + 256];
            while stream.read_exact(&mut message[..4]).await.is_ok() {
                let len = u32::from_be_bytes(message[..4].try_into().unwrap()) as usize;
                stream.read_exact(&mut message[4..4 + len]).await.unwrap();
                stream.write_all(&message[..4 + len]).await.unwrap();
            }
        }
        Server::Send => {
            let mut framed = tokio_util::codec::Framed::new(stream, LengthDelimitedCodec::new());
            while let Some(message) = framed.next().await {
                framed.send(message.unwrap().freeze()).await.unwrap();
            }
        }
        Server::Feed => {
            let mut framed = tokio_util::codec::Framed::new(stream, LengthDelimitedCodec::new());
            while let Some(message) = framed.next().await {
                framed.feed(message.unwrap().freeze()).await.unwrap();
                // Messages that have arrived already are answered together.
                while let Some(Some(message)) = framed.next().now_or_never() {
                    framed.feed(message.unwrap().freeze()).await.unwrap();
                }
                SinkExt::<Bytes>::flush(&mut framed).await.unwrap();
            }
        }
    }
}

fn batch() -> Bytes {
    let mut all = BytesMut::new();
    for n in 0..BATCH {
        let len = 64 + n * 37 % 193;
        all.extend_from_slice(&(len as u32).to_be_bytes());
        all.extend_from_slice(&noise(len));
    }
    all.freeze()
}

/// Starts a server on its own thread, which runs until the program ends.
fn start(server: Server) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, server));
            }
        });
    });
    told.recv().unwrap()
}

/// Sends batches on every connection, each after the previous one has returned.
async fn exchange(clients: Vec<TcpStream>, batch: &Bytes, rounds: u64) -> Vec<TcpStream> {
    let tasks = clients.into_iter().map(|mut client| {
        let batch = batch.clone();
        tokio::spawn(async move {
            let mut got = vec![0; batch.len()];
            for _ in 0..rounds {
                client.write_all(&batch).await.unwrap();
                client.read_exact(&mut got).await.unwrap();
                assert!(got == batch, "wrong messages returned");
            }
            client
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(task.await.unwrap());
    }
    clients
}

fn echo(suite: &mut Suite) {
    let runtime = runtime();
    let batch = batch();
    let ways = [
        ("millstream Framed", Server::Ours),
        ("read one, write one", Server::One),
        ("tokio-util Framed, send", Server::Send),
        ("tokio-util Framed, feed", Server::Feed),
    ];
    let contenders = || {
        ways.map(|(name, server)| {
            let addr = start(server);
            let mut clients = runtime.block_on(async {
                let mut clients = Vec::new();
                for _ in 0..CONNECTIONS {
                    let client = TcpStream::connect(addr).await.unwrap();
                    client.set_nodelay(true).unwrap();
                    clients.push(client);
                }
                clients
            });
            let (runtime, batch) = (&runtime, &batch);
            let run = move |rounds: u64| {
                let (start, cpu) = (Instant::now(), cpu_of_others());
                clients = runtime.block_on(exchange(std::mem::take(&mut clients), batch, rounds));
                Spent { wall: start.elapsed(), cpu: cpu_of_others() - cpu }
            };
            Contender::new(name, run)
        })
        .into()
    };
    let goals = [Goal { against: "read one, write one", by: By::Wall, most: 0.14 }];
    let units = (CONNECTIONS * BATCH) as u64;
    let case = Case { goals: &goals, ..Case::new("echo of 64-256 B, 100 connections", "CPU us/message", units) };
    suite.run(&case, contenders);
}

fn main() {
    let mut suite = Suite::new(env!("CARGO_CRATE_NAME"));
    let goal = |by, most| Goal { against: "write each", by, most };
    let many = [goal(By::Cpu, 0.54), goal(By::Wall, 0.70)];
    let scattered = [goal(By::Wall, 0.30)];
    let shapes: [(_, _, _, &[Goal]); 7] = [
        ("1 x 1 KiB", 1, KIB, &[]),
        ("8 x 1 KiB", 8, KIB, &scattered),
        ("100 x 1 KiB", 100, KIB, &many),
        ("1000 x 1 KiB", 1000, KIB, &[]),
        ("100 x 16 B", 100, 16, &[]),
        ("100 x 256 B", 100, 256, &[]),
        ("16 x 16 KiB", 16, 16 * KIB, &[]),
    ];
    for (title, count, len, goals) in shapes {
        bursts(&mut suite, title, count, len, goals);
    }
    echo(&mut suite);
    suite.finish();
}
