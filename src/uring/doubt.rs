//! Detects programs that may wait for a peer, perhaps forever.
//!
//! Operations on files of this machine end by themselves. An operation on a pipe, a socket, a terminal or a file served
//! by another process ends when a peer lets it. Programs of the second kind must not take the room of the first.
//!
//! | | |
//! |---|---|
//! | operations of `fs::File` and of file bodies | files with offsets: no doubt |
//! | a chain of renames, links, unlinks | no doubt |
//! | a chain on a descriptor of the user | doubt, until its type is checked |
//! | a chain that opens a path with `O_CREAT` and `O_EXCL` | a new file: no doubt |
//! | a chain that opens another path | doubt, until the target of the path is checked |
//!
//! A check costs system calls, so it is postponed until the room of programs that may wait is full, with one exception:
//! an open that creates or truncates runs on a kernel thread, of which a ring has few, and opening a FIFO would block
//! it. Names that are not in the kernel's memory are looked up by a job on the blocking pool.
//!
//! Time limits are irrelevant: they end a wait and cause none.

use std::ffi::CString;

use rustix::fs::OFlags;

use super::op::Target;
use super::op::open::{Dir, Open};
use crate::sys::path::How;
use crate::sys::peer;

#[derive(Debug)]
enum Doubt {
    On(Target),
    Opens { dir: Dir, path: CString, how: How },
}

impl Doubt {
    /// Returns whether the wait would block a kernel thread of the ring.
    fn may_hold_a_thread(&self) -> bool {
        matches!(self, Self::Opens { how, .. } if how.has(OFlags::CREATE) || how.has(OFlags::TRUNC))
    }

    /// Checks the target without waiting. Returns whether it may wait; `None` if that is unknown.
    fn look(&self) -> Option<bool> {
        match self {
            Self::On(Target::Fd(fd)) => Some(peer::may_wait(fd.as_ref().as_fd())),
            // A file opened by the chain has its own doubt.
            Self::On(Target::Opened(_)) => Some(false),
            Self::Opens { dir, path, how } => peer::path_may_wait(dir.as_fd(), path, how),
        }
    }

    /// As [`look`](Self::look), but **waits for the disk** if necessary.
    fn look_blocking(&self) -> bool {
        match self {
            Self::Opens { dir, path, how } => peer::path_may_wait_blocking(dir.as_fd(), path, how),
            Self::On(_) => self.look() != Some(false),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Swift,
    Waits,
    /// Only [`Doubts::look_blocking`] can decide.
    Unsure,
}

#[derive(Debug, Default)]
pub(crate) struct Doubts(Vec<Doubt>);

impl Doubts {
    pub(super) fn of_descriptor(&mut self, target: &Target) {
        self.0.push(Doubt::On(target.clone()));
    }

    pub(super) fn of_open(&mut self, open: Option<&Open>) {
        let Some((dir, path, how)) = open.map(Open::what) else { return };
        let is_new = how.has(OFlags::CREATE | OFlags::EXCL) || how.has(OFlags::TMPFILE);
        if !is_new {
            self.0.push(Doubt::Opens { dir: dir.clone(), path: path.to_owned(), how });
        }
    }

    /// Returns whether the program may wait for a peer, as far as is known.
    pub(crate) fn may_wait(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether the program might block a kernel thread of the ring.
    pub(crate) fn may_hold_a_thread(&self) -> bool {
        self.0.iter().any(Doubt::may_hold_a_thread)
    }

    /// Checks all doubts without waiting, and removes those that are refuted.
    pub(crate) fn look(&mut self) -> Look {
        let mut look = Look::Swift;
        self.0.retain(|doubt| match doubt.look() {
            Some(waits) => {
                look = if waits { Look::Waits } else { look };
                waits
            }
            None => {
                look = if look == Look::Waits { look } else { Look::Unsure };
                true
            }
        });
        look
    }

    /// As [`look`](Self::look), but **waits for the disk** if necessary.
    pub(crate) fn look_blocking(&mut self) {
        self.0.retain(Doubt::look_blocking);
    }
}
