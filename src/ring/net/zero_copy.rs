//! Sends without a copy: the kernel reads the memory after the send has returned, and notifies when it has let go of it
//! ([io_uring_prep_send_zc(3)](https://man7.org/linux/man-pages/man3/io_uring_prep_send_zc.3.html)).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::Fd;

use super::super::closing::leak;
use crate::buf::queue::{Queue, Shares};
use crate::kernel::uring::Completion;
use crate::observe::counters::{Counter, count};

/// `IORING_SEND_ZC_REPORT_USAGE`, Linux 6.2: the notification says whether the kernel has copied after all.
const REPORT_USAGE: u16 = 1 << 3;
/// What it says then.
const COPIED: i32 = i32::MIN;
/// Bytes of kept memory from which a send may go without a copy.
const MIN: usize = 16 << 10;
/// Most sends whose memory is kept. Peers decide how long that is, so they get a part of the ring only.
pub(super) const MAX: usize = 16;

/// Whether sends of a socket may go without a copy; turned off when the kernel reports that it has copied.
pub(crate) type ZeroCopy = Arc<AtomicBool>;

/// The memory of one send, and the switch of its socket.
pub(in crate::ring) type Kept = (Shares, ZeroCopy);

/// The memory of all sends that the kernel has not let go of.
#[derive(Default)]
pub(super) struct Notices(HashMap<u64, Kept>);

impl Notices {
    /// Sends for which memory can still be kept.
    pub(super) fn room(&self) -> usize {
        MAX.saturating_sub(self.0.len())
    }

    pub(super) fn keep(&mut self, user_data: u64, kept: Kept) {
        self.0.insert(user_data, kept);
    }

    /// Takes the last completion of a send. Gives what is to be dropped without a lock.
    pub(super) fn ended(&mut self, completion: Completion) -> Option<Kept> {
        let kept = self.0.remove(&completion.key)?;
        if completion.notification && completion.result == Err(COPIED) {
            count(Counter::ZeroCopyCopied, 1);
            kept.1.store(false, Ordering::Relaxed);
        }
        Some(kept)
    }

    /// Gives up what is kept: the kernel may still read it.
    pub(super) fn lose(&mut self) {
        self.0.drain().for_each(|(_, kept)| leak(kept));
    }
}

/// How many of the first `pieces` pieces of a queue go now, and what is kept if these go without a copy; `None` if all of
/// them go with one.
pub(super) fn split(queue: &Queue, pieces: usize, on: &ZeroCopy) -> Option<(usize, Option<Kept>)> {
    if !on.load(Ordering::Relaxed) {
        return None;
    }
    let (before, run) = queue.kept_run(MIN, pieces)?;
    // What comes before goes by itself, and the kept memory next time.
    Some(if before > 0 { (before, None) } else { (run.len(), Some((run, Arc::clone(on)))) })
}

/// The entry of such a send.
pub(super) fn entry(fd: Fd, header: &libc::msghdr, flags: u32) -> Entry {
    opcode::SendMsgZc::new(fd, header).flags(flags).ioprio(REPORT_USAGE).build()
}

/// Its code.
pub(super) const CODE: u8 = opcode::SendMsgZc::CODE;
