//! Driver options of a runtime, set by a builder or the environment, and the report on its driver.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::{env, io};

use crate::counters::log;
#[cfg(feature = "fs")]
use crate::sys::uring;

/// Mode of file operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Io {
    /// Selects the best way for each operation: cached data is read at once, concurrent operations run on io_uring, and
    /// a single operation runs on the blocking pool unless that is slower.
    #[default]
    Auto,
    /// All operations on files that the kernel supports run on io_uring, except those on an open file that may wait for
    /// a server or another process. For tests and comparisons.
    Uring,
    /// No io_uring: operations that would wait run on the blocking pool. No ring is created.
    Epoll,
}

impl FromStr for Io {
    type Err = io::Error;

    fn from_str(s: &str) -> io::Result<Self> {
        match s {
            "" | "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "epoll" => Ok(Self::Epoll),
            _ => {
                let message = format!("`{s}` is not a way of doing I/O: use auto, uring or epoll");
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}

impl Io {
    fn from_env() -> Self {
        static KEPT: OnceLock<Io> = OnceLock::new();
        *KEPT.get_or_init(|| {
            let value = env::var("MILLSTREAM_IO").unwrap_or_default();
            value.parse().unwrap_or_else(|error: io::Error| {
                // An invalid value must not stop a service.
                log::unsupported("MILLSTREAM_IO", &error.to_string());
                Self::Auto
            })
        })
    }
}

/// Options of a runtime's file driver and of its rings. Without a builder, `MILLSTREAM_IO` (`auto`, `uring` or `epoll`)
/// and the defaults below apply.
///
/// ```
/// use millstream::runtime::{DriverBuilder, Io, driver_info};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// DriverBuilder::new().io(Io::Epoll).install()?;
/// assert_eq!(driver_info().rings(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing changes until it is installed"]
pub struct DriverBuilder {
    pub(super) io: Io,
    #[cfg(feature = "fs")]
    pub(super) ring: uring::Setup,
    #[cfg(feature = "fs")]
    pub(super) waiting_jobs: usize,
}

/// Threads of the blocking pool, out of 512, for chains that wait for a peer.
#[cfg(feature = "fs")]
const WAITING_JOBS: usize = 64;

impl Default for DriverBuilder {
    fn default() -> Self {
        Self {
            io: Io::from_env(),
            #[cfg(feature = "fs")]
            ring: uring::Setup::default(),
            #[cfg(feature = "fs")]
            waiting_jobs: WAITING_JOBS,
        }
    }
}

impl DriverBuilder {
    /// Creates a builder with the values of the environment, or else the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how operations run; by default `MILLSTREAM_IO`, or [`Io::Auto`].
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    #[cfg(feature = "fs")]
    /// Sets the number of entries of each ring, rounded up to a power of two between 32 and 4096; 128 by default. Each
    /// worker thread that uses files has one ring. Its memory, about 50 KiB for 128 entries, counts against
    /// `RLIMIT_MEMLOCK`; if that is too small, the ring has fewer entries, at least 32.
    pub fn entries(mut self, entries: u32) -> Self {
        self.ring.entries = entries.clamp(32, 4096).next_power_of_two();
        self
    }

    #[cfg(feature = "fs")]
    /// Sets the maximum number of kernel threads of each worker thread for blocking operations on files, at least 1. 2
    /// per core by default, and at least 8; more of them contend for the locks of the file system.
    /// [io_uring_register(2)](https://man7.org/linux/man-pages/man2/io_uring_register.2.html),
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`, Linux 5.15.
    pub fn file_workers(mut self, threads: u32) -> Self {
        self.ring.workers[0] = threads.max(1);
        self
    }

    #[cfg(feature = "fs")]
    /// Sets the maximum number of kernel threads of each worker thread for blocking operations on everything else than
    /// [files](Self::file_workers), at least 1; 2 per core by default.
    pub fn other_workers(mut self, threads: u32) -> Self {
        self.ring.workers[1] = threads.max(1);
        self
    }

    #[cfg(feature = "fs")]
    /// Sets the maximum number of blocking-pool threads for chains that may wait for a peer (a pipe, a socket, a
    /// terminal); 64 by default. Such chains can also use a quarter of each ring; further ones wait for one to end. Set
    /// it below [`max_blocking_threads`](tokio::runtime::Builder::max_blocking_threads), or such chains can occupy all
    /// threads.
    pub fn waiting_jobs(mut self, jobs: usize) -> Self {
        self.waiting_jobs = jobs.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    #[cfg(feature = "fs")]
    /// Declares that this is a current-thread runtime and that the installing thread runs it to its end. The kernel
    /// then processes completions only when that thread enters the ring (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1).
    /// Until that thread has run an operation there is no ring, and operations of other threads use the blocking pool.
    /// If another thread runs the runtime, the ring is closed: later operations use the blocking pool, those in flight
    /// end with the runtime.
    pub fn single_thread(mut self, single_thread: bool) -> Self {
        self.ring.single_thread = single_thread;
        self
    }

    pub(super) fn is_single_thread(&self) -> bool {
        #[cfg(feature = "fs")]
        return self.ring.single_thread;
        #[cfg(not(feature = "fs"))]
        false
    }
}

/// State of a runtime's file driver. [`Display`](fmt::Display) prints it as text.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    pub(super) io: Io,
    pub(super) rings: Vec<RingInfo>,
    pub(super) refused: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct RingInfo {
    pub(super) entries: u32,
    pub(super) flags: Vec<&'static str>,
    pub(super) files: u32,
}

impl DriverInfo {
    /// Returns the requested mode.
    pub fn io(&self) -> Io {
        self.io
    }

    /// Returns the number of rings in use, at most one per worker thread.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Returns the reason why there is no ring, or why one was closed; `None` if none was refused.
    pub fn reason(&self) -> Option<&str> {
        self.refused.first().map(String::as_str)
    }
}

impl fmt::Display for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.rings[..], self.reason()) {
            ([], None) if self.io == Io::Epoll => f.write_str("blocking pool, as asked for")?,
            ([], None) => f.write_str("no file operation has asked for a ring yet")?,
            ([], Some(reason)) => write!(f, "blocking pool: {reason}")?,
            (rings @ [first, ..], _) => write!(
                f,
                "{} io_uring of {} entries ({}), {} files for chains",
                rings.len(),
                first.entries,
                first.flags.join(", "),
                first.files
            )?,
        }
        if let (Some(reason), false) = (self.reason(), self.rings.is_empty()) {
            write!(f, "; blocking pool for the rest: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
