//! Which ways a stream may take: for operators who suspect one of them, and for comparing.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// Which ways the writes of a stream may take. All give the same bytes in the same order; each of them only leaves
/// something out that [`Auto`](Self::Auto) would do, or asks for a ring that is there anyway.
///
/// Set for new streams by the builders of listeners and connectors, and for a live one by
/// [`Handle::set_path`](super::Handle::set_path). A change takes effect with the next write, or the next flush of what waits.
/// What [`copy`](mod@crate::copy) moves takes ways of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoPath {
    /// Each write by the way that wins.
    #[default]
    Auto,
    /// What has gathered leaves by io_uring where the runtime has a ring, even if it is of one stream alone; so do answers.
    /// Files still go by `sendfile`, and long slices of unknown origin at once.
    Uring,
    /// No ring at all: flushes are calls of their own, nothing is sent without a copy, and a receive that the kernel does
    /// by itself ([`Receive::Multishot`](super::Receive::Multishot)) ends with the next read that finds nothing.
    Epoll,
    /// Pieces of files are sent from the memory they are mapped to, by `sendmsg`, which may wait for the disk.
    NoSendfile,
    /// Every write is sent at once, with what waits before it: nothing is gathered.
    NoCork,
}

impl IoPath {
    /// All there are, in the order of their numbers.
    const ALL: [Self; 5] = [Self::Auto, Self::Uring, Self::Epoll, Self::NoSendfile, Self::NoCork];

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
            Self::NoSendfile => "no-sendfile",
            Self::NoCork => "no-cork",
        }
    }
}

impl fmt::Display for IoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for IoPath {
    type Err = io::Error;

    /// Reads the name that [`Display`](fmt::Display) writes; `ErrorKind::InvalidInput` lists them all.
    fn from_str(name: &str) -> io::Result<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is no path of a stream: use one of {names}"))
        })
    }
}

/// The path of one stream, which may be changed at any time by anybody.
#[derive(Debug)]
pub(super) struct PathSwitch(AtomicU8);

impl PathSwitch {
    pub(super) fn new(path: IoPath) -> Self {
        Self(AtomicU8::new(path as u8))
    }

    #[inline]
    pub(super) fn get(&self) -> IoPath {
        // Relaxed: it orders nothing, any write may be the first that sees it.
        IoPath::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn set(&self, path: IoPath) {
        self.0.store(path as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_by_the_names_they_are_written_by() {
        for (n, path) in IoPath::ALL.into_iter().enumerate() {
            assert_eq!(path as usize, n, "the place of {path}");
            assert_eq!(path.to_string().parse::<IoPath>().unwrap(), path);
            let switch = PathSwitch::new(IoPath::Auto);
            switch.set(path);
            assert_eq!(switch.get(), path);
        }
        let error = "sendfile".parse::<IoPath>().unwrap_err().to_string();
        assert_eq!(error, "`sendfile` is no path of a stream: use one of auto, uring, epoll, no-sendfile, no-cork");
    }
}
