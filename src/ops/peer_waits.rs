//! Detects programs that may wait for a peer, perhaps forever.
//!
//! Operations on files of this machine end by themselves. An operation on a pipe, a socket, a terminal or a file served
//! by another process ends only when a peer acts. Programs of the second kind must not use the room of the first kind.
//!
//! | | |
//! |---|---|
//! | operations of `fs::File` and of file bodies | files with offsets: cannot wait |
//! | a chain of renames, links, unlinks | cannot wait |
//! | a chain on a descriptor of the user | may wait, until its type is checked |
//! | a chain that opens a path with `O_CREAT` and `O_EXCL` | a new file: cannot wait |
//! | a chain that opens another path | may wait, until the target of the path is checked |
//!
//! A check costs system calls, so it is postponed until the room of programs that may wait is full, with one exception:
//! an open that creates or truncates runs on a kernel thread, of which a ring has few, and opening a FIFO would block
//! it. Names that are not in the kernel's memory are looked up by a job on the blocking pool.
//!
//! Time limits do not matter here: they end a wait, and never cause one.

use super::open::{Dir, Open};
use super::target::Target;
use crate::sys::flags::OFlags;
use crate::sys::path::{How, NameBuf};
use crate::sys::peer;

#[derive(Debug)]
enum PeerWait {
    On(Target),
    Opens { dir: Dir, path: NameBuf, how: How },
}

impl PeerWait {
    /// Returns whether the wait would block a kernel thread of the ring.
    fn may_hold_a_thread(&self) -> bool {
        matches!(self, Self::Opens { how, .. } if how.has(OFlags::CREATE) || how.has(OFlags::TRUNC))
    }

    /// Checks the target without waiting. Returns whether it may wait; `None` if that is unknown.
    fn check(&self) -> Option<bool> {
        match self {
            Self::On(Target::Fd(fd)) => Some(peer::may_wait(fd.as_ref().as_fd())),
            // A file opened by the chain has an entry of its own.
            Self::On(Target::Opened(_)) => Some(false),
            Self::Opens { dir, path, how } => peer::path_may_wait(dir.at(), path, how),
        }
    }

    /// As [`check`](Self::check), but **waits for the disk** if necessary.
    fn check_blocking(&self) -> bool {
        match self {
            Self::Opens { dir, path, how } => peer::path_may_wait_blocking(dir.at(), path, how),
            Self::On(_) => self.check() != Some(false),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayWait {
    No,
    Yes,
    /// Only [`PeerWaits::check_blocking`] can decide.
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct PeerWaits(Vec<PeerWait>);

impl PeerWaits {
    pub(super) fn of_descriptor(&mut self, target: &Target) {
        self.0.push(PeerWait::On(target.clone()));
    }

    pub(super) fn of_open(&mut self, open: Option<&Open>) {
        let Some((dir, path, how)) = open.map(Open::what) else { return };
        let is_new = how.has(OFlags::CREATE | OFlags::EXCL) || how.has(OFlags::TMPFILE);
        if !is_new {
            self.0.push(PeerWait::Opens { dir: dir.clone(), path: path.to_owned(), how });
        }
    }

    /// Returns whether the program may wait for a peer, as far as is known.
    pub(crate) fn may_wait(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether the program might block a kernel thread of the ring.
    pub(crate) fn may_hold_a_thread(&self) -> bool {
        self.0.iter().any(PeerWait::may_hold_a_thread)
    }

    /// Checks all entries without waiting, and removes those that cannot wait.
    pub(crate) fn check(&mut self) -> MayWait {
        let mut found = MayWait::No;
        self.0.retain(|entry| match entry.check() {
            Some(waits) => {
                found = if waits { MayWait::Yes } else { found };
                waits
            }
            None => {
                found = if found == MayWait::Yes { found } else { MayWait::Unknown };
                true
            }
        });
        found
    }

    /// As [`check`](Self::check), but **waits for the disk** if necessary.
    pub(crate) fn check_blocking(&mut self) {
        self.0.retain(PeerWait::check_blocking);
    }
}
