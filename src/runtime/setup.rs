//! Which way file operations go on a runtime: asked for by a builder or the environment, and reported.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::{env, io};

use super::Turn;
use crate::counters::log;
#[cfg(feature = "uring")]
use crate::sys::uring;
#[cfg(feature = "uring")]
use crate::uring::net::receive::Buffers;

/// Which way operations on files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Io {
    /// Each by the way that wins: what the page cache holds is read at once, operations that can be handed over together
    /// go by io_uring, and one that comes alone goes to the blocking pool where that is no slower.
    #[default]
    Auto,
    /// All by io_uring, as far as the kernel has it. For tests, and to see what it is worth.
    Uring,
    /// None by io_uring: the blocking pool does what would wait. No ring is made.
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
                let message = format!("`{s}` is no way of doing I/O: use auto, uring or epoll");
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
    /// What `MILLSTREAM_IO` asks for.
    fn from_env() -> Self {
        static KEPT: OnceLock<Io> = OnceLock::new();
        *KEPT.get_or_init(|| {
            let value = env::var("MILLSTREAM_IO").unwrap_or_default();
            value.parse().unwrap_or_else(|error: io::Error| {
                // A service must not fall over for it.
                log::unsupported("MILLSTREAM_IO", &error.to_string());
                Self::Auto
            })
        })
    }
}

/// How a runtime drives its files: which way, and what its rings are like. Without one, `MILLSTREAM_IO` decides
/// (`auto`, `uring` or `epoll`) and the rest is as documented here.
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
    #[cfg(feature = "uring")]
    pub(super) ring: uring::Setup,
    #[cfg(feature = "uring")]
    pub(super) registered_buffers: bool,
    #[cfg(feature = "uring")]
    pub(super) receive_buffers: Buffers,
    #[cfg(feature = "uring")]
    pub(super) waiting_jobs: usize,
}

/// Threads of the blocking pool, which has 512, for chains that wait for a peer.
#[cfg(feature = "uring")]
const WAITING_JOBS: usize = 64;

impl Default for DriverBuilder {
    fn default() -> Self {
        Self {
            io: Io::from_env(),
            #[cfg(feature = "uring")]
            ring: uring::Setup::default(),
            #[cfg(feature = "uring")]
            registered_buffers: false,
            #[cfg(feature = "uring")]
            receive_buffers: Buffers::default(),
            #[cfg(feature = "uring")]
            waiting_jobs: WAITING_JOBS,
        }
    }
}

impl DriverBuilder {
    /// What the environment asks for, and else the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which way operations go. The default is `MILLSTREAM_IO`, or [`Io::Auto`].
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    #[cfg(feature = "uring")]
    /// Entries of each ring, rounded up to a power of two between 32 and 4096; 128 by default. There is one ring for
    /// each worker thread that uses files, and its memory, about 50 KiB for 128 entries, counts against
    /// `RLIMIT_MEMLOCK`. Where that is too small the ring gets smaller, down to 32 entries.
    pub fn entries(mut self, entries: u32) -> Self {
        self.ring.entries = entries.clamp(32, 4096).next_power_of_two();
        self
    }

