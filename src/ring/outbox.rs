//! Sending on many sockets at once: one entry for each, one call for all.
//!
//! Sends are told not to wait (`MSG_DONTWAIT`), so that they end while they are handed over, as a plain call would: what a
//! socket has no room for is reported at once and nothing stays in flight. The exception is the memory of a zero-copy
//! send, of which a share is kept until the kernel has notified that it no longer needs it
//! ([io_uring_prep_send_zc(3)](https://man7.org/linux/man-pages/man3/io_uring_prep_send_zc.3.html)).

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::closing::leak;
use super::driver::{Driver, Ring};
use super::key::{About, Key};
use super::op::{Files, Target};
use super::queue::After;
use super::sync::lock;
use crate::buf::queue;
use crate::kernel::call::IOV_LIMIT;
use crate::kernel::uring::Completion;
use crate::observe::counters::{Counter, count};

/// `MSG_DONTWAIT | MSG_NOSIGNAL`, and `MSG_MORE`, send(2).
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const MORE: libc::c_int = libc::MSG_MORE;
/// `IORING_SEND_ZC_REPORT_USAGE`, Linux 6.2: the notification says whether the kernel has copied after all.
const REPORT_USAGE: u16 = 1 << 3;
/// What it says then.
const COPIED: i32 = i32::MIN;
/// Bytes of kept memory from which a send may go without a copy.
const ZERO_COPY_MIN: usize = 16 << 10;
/// How long a completion that has to be there may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often in a row it may not be there.
const IDLE_MAX: u32 = 3;

/// Whether sends of a socket may go without a copy; turned off when the kernel reports that it has copied.
pub(crate) type ZeroCopy = Arc<AtomicBool>;

/// What waits on one socket: a [`Queue`](queue::Queue) that is on its way, and how far it has come.
pub(crate) struct Parcel {
    pub(crate) socket: Target,
    pub(crate) queue: queue::Queue,
    pub(crate) zero_copy: Option<ZeroCopy>,
    /// Bytes that were taken, or the number of the error: `ECANCELED` if it was never handed over.
    pub(crate) result: Result<usize, i32>,
    /// Bytes that were offered.
    pub(crate) offered: usize,
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("socket", &self.socket).field("result", &self.result).finish_non_exhaustive()
    }
}

impl Parcel {
    pub(crate) fn new(socket: Target, queue: queue::Queue, zero_copy: Option<ZeroCopy>) -> Self {
        Self { socket, queue, zero_copy, result: Err(Errno::CANCELED.raw_os_error()), offered: 0 }
    }
}

/// Parcels that leave together.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) parcels: Vec<Parcel>,
    /// Where the pieces of the parcels lie, and the headers that list them, as the kernel reads them.
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::msghdr>,
    lists: Vec<List>,
}

/// What of a parcel is sent.
struct List {
    pieces: Range<usize>,
    /// Something follows it.
    more: bool,
    /// It goes without a copy.
    shares: Option<(queue::Shares, ZeroCopy)>,
}

// SAFETY: the pointers are only ever followed by the kernel, to memory of the parcels beside them.
unsafe impl Send for Outbox {}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&self.parcels).finish()
    }
}

/// What the driver notes about sends.
#[derive(Default)]
pub(super) struct Sends {
    round: u32,
    /// Completions of the round: place and result.
    pub(super) ended: Vec<(usize, Result<u32, i32>)>,
    /// What zero-copy sends keep until they are notified, and whom to tell that it was of no use.
    kept: HashMap<u64, (queue::Shares, ZeroCopy)>,
}

impl Sends {
    /// Takes a completion. Returns whether it was the last one of its entry, and what is to be dropped without a lock.
    pub(super) fn complete(&mut self, key: Key, completion: Completion) -> (bool, Option<queue::Shares>) {
        if !completion.notification && key.generation == self.round {
            self.ended.push((key.index as usize, completion.result));
        }
        if completion.more {
            return (false, None);
        }
        let kept = self.kept.remove(&completion.key);
        if let (Some((_, zero_copy)), true, Err(COPIED)) = (&kept, completion.notification, completion.result) {
            count(Counter::ZeroCopyCopied, 1);
            zero_copy.store(false, Ordering::Relaxed);
        }
        (true, kept.map(|(shares, _)| shares))
    }

    /// Gives up what is kept: the kernel may still read it.
    pub(super) fn lose(&mut self) {
        for (_, kept) in self.kept.drain() {
            leak(kept);
        }
    }
}

