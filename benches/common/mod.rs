//! What the benches share: bytes, connections, CPU clocks, and comparing by turns.
#![allow(dead_code, unreachable_pub, reason = "each bench uses a part")]

pub mod closed_loop;
pub mod contest;
pub mod cpus;
pub mod server;

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Whether the benches run as tests: each case once. By the rule that criterion has.
pub fn is_test() -> bool {
    let given = |option: &str| std::env::args().any(|arg| arg == option);
    given("--test") || !given("--bench")
}

/// After how many bytes [`noise`] repeats.
pub const PERIOD: usize = (256 << 10) - 5;

/// Bytes that repeat nowhere a check would notice. The period is odd, so that pieces that were swapped, lost or sent
/// twice show, unless they are a multiple of it long.
pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1du64;
    let mut bytes: Vec<u8> = (0..len.min(PERIOD))
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect();
    while bytes.len() < len {
        bytes.extend_from_within(..PERIOD.min(len - bytes.len()));
    }
    bytes
}

/// Both ends of a connection over loopback; `TCP_NODELAY` is set on both.
///
/// Their congestion control is `reno`, which every kernel has and every user may choose: the machine's may be one that
/// paces (`bbr`), and then loopback measures the kernel's timers. `MILLSTREAM_BENCH_CONGESTION` names another.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    set_up(&one);
    set_up(&other);
    (one, other)
}

/// A listener on a free port whose connections are set up like those of [`pair`].
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_up(&listener);
    // `bind` lets 128 wait, and who comes then waits for a second.
    rustix::net::listen(&listener, 4096).unwrap();
    listener
}

/// Connections to a [`listener`].
pub fn connect(addr: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let stream = TcpStream::connect(addr).unwrap();
        set_up(&stream);
        stream
    };
    (0..count).map(connect).collect()
}

fn set_up(socket: &impl AsFd) {
    let congestion = std::env::var("MILLSTREAM_BENCH_CONGESTION").unwrap_or("reno".to_owned());
    let socket = socket2::SockRef::from(socket);
    socket.set_tcp_nodelay(true).unwrap();
    socket.set_tcp_congestion(congestion.as_bytes()).unwrap();
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// CPU time this thread has used.
pub fn cpu_of_this_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// CPU time all other threads of this process have used.
pub fn cpu_of_others() -> Duration {
    cpus::process().saturating_sub(cpu_of_this_thread())
}

/// The CPU time that one operation of each contender takes, in microseconds: `run(contender, operations)` does them and
/// says how long they took. The contenders take turns, so that what else the machine does meets all of them; each gets
/// the median of its rounds.
pub fn by_turns(contenders: usize, operations: u64, mut run: impl FnMut(usize, u64) -> Duration) -> Vec<f64> {
    let run = |contender, operations| [run(contender, operations)];
    all_by_turns(contenders, operations, run).into_iter().map(|[median]| median).collect()
}

/// As [`by_turns`], for several times that are measured together; each has a median of its own.
pub fn all_by_turns<const N: usize>(
    contenders: usize,
    operations: u64,
    mut run: impl FnMut(usize, u64) -> [Duration; N],
) -> Vec<[f64; N]> {
    let (rounds, operations) = if is_test() { (1, 1) } else { (9, operations) };
    let mut micros = vec![[const { Vec::new() }; N]; contenders];
    for _ in 0..rounds {
        for (contender, micros) in micros.iter_mut().enumerate() {
            let spent = run(contender, operations);
            micros.iter_mut().zip(spent).for_each(|(micros, spent)| {
                micros.push(spent.as_secs_f64() * 1e6 / operations as f64);
            });
        }
    }
    micros.into_iter().map(|micros| micros.map(median)).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A line of a table.
pub struct Row {
    pub name: String,
    /// In microseconds.
    pub cpu: f64,
    pub note: String,
}

/// A table of CPU time for each operation; the ratio is to the first row, ours unless it was filtered out.
pub fn table(title: &str, operation: &str, rows: &[Row]) -> String {
    let mut text = format!("\n{title:<34} {:>14} {:>7}\n", format!("CPU us/{operation}"), "ratio");
    let ours = rows.first().map_or(1.0, |row| row.cpu);
    for Row { name, cpu, note } in rows {
        writeln!(text, "  {name:<32} {cpu:>14.2} {:>7.2}  {note}", cpu / ours).unwrap();
    }
    text
}

/// A line that says whether a figure is what is asked for; none in a test run.
pub fn bar(what: &str, ratio: f64, most: f64) -> String {
    if is_test() {
        return String::new();
    }
    let verdict = if ratio <= most { "met" } else { "MISSED" };
    format!("{verdict:<7}{what}: {ratio:.2}, at most {most:.2}\n")
}