    #[cfg(feature = "uring")]
    /// Most kernel threads that each thread's operations may use where they cannot go on without waiting: for files, and
    /// for everything else. 2 for each core by default, at least 8 for files: more of them contend for the locks of the file
    /// system.
    /// [io_uring_register(2)](https://man7.org/linux/man-pages/man2/io_uring_register.2.html),
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS`, Linux 5.15.
    pub fn workers(mut self, files: u32, others: u32) -> Self {
        self.ring.workers = [files.max(1), others.max(1)];
        self
    }

    #[cfg(feature = "uring")]
    /// Most threads of the blocking pool that are held at a time by chains which may wait for a peer: for a pipe, a socket,
    /// a terminal. 64 by default. They have a quarter of each ring besides; more of them wait until one of these has ended.
    /// Set it below [`max_blocking_threads`](tokio::runtime::Builder::max_blocking_threads), or such chains can keep all
    /// threads from other work.
    pub fn waiting_jobs(mut self, jobs: usize) -> Self {
        self.waiting_jobs = jobs.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    #[cfg(feature = "uring")]
    /// The caller's promise that this runtime is of the current-thread flavour and that the thread which installs this
    /// is the one that runs it to its end. Completions are then worked on only when that thread asks for them
    /// (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1). If the promise is broken, the ring is given up and operations go to
    /// the blocking pool; those that are in flight then end only when the runtime does.
    pub fn single_thread(mut self, single_thread: bool) -> Self {
        self.ring.single_thread = single_thread;
        self
    }

    #[cfg(feature = "uring")]
    /// Registers the larger half of the buffer pool with each ring, so that reads into it and writes from it need not
    /// look up their pages. Off by default: it pins 64 MiB whether they are used or not, which pays with direct I/O only.
    /// Where the limits forbid it, operations do without.
    pub fn registered_buffers(mut self, registered_buffers: bool) -> Self {
        self.registered_buffers = registered_buffers;
        self
    }

    #[cfg(feature = "uring")]
    /// Buffers that the kernel fills for connections whose listener chose
    /// [`Receive::Multishot`](crate::net::Receive::Multishot): how many, rounded up to a power of two of at most 32768, and
    /// the bytes of each, at most 1 MiB. 512 of 4 KiB by default, made when the first such connection is read from, for each
    /// worker thread. What arrives while none is free is read by plain calls.
    pub fn receive_buffers(mut self, count: u16, bytes: u32) -> Self {
        self.receive_buffers = Buffers { count: count.max(1), size: bytes.clamp(64, 1 << 20) };
        self
    }

    /// Sets this up for the runtime it is called on.
    ///
    /// # Errors
    ///
    /// `ErrorKind::AlreadyExists` if the runtime has worked on files already, or something was installed before.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn install(self) -> io::Result<()> {
        let turn = Turn::current();
        let in_use = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the driver of this runtime is in use: install it before the first operation on a file",
        );
        turn.install(self).map_err(|_| in_use)
    }
}

/// Which way the file operations of a runtime go, and why. [`Display`](fmt::Display) says it in words.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    pub(super) io: Io,
    pub(super) rings: Vec<RingInfo>,
    pub(super) refused: Vec<String>,
}

/// A ring that is in use.
#[derive(Clone, Debug)]
pub(super) struct RingInfo {
    pub(super) entries: u32,
    pub(super) flags: Vec<&'static str>,
    pub(super) files: u32,
    pub(super) registered: bool,
}

impl DriverInfo {
    /// What was asked for.
    pub fn io(&self) -> Io {
        self.io
    }

    /// Rings in use, at most one for each worker thread.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Why there is no ring, or why one was given up; `None` if none was refused.
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
                "{} io_uring of {} entries ({}), {} files for chains, {} registered buffers",
                rings.len(),
                first.entries,
                first.flags.join(", "),
                first.files,
                if first.registered { "with" } else { "without" }
            )?,
        }
        if let (Some(reason), false) = (self.reason(), self.rings.is_empty()) {
            write!(f, "; blocking pool for the rest: {reason}")?;
        }
        Ok(())
    }
}

/// The driver of the runtime this is called on.
///
/// # Panics
///
/// Outside of a tokio runtime.
#[track_caller]
pub fn driver_info() -> DriverInfo {
    Turn::current().driver_info()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_are_read_by_name() {
        for io in [Io::Auto, Io::Uring, Io::Epoll] {
            assert_eq!(io.to_string().parse::<Io>().unwrap(), io);
        }
        assert_eq!("".parse::<Io>().unwrap(), Io::Auto);
        assert!("io_uring".parse::<Io>().unwrap_err().to_string().contains("use auto, uring or epoll"));
    }

    #[tokio::test]
    async fn a_driver_is_installed_once_and_before_use() {
        DriverBuilder::new().io(Io::Epoll).entries(100).install().unwrap();
        let error = DriverBuilder::new().install().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(driver_info().to_string(), "blocking pool, as asked for");
    }

    #[test]
    fn entries_are_a_power_of_two_within_bounds() {
        for (asked, got) in [(0, 32), (33, 64), (128, 128), (1 << 20, 4096)] {
            assert_eq!(DriverBuilder::new().entries(asked).ring.entries, got);
        }
    }
}