impl Outbox {
    /// Lists the memory at the front of each parcel.
    fn list(&mut self, supports_zero_copy: bool) {
        let Self { parcels, pieces, headers, lists } = self;
        pieces.clear();
        lists.clear();
        for parcel in parcels.iter_mut() {
            let first = pieces.len();
            let mut more = parcel.queue.for_front(IOV_LIMIT, |piece| {
                pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
            });
            let mut shares = None;
            if let Some(on) = parcel.zero_copy.as_ref().filter(|on| supports_zero_copy && on.load(Ordering::Relaxed))
                && let Some((before, run)) = parcel.queue.kept_run(ZERO_COPY_MIN, pieces.len() - first)
            {
                // What comes before goes by itself, and the kept memory next time.
                let alone = if before > 0 { before } else { run.len() };
                more |= first + alone < pieces.len();
                pieces.truncate(first + alone);
                shares = (before == 0).then(|| (run, Arc::clone(on)));
            }
            parcel.offered = pieces[first..].iter().map(|piece| piece.iov_len).sum();
            lists.push(List { pieces: first..pieces.len(), more, shares });
        }
        // Not before all pieces have their places.
        headers.clear();
        headers.extend(lists.iter().map(|list| {
            // SAFETY: no address, no pieces, no control data: all zeros is a header.
            let mut header: libc::msghdr = unsafe { mem::zeroed() };
            header.msg_iov = ptr::from_ref(&pieces[list.pieces.clone()]).cast_mut().cast();
            header.msg_iovlen = list.pieces.len() as _; // `usize` with glibc, `c_int` with musl
            header
        }));
    }

    /// The entry that sends what is listed of a parcel, and what has to be kept for it.
    fn entry(&mut self, place: usize) -> (Entry, Option<(queue::Shares, ZeroCopy)>) {
        let List { pieces, more, shares } = &mut self.lists[place];
        let (fd, _) = self.parcels[place].socket.in_ring(&Files::default());
        let (header, flags) = (&self.headers[place], if *more { FLAGS | MORE } else { FLAGS });
        let entry = match &self.pieces[pieces.clone()] {
            _ if shares.is_some() => {
                opcode::SendMsgZc::new(fd, header).flags(flags.cast_unsigned()).ioprio(REPORT_USAGE).build()
            }
            // One piece needs no header: the kernel takes a shorter way.
            [one] => opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32).flags(flags).build(),
            _ => opcode::SendMsg::new(fd, header).flags(flags.cast_unsigned()).build(),
        };
        (entry, shares.take())
    }
}

impl Driver {
    /// Sends the memory at the front of each parcel, as far as the sockets take it at once; the results are in the parcels.
    /// What was not handed over, because the ring takes nothing any more, says `ECANCELED`.
    pub(crate) fn send(&self, outbox: &mut Outbox) {
        let mut guard = lock(&self.ring);
        let mut after = After::default();
        if let Some(ring) = guard.as_mut()
            && ring.port.is_ours()
            && lock(&self.queue).closed.is_none()
        {
            self.send_all(ring, outbox, &mut after);
        }
        drop(guard);
        after.run();
    }

    fn send_all(&self, ring: &mut Ring, outbox: &mut Outbox, after: &mut After) {
        let mut queue = lock(&self.queue);
        queue.sends.round = queue.sends.round.wrapping_add(1);
        queue.sends.ended.clear();
        let round = queue.sends.round;
        let supports_zero_copy = !queue.by_calls[usize::from(opcode::SendMsgZc::CODE)];
        drop(queue);
        outbox.list(supports_zero_copy);
        let mut left = 0..outbox.parcels.len();
        let (total, mut pushed, mut ended) = (left.len(), 0, 0);
        let mut idle = 0;
        while ended < total {
            let mut queue = lock(&self.queue);
            if queue.closed.is_some() {
                // What was not pushed says so already.
                left = 0..0;
            }
            let room = ring.port.room().min(queue.room());
            for place in left.by_ref().take(room) {
                let (entry, shares) = outbox.entry(place);
                let data = About::Send(Key::new(place as u32, round)).user_data();
                queue.sends.kept.extend(shares.map(|shares| (data, shares)));
                queue.in_flight += 1;
                // SAFETY: what the entry points to belongs to the outbox, which is not touched until its completion has
                // been reaped, or else leaks; what a zero-copy send goes on using is kept by `sends`.
                unsafe { ring.push(&entry, data, false) };
                pushed += 1;
            }
            drop(queue);
            // Sends do not wait, so they end in the first call. Should one not, it is waited for.
            let (want, patience) = if idle > 0 { (1, Some(PATIENCE)) } else { (0, None) };
            let stalled = match self.hand_over(ring, want, patience, after) {
                Ok(stalled) => stalled,
                Err(reason) => {
                    self.close(ring, reason, after);
                    false
                }
            };
            if self.reap(ring, after) > 0 {
                ring.stalls = 0;
            }
            let mut queue = lock(&self.queue);
            let is_closed = queue.closed.is_some();
            let now = queue.sends.ended.len();
            for (place, result) in queue.sends.ended.drain(..) {
                outbox.parcels[place].result = result.map(|n| n as usize);
            }
            drop(queue);
            ended += now;
            // Interrupted calls hand over nothing.
            idle = if now > 0 || stalled || !ring.pushed.is_empty() { 0 } else { idle + 1 };
            if is_closed && ended >= pushed {
                break;
            }
            if idle > IDLE_MAX {
                self.lose_sends(outbox);
                break;
            }
        }
    }

    /// Completions that have to be there are not: the memory must never be used again.
    fn lose_sends(&self, outbox: &mut Outbox) {
        let never = Err(Errno::CANCELED.raw_os_error());
        for parcel in outbox.parcels.iter_mut().filter(|parcel| parcel.result == never && parcel.offered > 0) {
            leak(mem::take(&mut parcel.queue));
            parcel.result = Err(Errno::IO.raw_os_error());
        }
        leak((mem::take(&mut outbox.pieces), mem::take(&mut outbox.headers)));
    }
}
