//! Slow readers beside fast ones: memory for their bytes, and their effect on the fast ones.
//!
//! A server in its own process sends 1 MiB a second to each of 100 readers that read 10 KiB a second, and to some that
//! read everything. The records of 1 KiB contain the time of their write. *fixed* is a high mark of 1 MiB and send
//! buffers of 1 MiB; *elastic* is a mark that follows the rates with `Profile::Auto`. Memory is the resident memory of
//! the server at the end; the note is the kernel's, for all TCP sockets of this machine. The run takes 10 s, or
//! `--measurement-time`: the marks need some seconds to settle.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use millstream::net::{self, Profile};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::contest::{By, Case, Goal, Measured};
use crate::common::options::options;
use crate::common::runtime;
use crate::common::suite::Suite;

/// Selects the child; neither cargo nor criterion uses this option.
const CHILD: &str = "--slow-child";
const WAYS: [&str; 2] = ["fixed", "elastic"];

const SLOW: usize = 100;
const FAST: usize = 10;
const RECORD: usize = 1 << 10;
/// Time between two batches of records; there are a hundred a second.
const TICK: Duration = Duration::from_millis(10);
const BATCH: usize = (1 << 20) / 100 / RECORD;

/// Bounds for memory and latency, as shares of those with fixed buffers.
const MEMORY: f64 = 0.31;
const LATENCY: f64 = 0.34;

/// Returns the kind of server if this process is one.
pub(crate) fn child() -> Option<String> {
    let mut args = std::env::args().skip(1);
    if args.next()? == CHILD { args.next() } else { None }
}

/// Returns the nanoseconds of a clock that processes share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Serves until standard input has a line, then prints its resident memory in KiB.
pub(crate) fn serve(way: &str) {
    let fixed = way == "fixed";
    // A pacing congestion control would measure the kernel's timers.
    let builder = net::TcpListener::builder().congestion("reno");
    let builder = match fixed {
        true => builder.high_mark(1 << 20),
        false => builder.adaptive_high_mark(16 << 10..=1 << 20).profile(Profile::Auto),
    };
    runtime().block_on(async {
        let listener = builder.bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let offering = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if fixed {
                    // The kernel doubles the size for its own use.
                    SockRef::from(&stream).set_send_buffer_size(512 << 10).unwrap();
                }
                tokio::spawn(offer(stream));
            }
        });
        tokio::task::spawn_blocking(|| io::stdin().lines().next()).await.unwrap();
        offering.abort();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        println!("{}", resident.split_whitespace().next().unwrap());
    });
    std::process::exit(0);
}

async fn offer(mut stream: net::TcpStream) -> io::Result<()> {
    let mut ticks = tokio::time::interval(TICK);
    let mut record = [0; RECORD];
    loop {
        ticks.tick().await;
        for _ in 0..BATCH {
            record[..8].copy_from_slice(&now().to_ne_bytes());
            stream.write_all(&record).await?;
        }
    }
}

/// Reads records until `end`, each batch after a pause. Returns their number and total latency.
async fn read(addr: SocketAddr, end: Instant, slow: bool) -> (u64, u64) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let (mut record, mut records, mut nanos) = ([0; RECORD], 0, 0);
    while Instant::now() < end {
        if slow {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The server ends when the time is over, which may show here first.
        if stream.read_exact(&mut record).await.is_err() {
            break;
        }
        records += 1;
        nanos += now() - u64::from_ne_bytes(record[..8].try_into().unwrap());
    }
    assert!(records > 0, "nothing came");
    (records, nanos)
}

/// Returns the memory of the server and of the kernel in KiB, and the mean latencies of fast and slow readers in
/// microseconds.
fn measure(way: &str, time: Duration) -> [f64; 4] {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.args([CHILD, way]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.next().expect("the child prints its address").parse().unwrap();
    let (fast, slow, kernel) = runtime().block_on(async {
        let end = Instant::now() + time;
        let start = |slow| move |_| tokio::spawn(read(addr, end, slow));
        let slow: Vec<_> = (0..SLOW).map(start(true)).collect();
        let fast: Vec<_> = (0..FAST).map(start(false)).collect();
        tokio::time::sleep(time).await;
        let kernel = kernel_memory();
        drop(child.stdin.take());
        let mut means = Vec::new();
        for readers in [fast, slow] {
            let (mut records, mut nanos) = (0, 0);
            for reader in readers {
                let (more, longer) = reader.await.unwrap();
                (records, nanos) = (records + more, nanos + longer);
            }
            means.push(nanos as f64 / 1000.0 / records as f64);
        }
        (means[0], means[1], kernel)
    });
    let resident: f64 = lines.next().expect("the child prints its size").parse().unwrap();
    assert!(child.wait().unwrap().success());
    [resident, kernel, fast, slow]
}

/// Returns the memory of all TCP sockets of the machine in KiB.
fn kernel_memory() -> f64 {
    let told = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let tcp = told.lines().find(|line| line.starts_with("TCP:"));
    let pages = tcp.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * rustix::param::page_size() as f64 / 1024.0
}

pub(crate) fn run(suite: &mut Suite) {
    let time = options().seconds.map_or(Duration::from_secs(options().pick(2, 3, 10)), Duration::from_secs_f64);
    let title = format!("{SLOW} slow and {FAST} fast readers, {} s", time.as_secs());
    if !suite.begins(&title) {
        return;
    }
    let results = WAYS.map(|way| measure(way, time));
    let one = |way: usize, figure: usize, note: String| {
        let name = ["fixed buffers of 1 MiB", "millstream, elastic"][way].to_owned();
        Measured { name, cpu: vec![results[way][figure]], wall: Vec::new(), note }
    };
    let goal = |most| [Goal { against: "fixed buffers of 1 MiB", by: By::Cpu, most }];
    let memory = |way: usize| one(way, 0, format!("{:.0} KiB in the kernel", results[way][1]));
    let memory_title = format!("{title}: memory");
    suite.record(
        &Case { goals: &goal(MEMORY), ..Case::new(&memory_title, "KiB resident", 1) },
        vec![memory(0), memory(1)],
    );
    let latency = |way: usize| one(way, 2, format!("{:.0} us for slow readers", results[way][3]));
    let latency_title = format!("{title}: latency");
    suite.record(
        &Case { goals: &goal(LATENCY), ..Case::new(&latency_title, "us, fast readers", 1) },
        vec![latency(0), latency(1)],
    );
}
