//! Sends in flight: the results of one round, and the memory of sends without a copy.
//!
//! In a send without a copy the kernel reads the memory after the send has returned, and sends a notification when it
//! has released the memory
//! ([io_uring_prep_send_zc(3)](https://man7.org/linux/man-pages/man3/io_uring_prep_send_zc.3.html)).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::Fd;

use super::super::key::Key;
use super::super::port::leak;
use crate::buf::origin;
use crate::buf::queue::Queue;
use crate::counters::{Counter, count};
use crate::sys::uring::Completion;

/// `IORING_SEND_ZC_REPORT_USAGE`, Linux 6.2: the notification reports whether the kernel copied after all.
const REPORT_USAGE: u16 = 1 << 3;
const COPIED: i32 = i32::MIN;
/// Minimum length in bytes of kept memory for a send without a copy.
const MIN: usize = 16 << 10;
/// Maximum number of such sends in flight. They last as long as the peers take, so they get only a part of the ring.
pub(super) const MAX: usize = 16;

/// Whether sends of a socket may go without a copy. Cleared when the kernel reports that it has copied.
pub(crate) type ZeroCopy = Arc<AtomicBool>;

/// The memory of one send, and the switch of its socket.
pub(in crate::ring) type Kept = (Vec<origin::Kept>, ZeroCopy);

/// The sends whose completions are owed.
#[derive(Default)]
pub(in crate::ring) struct Sends {
    pub(super) round: u32,
    /// Completions of the current round: index and result.
    pub(in crate::ring) ended: Vec<(usize, Result<u32, i32>)>,
    /// Memory of sends without a copy, by key.
    kept: HashMap<u64, Kept>,
}

impl Sends {
    /// Returns how many more sends may go without a copy.
    pub(super) fn room(&self) -> usize {
        MAX.saturating_sub(self.kept.len())
    }

    pub(super) fn insert(&mut self, user_data: u64, kept: Kept) {
        self.kept.insert(user_data, kept);
    }

    /// Handles a completion. After the last one of a send it returns the memory, to be dropped once no lock is held.
    pub(in crate::ring) fn complete(&mut self, key: Key, completion: Completion) -> Option<Kept> {
        if !completion.notification && key.generation == self.round {
            self.ended.push((key.index as usize, completion.result));
        }
        let kept = if completion.more { None } else { self.kept.remove(&completion.key) }?;
        if completion.notification && completion.result == Err(COPIED) {
            count(Counter::ZeroCopyCopied, 1);
            kept.1.store(false, Ordering::Relaxed);
        }
        Some(kept)
    }

    /// Leaks the kept memory: the kernel may still read it.
    pub(in crate::ring) fn lose(&mut self) {
        self.kept.drain().for_each(|(_, kept)| leak(kept));
    }
}

/// Returns how many of the first `pieces` pieces of a queue are sent now, and the memory to keep if they are sent
/// without a copy. Returns `None` if all of them are sent with a copy.
pub(super) fn split(queue: &Queue, pieces: usize, on: &ZeroCopy) -> Option<(usize, Option<Kept>)> {
    if !on.load(Ordering::Relaxed) {
        return None;
    }
    let (before, run) = queue.kept_run(MIN, pieces)?;
    // The pieces before the kept memory are sent first; the kept memory follows in the next send.
    Some(if before > 0 { (before, None) } else { (run.len(), Some((run, Arc::clone(on)))) })
}

pub(super) fn entry(fd: Fd, header: &libc::msghdr, flags: u32) -> Entry {
    opcode::SendMsgZc::new(fd, header).flags(flags).ioprio(REPORT_USAGE).build()
}

pub(super) const CODE: u8 = opcode::SendMsgZc::CODE;
