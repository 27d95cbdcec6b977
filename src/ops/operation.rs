//! Kernel operations, each with all memory and descriptors it uses.
//!
//! An operation has two equivalent implementations: an entry for a ring, and plain system calls. Both report the number
//! the call returns, and [`Operation::advance`] turns it into progress.
//!
//! Invariants:
//! 1. An entry points only into the operation, which is boxed, or into memory that the operation owns.
//! 2. From [`entry`](Operation::entry) until the final completion the operation is not moved, touched or dropped: the
//!    slot table holds it, even if the future is dropped.
//! 3. A descriptor returned by a success belongs to the operation once `advance` has seen it.

use std::any::Any;
use std::fmt;
use std::io;

use super::outcome::Progress;
use super::submit;
use super::target::{Files, Target};
use crate::sys::flags::PollFlags;

/// An operation by plain calls. [`Submit`](submit::Submit) is the same operation as an entry for a ring.
pub(crate) trait Operation: submit::Submit + Any + fmt::Debug + Send + Sync {
    /// Does the rest of the work by plain system calls, **which may wait**; moves at most `limit` bytes.
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32>;

    /// Returns descriptors that may not be ready, with the events to wait for. Files are always ready.
    fn waits(&self) -> Waits<'_> {
        [None, None]
    }

    fn file(&self) -> FileUse {
        FileUse::None
    }

    fn advance(&mut self, result: u32) -> Progress {
        let _ = result;
        Progress::Done
    }

    fn bytes(&self) -> u64 {
        0
    }
}

/// Descriptors that an operation may have to wait for: up to two that are not files.
pub(crate) type Waits<'a> = [Option<(&'a Target, PollFlags)>; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    None,
    Opens(usize),
    Closes(usize),
}
