//! The contenders: each does its jobs as a good user of that runtime would write them.
//!
//! All servers have one thread. They are given a listener whose connections inherit `TCP_NODELAY` and the congestion control.

mod compio;
mod millstream;
mod monoio;
mod tokio;
mod tokio_uring;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Bytes an echo server makes room for, far more than a message has: a read that is not filled need not be followed by
/// one that is told to wait.
const ROOM: usize = 16 << 10;

/// Buffer of each direction of a relay that copies, and of a file copy.
const RELAY_BUFFER: usize = 256 << 10;
const FILE_BUFFER: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Echo,
    Relay,
    File,
}

impl Job {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Relay => "relay",
            Self::File => "file",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Echo, Self::Relay, Self::File].into_iter().find(|job| job.name() == name)
    }
}

/// The program of a contender.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Sends back what it receives, on every connection; does not return.
    Echo(fn(TcpListener) -> io::Result<()>),
    /// Connects each connection with the address, and copies both ways until both ends are done; does not return.
    Relay(fn(TcpListener, SocketAddr) -> io::Result<()>),
    /// Copies the first file to the second, which is new.
    File(fn(&Path, &Path) -> io::Result<()>),
}

/// A contender in one job.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// `MILLSTREAM_IO` of its process.
    pub(crate) io: &'static str,
    pub(crate) work: Work,
}

impl Way {
    pub(crate) fn job(&self) -> Job {
        match self.work {
            Work::Echo(_) => Job::Echo,
            Work::Relay(_) => Job::Relay,
            Work::File(_) => Job::File,
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("millstream")
    }

    /// The failure of this one.
    pub(crate) fn problem(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{} by {}: {error}", self.job().name(), self.name))
    }

    /// Those of one job; the first is what ratios are to.
    pub(crate) fn of(job: Job) -> Vec<&'static Self> {
        WAYS.iter().filter(|way| way.job() == job).collect()
    }
}

const fn way(name: &'static str, work: Work) -> Way {
    Way { name, io: "auto", work }
}

const fn ours(name: &'static str, io: &'static str, work: Work) -> Way {
    Way { name, io, work }
}

/// All contenders, job by job.
pub(crate) const WAYS: &[Way] = &[
    way("tokio", Work::Echo(tokio::echo)),
    way("tokio-uring", Work::Echo(tokio_uring::echo)),
    way("monoio", Work::Echo(monoio::echo)),
    way("compio", Work::Echo(compio::echo)),
    way("compio multishot", Work::Echo(compio::echo_multishot)),
    way("millstream", Work::Echo(millstream::echo)),
    way("tokio, 256 KiB buffers", Work::Relay(tokio::relay)),
    way("tokio, 8 KiB buffers", Work::Relay(tokio::relay_by_default)),
    way("tokio-uring", Work::Relay(tokio_uring::relay)),
    way("monoio", Work::Relay(monoio::relay)),
    way("monoio splice", Work::Relay(monoio::relay_spliced)),
    way("compio", Work::Relay(compio::relay)),
    way("compio splice", Work::Relay(compio::relay_spliced)),
    ours("millstream epoll", "epoll", Work::Relay(millstream::relay)),
    ours("millstream uring", "uring", Work::Relay(millstream::relay)),
    way("tokio", Work::File(tokio::file)),
    way("tokio-uring", Work::File(tokio_uring::file)),
    way("monoio", Work::File(monoio::file)),
    way("compio", Work::File(compio::file)),
    ours("millstream epoll", "epoll", Work::File(millstream::file)),
    ours("millstream uring", "uring", Work::File(millstream::file)),
];
