//! Sending on many sockets at once: one entry for each, one call for all.
//!
//! Sends are told not to wait (`MSG_DONTWAIT`), so that they end while they are handed over, as a plain call would: what a
//! socket has no room for is reported at once and nothing stays in flight but the memory of sends
//! [without a copy](super::zero_copy).
//!
//! Nothing in here waits. What finds no room in the ring says `ECANCELED` and is left to plain calls.

#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr;
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::super::closing::leak;
use super::super::driver::{Driver, Ring};
use super::super::key::{About, Key};
use super::super::op::{Files, Target};
use super::super::queue::After;
use super::super::sync::lock;
use super::zero_copy::{self, Notices};
use super::{Kept, ZeroCopy};
use crate::buf::queue;
use crate::kernel::call::IOV_LIMIT;
use crate::kernel::uring::Completion;

/// `MSG_DONTWAIT | MSG_NOSIGNAL`, and `MSG_MORE`, send(2).
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const MORE: libc::c_int = libc::MSG_MORE;
/// How often in a row the kernel may be asked for completions that have to be there, and bring none.
const IDLE_MAX: u32 = 3;
/// The result of a parcel that was pushed, until its completion is there.
const PUSHED: Result<usize, i32> = Err(Errno::INPROGRESS.raw_os_error());

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
    kept: Option<Kept>,
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
pub(in crate::ring) struct Sends {
    round: u32,
    /// Completions of the round: place and result.
    pub(in crate::ring) ended: Vec<(usize, Result<u32, i32>)>,
    notices: Notices,
}

impl Sends {
    /// Takes a completion. Returns whether it was the last one of its entry.
    pub(in crate::ring) fn complete(&mut self, key: Key, completion: Completion, after: &mut After) -> bool {
        if !completion.notification && key.generation == self.round {
            self.ended.push((key.index as usize, completion.result));
        }
        if !completion.more {
            after.kept.extend(self.notices.ended(completion));
        }
        !completion.more
    }

    /// Gives up what is kept.
    pub(super) fn lose(&mut self) {
        self.notices.lose();
    }
}

impl Outbox {
    /// Lists the memory at the front of each parcel, for `zero_copy` sends without a copy at most.
    fn list(&mut self, mut zero_copy: usize) {
        let Self { parcels, pieces, headers, lists } = self;
        pieces.clear();
        lists.clear();
        for parcel in parcels.iter_mut() {
            let first = pieces.len();
            let mut more = parcel.queue.for_front(IOV_LIMIT, |piece| {
                pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
            });
            let mut kept = None;
            if let Some(on) = parcel.zero_copy.as_ref().filter(|_| zero_copy > 0)
                && let Some((alone, keep)) = zero_copy::split(&parcel.queue, pieces.len() - first, on)
            {
                more |= first + alone < pieces.len();
                pieces.truncate(first + alone);
                zero_copy -= usize::from(keep.is_some());
                kept = keep;
            }
            parcel.offered = pieces[first..].iter().map(|piece| piece.iov_len).sum();
            lists.push(List { pieces: first..pieces.len(), more, kept });
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
    fn entry(&mut self, place: usize) -> (Entry, Option<Kept>) {
        let List { pieces, more, kept } = &mut self.lists[place];
        let (fd, _) = self.parcels[place].socket.in_ring(&Files::default());
        let (header, flags) = (&self.headers[place], if *more { FLAGS | MORE } else { FLAGS });
        let entry = match &self.pieces[pieces.clone()] {
            _ if kept.is_some() => zero_copy::entry(fd, header, flags.cast_unsigned()),
            // One piece needs no header: the kernel takes a shorter way.
            [one] => opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32).flags(flags).build(),
            _ => opcode::SendMsg::new(fd, header).flags(flags.cast_unsigned()).build(),
        };
        (entry, kept.take())
    }
}

impl Driver {
    /// Sends the memory at the front of each parcel, as far as the sockets take it at once; the results are in the parcels.
    /// What was not handed over, because the ring has no room or takes nothing any more, says `ECANCELED`.
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
        queue.net.send.round = queue.net.send.round.wrapping_add(1);
        queue.net.send.ended.clear();
        let knows_zero_copy = !queue.by_calls[usize::from(zero_copy::CODE)];
        let zero_copy = if knows_zero_copy { queue.net.send.notices.room() } else { 0 };
        drop(queue);
        outbox.list(zero_copy);
        let mut left = 0..outbox.parcels.len();
        let (mut in_flight, mut idle) = (0, 0);
        loop {
            in_flight += self.push_sends(ring, outbox, &mut left);
            if in_flight == 0 {
                // All has ended. What is left has no room.
                return;
            }
            // Sends do not wait, so they end in the first call. If one does not, the kernel is asked to look, at once.
            let (want, patience) = if idle > 0 { (1, Some(Duration::ZERO)) } else { (0, None) };
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
            let ended = queue.net.send.ended.len();
            for (place, result) in queue.net.send.ended.drain(..) {
                outbox.parcels[place].result = result.map(|n| n as usize);
            }
            drop(queue);
            in_flight -= ended;
            // Interrupted calls hand over nothing, and what is held back is still to come.
            let is_waiting = ended == 0 && !stalled && ring.pushed.is_empty() && !ring.held_back;
            idle = if is_waiting { idle + 1 } else { 0 };
            if idle > IDLE_MAX {
                lose(outbox);
                return;
            }
        }
    }

    /// Pushes sends while there is room. Returns how many.
    fn push_sends(&self, ring: &mut Ring, outbox: &mut Outbox, left: &mut Range<usize>) -> usize {
        let mut queue = lock(&self.queue);
        let room = ring.port.room().min(queue.room.swift.left());
        if queue.closed.is_some() || room == 0 {
            return 0;
        }
        let round = queue.net.send.round;
        let before = left.len();
        for place in left.by_ref().take(room) {
            let (entry, kept) = outbox.entry(place);
            let data = About::Send(Key::new(place as u32, round)).user_data();
            if let Some(kept) = kept {
                queue.net.send.notices.keep(data, kept);
            }
            queue.in_flight += 1;
            queue.room.swift.used += 1;
            outbox.parcels[place].result = PUSHED;
            // SAFETY: what the entry points to belongs to the outbox, which is not touched until its completion has been
            // reaped, or else leaks; what a send without a copy goes on using is kept by `notices`.
            unsafe { ring.push(&entry, data, false) };
        }
        before - left.len()
    }
}

/// Gives up sends that were handed over and whose completions do not come: nobody knows what was sent, and the memory must
/// never be used again.
fn lose(outbox: &mut Outbox) {
    for parcel in outbox.parcels.iter_mut().filter(|parcel| parcel.result == PUSHED) {
        leak(mem::take(&mut parcel.queue));
        parcel.result = Err(Errno::IO.raw_os_error());
    }
    leak((mem::take(&mut outbox.pieces), mem::take(&mut outbox.headers)));
}
