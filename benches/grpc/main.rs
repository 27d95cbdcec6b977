//! tonic on our listener against tonic on its own, which sets `TCP_NODELAY`: server-streaming calls, read by tonic's
//! client.
//!
//! | part | streams | connections | messages a second of each |
//! |---|---|---|---|
//! | many, one | 100 | 1 | 100 |
//! | many, each | 100 | 100 | 100 |
//! | few, one | 10 | 1 | 1000 |
//! | few, each | 10 | 10 | 1000 |
//! | full | 10 | 1 | as many as are taken |
//!
//! All streams tick at the same moments. A message has 100 or 300 bytes, because h2 puts small frames together (less
//! than 256 bytes) and writes larger ones one by one. The server runs on a CPU of its own, on the runtime that
//! `#[tokio::main]` makes for one CPU (*multi*), or on a current-thread runtime (*current*); the load, which is the
//! same for both, is the main thread.
//!
//! **Look at** CPU time of the server for each message, and at how late messages are, from when they were due to when
//! the client has decoded them: the median of nine interleaved rounds of a second, p50 and p99 in each. With `full`
//! lateness is only how much is in the buffers on the way, so no bar is set for it.
//!
//! `cargo bench --features tonic --bench grpc -- many full` runs those parts; `multi`, `current`, `100 B` and `300 B`
//! choose as well.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::metrics::Snapshot;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server as Tonic};

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/grpc_stream/ticks.rs"]
mod ticks;

use common::server::Server;
use common::{Row, all_by_turns, bar, cpu_of_others, is_test, runtime, table};
use ticks::{Ticks, WatchRequest, now, watch};

/// What of tonic's own listener's time ours may take.
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

async fn ours(listener: TcpListener) -> io::Result<()> {
    let incoming = millstream::net::TcpListener::from_std(listener)?.incoming();
    Tonic::builder().serve_with_incoming(Ticks, incoming).await.map_err(io::Error::other)
}

/// What a round has come to.
#[derive(Clone, Copy, Default)]
struct Round {
    /// Of the server, for each message.
    cpu: Duration,
    p50: Duration,
    p99: Duration,
    /// The time in all, for each message.
    wall: Duration,
    /// Calls of our streams for each message.
    writes: f64,
}

/// Reads at least so many messages of all streams, after some that nobody counts.
async fn read(addr: SocketAddr, shape: &Shape, payload: u32, messages: usize) -> Round {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    let mut channels = Vec::new();
    for _ in 0..shape.connections {
        channels.push(endpoint.connect().await.unwrap());
    }
    let late = Arc::new(Mutex::new(Vec::with_capacity(messages * 2)));
    let read = Arc::new(Semaphore::new(0));
    let asked = WatchRequest { hz: shape.hz, payload, count: 0 };
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
    // Those that have come since are not counted either.
    read.forget_permits(usize::MAX >> 4);
    let (cpu, calls, start) = (cpu_of_others(), Snapshot::now(), std::time::Instant::now());
    wait(messages).await;
    let (cpu, calls, wall) = (cpu_of_others().saturating_sub(cpu), Snapshot::now().since(&calls), start.elapsed());
    let mut late = std::mem::take(&mut *late.lock().unwrap());
    tasks.shutdown().await;
    late.sort_unstable();
    let each = late.len() as u32;
    let percentile = |part: f64| Duration::from_nanos(late[(late.len() as f64 * part) as usize]);
    Round {
        cpu: cpu / each,
        p50: percentile(0.5),
        p99: percentile(0.99),
        wall: wall / each,
        writes: calls.writes as f64 / f64::from(each),
    }
}

fn compare(shape: &Shape, payload: u32, flavour: &'static str) -> String {
    const NAMES: [&str; 2] = ["tonic", "millstream"];
    let messages: usize = if is_test() { 200 } else { 10_000 * if shape.hz == 0 { 20 } else { 1 } };
    let make: fn() -> Runtime = match flavour {
        "multi" => || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
        _ => runtime,
    };
    let mut writes = 0.0;
    let measured = all_by_turns(NAMES.len(), 1, |contender, _| {
        let server = match NAMES[contender] {
            "tonic" => Server::start_on(make, stock),
            _ => Server::start_on(make, ours),
        };
        let round = runtime().block_on(read(server.addr, shape, payload, messages));
        if NAMES[contender] == "millstream" {
            writes = round.writes;
        }
        // In seconds for microseconds below, because they are nanoseconds.
        [round.cpu, round.p50, round.p99, round.wall].map(|time| time * 1000)
    });
    let [tonic, millstream] = measured[..] else { unreachable!("one for each name") };
    let rows = NAMES.iter().zip([tonic, millstream]).map(|(name, [cpu, p50, p99, wall])| {
        let (cpu, p50, p99, rate) = (cpu / 1e3, p50 / 1e3, p99 / 1e3, 1e9 / wall);
        let calls = if *name == "tonic" { String::new() } else { format!(", {writes:.3} writes each") };
        Row { name: (*name).to_owned(), cpu, note: format!("p50 {p50:>7.0} us p99 {p99:>7.0} us {rate:>8.0}/s{calls}") }
    });
    let title = format!("{}: {}, {payload} B", shape.name, flavour);
    let mut text = table(&title, "message", &rows.collect::<Vec<_>>());
    text += &bar(&format!("{title}, CPU"), millstream[0] / tonic[0], BAR);
    if shape.hz > 0 {
        text += &bar(&format!("{title}, p99"), millstream[2] / tonic[2], BAR);
    }
    text
}

fn main() {
    common::cpus::pin_load().unwrap();
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |kinds: &[&str], name: &str| {
        let mut of_this_kind =
            filters.iter().filter(|filter| kinds.iter().any(|kind| kind.starts_with(&***filter))).peekable();
        of_this_kind.peek().is_none() || of_this_kind.any(|filter| name.starts_with(&**filter))
    };
    let mut tables = String::new();
    for flavour in ["multi", "current"] {
        for shape in &SHAPES {
            for (payload, name) in [(100, "100 B"), (300, "300 B")] {
                let chosen = chosen(&["multi", "current"], flavour)
                    && chosen(&SHAPES.each_ref().map(|shape| shape.name), shape.name)
                    && chosen(&["100 B", "300 B"], name);
                if chosen {
                    tables += &compare(shape, payload, flavour);
                }
            }
        }
    }
    if is_test() {
        println!("\n(a test run, one round of little: the figures mean nothing)");
    }
    println!("{tables}");
}
