//! What a program may have to wait for, for ever.
//!
//! Operations on files of this machine end by themselves. An operation on a pipe, a socket, a terminal or a file that
//! another process serves ends when a peer lets it. Programs of the second kind must not take the room of the first.
//!
//! | | |
//! |---|---|
//! | operations of `fs::File` and of file bodies | files with offsets: no doubt |
//! | a chain of renames, links, unlinks | no doubt |
//! | a chain on a descriptor of the user | doubt, until a look at its type |
//! | a chain that opens a path with `O_CREAT` and `O_EXCL` | a new file: no doubt |
//! | a chain that opens another path | doubt, until a look at what the path leads to |
//!
//! Looking costs system calls, so it is put off until the room of those that may wait is full, but for one case: an open
//! that creates or truncates is done by a thread of the kernel, of which a ring has few, and opening a FIFO would keep it.
//! Names that the kernel has not in memory are looked for by a job on the blocking pool.
//!
//! Time limits do not matter: they end a wait, they cause none.

use std::ffi::CString;

use rustix::fs::OFlags;

use super::op::Target;
use super::op::open::{Dir, Open};
use crate::kernel::path::How;
use crate::kernel::peer;

/// Something that may have to be waited for.
#[derive(Debug)]
enum Doubt {
    /// What a descriptor of the user leads to.
    On(Target),
    /// What a path leads to.
    Opens { dir: Dir, path: CString, how: How },
}

impl Doubt {
    /// Whether a thread of the kernel would wait, and not the ring.
    fn may_hold_a_thread(&self) -> bool {
        matches!(self, Self::Opens { how, .. } if how.has(OFlags::CREATE) || how.has(OFlags::TRUNC))
    }

    /// Looks at it, without waiting. Returns whether it may have to be waited for, if that can be told.
    fn look(&self) -> Option<bool> {
        match self {
            Self::On(Target::Fd(fd)) => Some(peer::may_wait(fd.as_ref().as_fd())),
            // What a chain opens has a doubt of its own.
            Self::On(Target::Opened(_)) => Some(false),
            Self::Opens { dir, path, how } => peer::path_may_wait(dir.as_fd(), path, how),
        }
    }

    /// The same, **waiting for the disk** where it has to.
    fn look_blocking(&self) -> bool {
        match self {
            Self::Opens { dir, path, how } => peer::path_may_wait_blocking(dir.as_fd(), path, how),
            Self::On(_) => self.look() != Some(false),
        }
    }
}

/// What a look has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing has to be waited for.
    Swift,
    /// Something may have to be waited for.
    Waits,
    /// Only [`Doubts::look_blocking`] can tell.
    Unsure,
}

/// All doubts about one program.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Vec<Doubt>);

impl Doubts {
    /// Something is done to a descriptor of the user.
    pub(super) fn of_descriptor(&mut self, target: &Target) {
        self.0.push(Doubt::On(target.clone()));
    }

    /// A path is opened.
    pub(super) fn of_open(&mut self, open: Option<&Open>) {
        let Some((dir, path, how)) = open.map(Open::what) else { return };
        let is_new = how.has(OFlags::CREATE | OFlags::EXCL) || how.has(OFlags::TMPFILE);
        if !is_new {
            self.0.push(Doubt::Opens { dir: dir.clone(), path: path.to_owned(), how });
        }
    }

    /// Whether something may have to be waited for, as far as that is known.
    pub(crate) fn may_wait(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether a thread of the kernel would wait if the program went by ring.
    pub(crate) fn may_hold_a_thread(&self) -> bool {
        self.0.iter().any(Doubt::may_hold_a_thread)
    }

    /// Looks at what there are doubts about, without waiting, and drops those that have no reason.
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

    /// The same, **waiting for the disk** where it has to.
    pub(crate) fn look_blocking(&mut self) {
        self.0.retain(Doubt::look_blocking);
    }
}
