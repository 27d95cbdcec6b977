//! tonic on our listener against tonic on its own, which sets `TCP_NODELAY`: server-streaming calls, read by tonic's
//! client.
//!
//! | case | streams | connections | messages per second and stream |
//! |---|---|---|---|
//! | many, one | 100 | 1 | 100 |
//! | many, each | 100 | 100 | 100 |
//! | few, one | 10 | 1 | 1000 |
//! | few, each | 10 | 10 | 1000 |
//! | full | 10 | 1 | unlimited |
//!
//! All streams tick at the same moments. A message has 100 or 300 bytes, because h2 gathers frames below 256 bytes and
//! writes larger ones one by one. The server runs on its own CPU, on the runtime that `#[tokio::main]` builds for one
//! CPU, or on a current-thread runtime. The load is the same for both and runs on the main thread.
//!
//! The figures are the CPU time of the server for each message. The other time is the latency of messages, from their
//! due time until the client has decoded them: p99 of each round. With `full`, latency shows only the amount of
//! buffered bytes.
//!
//! Our streams are wrapped, so that tonic accepts them without the feature `tonic-014`.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use measuring::statistics::quantile;
use millstream::metrics::Snapshot;
use millstream::net;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic::transport::{Endpoint, Server as Tonic};

use super::ticks::{Ticks, WatchRequest, now, watch};
use crate::common::contest::{By, Case, Goal, Measured};
use crate::common::options::options;
use crate::common::server::Server;
use crate::common::suite::Suite;
use crate::common::{cpu_of_others, runtime};

/// Maximum of our time as a share of the time with tonic's own listener, where streams share a connection.
const BAR: f64 = 0.60;

struct Shape {
    name: &'static str,
    streams: usize,
    connections: usize,
    hz: u32,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "many, one", streams: 100, connections: 1, hz: 100 },
    Shape { name: "many, each", streams: 100, connections: 100, hz: 100 },
    Shape { name: "few, one", streams: 10, connections: 1, hz: 1000 },
    Shape { name: "few, each", streams: 10, connections: 10, hz: 1000 },
    Shape { name: "full", streams: 10, connections: 1, hz: 0 },
];

async fn stock(listener: TcpListener) -> io::Result<()> {
    let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
    Tonic::builder().serve_with_incoming(Ticks, incoming).await.map_err(io::Error::other)
}

/// A stream of ours with tonic's trait.
struct Wrapped(net::TcpStream);

impl Connected for Wrapped {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Wrapped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wrapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn ours(listener: TcpListener) -> io::Result<()> {
    let incoming = net::TcpListener::from_std(listener)?.incoming().map_ok(Wrapped);
    Tonic::builder().serve_with_incoming(Ticks, incoming).await.map_err(io::Error::other)
}

#[derive(Clone, Copy, Default)]
struct Round {
    /// Of the server, per message.
    cpu: Duration,
    p50: Duration,
    p99: Duration,
    rate: f64,
    /// Calls of our streams per message.
    writes: f64,
}

/// Reads at least `messages` of all streams, after some that do not count.
async fn read(addr: SocketAddr, shape: &Shape, payload: u32, messages: usize) -> Round {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    let mut channels = Vec::new();
    for _ in 0..shape.connections {
        channels.push(endpoint.connect().await.unwrap());
    }
    let late = Arc::new(Mutex::new(Vec::with_capacity(messages * 2)));
    let read = Arc::new(Semaphore::new(0));
    let asked = WatchRequest { hz: shape.hz, payload };
    let mut tasks = tokio::task::JoinSet::new();
    for channel in channels.iter().cycle().take(shape.streams).cloned() {
        let (late, read) = (Arc::clone(&late), Arc::clone(&read));
        tasks.spawn(async move {
            let mut stream = watch(channel, asked).await.unwrap();
            let mut expected = 0;
            while let Some(tick) = stream.message().await.unwrap() {
                assert!(tick.number == expected && tick.payload.len() == payload as usize);
                expected += 1;
                late.lock().unwrap().push(now().saturating_sub(tick.due_at));
                read.add_permits(1);
            }
        });
    }
    let wait = async |messages: usize| read.acquire_many(messages as u32).await.unwrap().forget();
    wait(messages / 4 + shape.streams).await;
    late.lock().unwrap().clear();
    // Messages received since then are not counted either.
    read.forget_permits(usize::MAX >> 4);
    let (cpu, calls, start) = (cpu_of_others(), Snapshot::now(), Instant::now());
    wait(messages).await;
    let (cpu, calls, wall) = (cpu_of_others().saturating_sub(cpu), Snapshot::now().since(&calls), start.elapsed());
    let late: Vec<f64> = std::mem::take(&mut *late.lock().unwrap()).into_iter().map(|nanos| nanos as f64).collect();
    tasks.shutdown().await;
    let each = late.len() as u32;
    let percentile = |share| Duration::from_nanos(quantile(&late, share) as u64);
    Round {
        cpu: cpu / each,
        p50: percentile(0.5),
        p99: percentile(0.99),
        rate: f64::from(each) / wall.as_secs_f64(),
        writes: calls.writes as f64 / f64::from(each),
    }
}

fn compare(suite: &mut Suite, shape: &Shape, payload: u32, flavour: &str) {
    let title = format!("grpc {}, {payload} B, {flavour}", shape.name);
    if !suite.begins(&title) {
        return;
    }
    let messages: usize = options().pick(200, 1000, 4000) * if shape.hz == 0 { 20 } else { 1 };
    let make: fn() -> Runtime = match flavour {
        "multi_thread" => {
            || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
        }
        _ => runtime,
    };
    let mut measured = ["millstream", "tonic"].map(|name| Measured { name: name.to_owned(), ..Measured::default() });
    for _ in 0..options().pick(1, 3, 5) {
        for measured in &mut measured {
            let is_ours = measured.name == "millstream";
            let server = if is_ours { Server::start_on(make, ours) } else { Server::start_on(make, stock) };
            let round = runtime().block_on(read(server.addr, shape, payload, messages));
            // In microseconds.
            measured.cpu.push(round.cpu.as_secs_f64() * 1e6);
            measured.wall.push(round.p99.as_secs_f64() * 1e6);
            measured.note = format!("p50 {:.0} us, {:.0}/s", round.p50.as_secs_f64() * 1e6, round.rate);
            if is_ours {
                measured.note += &format!(", {:.3} writes each", round.writes);
            }
        }
    }
    let goal = |by| Goal { against: "tonic", by, most: BAR };
    let goals = [goal(By::Cpu), goal(By::Wall)];
    // With a connection per stream there is little to gather, and h2 gathers full streams.
    let goals = &goals[..if shape.name.ends_with(", one") { 2 } else { 0 }];
    suite.record(&Case { goals, other: "p99 us", ..Case::new(&title, "CPU us/message", 1) }, measured.into());
}

pub(crate) fn run(suite: &mut Suite) {
    for shape in &SHAPES {
        for payload in [100, 300] {
            compare(suite, shape, payload, "multi_thread");
        }
    }
    // The other runtime is compared where a call carries the most messages.
    for shape in SHAPES.iter().filter(|shape| ["many, one", "full"].contains(&shape.name)) {
        compare(suite, shape, 300, "current_thread");
    }
}
