//! Code shared by the bench programs: bytes, connections, CPU clocks, turns and tables.
//!
//! Each program has cases, and each case has contenders that do the same work and check it. Contenders take turns, so
//! that other load on the machine affects all of them. Results are medians of the rounds.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each program uses a part")]

pub mod contest;
pub mod options;
pub mod record;
pub mod server;
pub mod suite;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

pub use measuring::noise::{PERIOD, noise};

use measuring::{cpus, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns both ends of a loopback connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = listener();
    let one = socket::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Listens on a free port.
pub fn listener() -> TcpListener {
    socket::listener().unwrap()
}

/// Connects `count` times to a [`listener`].
pub fn connect(addr: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| socket::connect(addr).unwrap()).collect()
}

/// Raises the limit of open descriptors. Returns the new limit.
pub fn more_files() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
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
