//! Code shared by the bench programs: bytes, connections, CPU clocks, turns and tables.
//!
//! Each program has cases, and each case has contenders that do the same work and check it. Contenders take turns, so
//! that other load on the machine affects all of them. Results are medians of the rounds.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part")]

pub mod contest;
pub mod cpus;
pub mod options;
pub mod record;
pub mod server;
pub mod suite;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Number of bytes after which [`noise`] repeats.
pub const PERIOD: usize = (256 << 10) - 5;

/// Returns bytes without repetitions that a check could miss. The period is odd, so swapped, lost or repeated pieces
/// show, unless their length is a multiple of it.
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

/// Returns both ends of a loopback connection with `TCP_NODELAY`.
///
/// Congestion control is `reno`, which every kernel has and every user may select. The machine's default may pace
/// (`bbr`), and then loopback measures the kernel's timers. `MILLSTREAM_BENCH_CONGESTION` selects another.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    set_up(&one);
    set_up(&other);
    (one, other)
}

/// Listens on a free port; the connections are set up like those of [`pair`].
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_up(&listener);
    // `bind` queues 128 connections. A client beyond that waits for a second.
    rustix::net::listen(&listener, 4096).unwrap();
    listener
}

/// Connects `count` times to a [`listener`].
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

/// Keeps this thread, and those it starts, off the server's CPU until the guard is dropped.
pub fn pinned() -> Pinned {
    let before = sched_getaffinity(None).unwrap();
    cpus::pin_load().unwrap();
    Pinned(before)
}

/// CPUs of a thread before it was pinned.
pub struct Pinned(CpuSet);

impl Drop for Pinned {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).unwrap();
    }
}

/// Returns the CPU time of this thread.
pub fn cpu_of_this_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Returns the CPU time of all other threads of this process.
pub fn cpu_of_others() -> Duration {
    cpus::process().saturating_sub(cpu_of_this_thread())
}
