//! Sends on many sockets at once: one entry per socket, one call for all.
//!
//! Sends do not wait (`MSG_DONTWAIT`), so they end during submission, like a plain call. Bytes that a socket does not
//! accept are reported at once. Only the memory of sends [without a copy](super::in_flight) stays in flight.
//!
//! Nothing in this module waits. Sends that find no room in the ring report `ECANCELED` and are left to plain calls.

#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

use super::super::driver::RingDriver;
use super::super::key::{About, Key};
use super::super::port::{Ring, leak};
use super::super::queue::After;
use super::in_flight::{self, Kept, ZeroCopy};
use crate::buf::queue;
use crate::ops::{Files, Target};
use crate::sync::lock;
use crate::sys::call::IOV_LIMIT;

/// `MSG_DONTWAIT | MSG_NOSIGNAL`, and `MSG_MORE`, send(2).
const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const MORE: libc::c_int = libc::MSG_MORE;
/// Maximum number of consecutive empty queries for due completions.
const IDLE_MAX: u32 = 3;
/// Result of a pushed send until its completion arrives.
const PUSHED: Result<usize, i32> = Err(Errno::INPROGRESS.raw_os_error());

pub(crate) struct SendOp {
    pub(crate) socket: Target,
    pub(crate) queue: queue::Queue,
    pub(crate) zero_copy: Option<ZeroCopy>,
    /// Number of bytes accepted, or the error number: `ECANCELED` if the send was never submitted.
    pub(crate) result: Result<usize, i32>,
    pub(crate) offered: usize,
}

impl fmt::Debug for SendOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendOp").field("socket", &self.socket).field("result", &self.result).finish_non_exhaustive()
    }
}

impl SendOp {
    pub(crate) fn new(socket: Target, queue: queue::Queue, zero_copy: Option<ZeroCopy>) -> Self {
        Self { socket, queue, zero_copy, result: Err(Errno::CANCELED.raw_os_error()), offered: 0 }
    }
}

/// A stream whose bytes can leave by a ring, together with those of other streams.
pub(crate) trait RingSend: Send + Sync {
    /// Returns the weight of the stream for the decision whether a batch saves time: none, one, or enough by itself.
    fn joins(&self) -> usize;

    /// Hands out waiting bytes for a batch, and sends nothing until [`end`](Self::end) returns them. `None` changes
    /// nothing: the stream must then be flushed.
    fn begin(self: Arc<Self>) -> Option<SendOp>;

    /// Takes back the bytes that were handed out, with the result of the send.
    fn end(self: Arc<Self>, send_op: SendOp);
}

#[derive(Default)]
pub(crate) struct SendBatch {
    pub(crate) send_ops: Vec<SendOp>,
    /// The pieces of the sends, and the headers that list them, in the format that the kernel reads.
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::msghdr>,
    lists: Vec<List>,
}

/// The part of a [`SendOp`] that is sent.
struct List {
    pieces: Range<usize>,
    more: bool,
    kept: Option<Kept>,
}

// SAFETY: only the kernel follows the pointers, and they point to memory owned by the same struct.
unsafe impl Send for SendBatch {}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendBatch").field(&self.send_ops).finish()
    }
}

impl SendBatch {
    /// Lists the memory at the front of each send, with at most `zero_copy` sends without a copy.
    fn list(&mut self, mut zero_copy: usize) {
        let Self { send_ops, pieces, headers, lists } = self;
        pieces.clear();
        lists.clear();
        for send_op in send_ops.iter_mut() {
            let first = pieces.len();
            let mut more = send_op.queue.for_front(IOV_LIMIT, |piece| {
                pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
            });
            let mut kept = None;
            if let Some(on) = send_op.zero_copy.as_ref().filter(|_| zero_copy > 0)
                && let Some((alone, keep)) = in_flight::split(&send_op.queue, pieces.len() - first, on)
            {
                more |= first + alone < pieces.len();
                pieces.truncate(first + alone);
                zero_copy -= usize::from(keep.is_some());
                kept = keep;
            }
            send_op.offered = pieces[first..].iter().map(|piece| piece.iov_len).sum();
            lists.push(List { pieces: first..pieces.len(), more, kept });
        }
        // The headers point to the pieces, so they are built after all pieces have their final addresses.
        headers.clear();
        headers.extend(lists.iter().map(|list| {
            // SAFETY: all zeros is a valid header without address, pieces or control data.
            let mut header: libc::msghdr = unsafe { mem::zeroed() };
            header.msg_iov = ptr::from_ref(&pieces[list.pieces.clone()]).cast_mut().cast();
            header.msg_iovlen = list.pieces.len() as _; // `usize` with glibc, `c_int` with musl
            header
        }));
    }

    fn entry(&mut self, place: usize) -> (Entry, Option<Kept>) {
        let List { pieces, more, kept } = &mut self.lists[place];
        let (fd, _) = self.send_ops[place].socket.in_ring(&Files::default());
        let (header, flags) = (&self.headers[place], if *more { FLAGS | MORE } else { FLAGS });
        let entry = match &self.pieces[pieces.clone()] {
            _ if kept.is_some() => in_flight::entry(fd, header, flags.cast_unsigned()),
            // A single piece needs no header, and the kernel has a faster path for it.
            [one] => opcode::Send::new(fd, one.iov_base.cast(), one.iov_len as u32).flags(flags).build(),
            _ => opcode::SendMsg::new(fd, header).flags(flags.cast_unsigned()).build(),
        };
        (entry, kept.take())
    }
}

impl RingDriver {
    /// Sends the memory at the front of each queue, as far as the sockets accept it at once. Stores the results in the
    /// batch: `ECANCELED` if a send was not submitted because the ring has no room or is closed.
    pub(crate) fn send(&self, send_batch: &mut SendBatch) {
        let mut guard = lock(&self.ring);
        let mut after = After::default();
        if let Some(ring) = guard.as_mut()
            && ring.port.is_ours()
            && lock(&self.queue).closed.is_none()
        {
            self.send_all(ring, send_batch, &mut after);
        }
        drop(guard);
        after.run();
    }

    fn send_all(&self, ring: &mut Ring, send_batch: &mut SendBatch, after: &mut After) {
        let mut queue = lock(&self.queue);
        queue.sockets.sends.round = queue.sockets.sends.round.wrapping_add(1);
        queue.sockets.sends.ended.clear();
        let knows_zero_copy = !queue.by_calls[usize::from(in_flight::CODE)];
        let zero_copy = if knows_zero_copy { queue.sockets.sends.room() } else { 0 };
        drop(queue);
        send_batch.list(zero_copy);
        let mut left = 0..send_batch.send_ops.len();
        let (mut in_flight, mut idle) = (0, 0);
        loop {
            in_flight += self.push_sends(ring, send_batch, &mut left);
            if in_flight == 0 {
                return;
            }
            // Sends do not wait, so they end in the first call. Otherwise query for due completions without waiting.
            let (want, patience) = if idle > 0 { (1, Some(Duration::ZERO)) } else { (0, None) };
            let stalled = match self.hand_over(ring, want, patience, after) {
                Ok(stalled) => stalled,
                Err(reason) => {
                    lock(&self.queue).close(ring, reason, after);
                    false
                }
            };
            if self.reap(ring, after) > 0 {
                ring.stalls = 0;
            }
            let mut queue = lock(&self.queue);
            let ended = queue.sockets.sends.ended.len();
            for (place, result) in queue.sockets.sends.ended.drain(..) {
                send_batch.send_ops[place].result = result.map(|n| n as usize);
            }
            drop(queue);
            in_flight -= ended;
            // Interrupted calls submit nothing, and held-back entries are still to come.
            let is_waiting = ended == 0 && !stalled && ring.pushed.is_empty() && !ring.held_back;
            idle = if is_waiting { idle + 1 } else { 0 };
            if idle > IDLE_MAX {
                lose(send_batch);
                return;
            }
        }
    }

    fn push_sends(&self, ring: &mut Ring, send_batch: &mut SendBatch, left: &mut Range<usize>) -> usize {
        let mut queue = lock(&self.queue);
        let room = ring.port.room().min(queue.room.swift.left());
        if queue.closed.is_some() || room == 0 {
            return 0;
        }
        let round = queue.sockets.sends.round;
        let before = left.len();
        for place in left.by_ref().take(room) {
            let (entry, kept) = send_batch.entry(place);
            let data = About::Send(Key::new(place as u32, round)).user_data();
            if let Some(kept) = kept {
                queue.sockets.sends.insert(data, kept);
            }
            queue.in_flight += 1;
            queue.room.swift.used += 1;
            send_batch.send_ops[place].result = PUSHED;
            // SAFETY: the entry points to memory of the batch, which is not touched until the completion has been
            // reaped, and is leaked otherwise. `notices` keeps the memory of a send without a copy.
            unsafe { ring.push(&entry, data, false) };
        }
        before - left.len()
    }
}

/// Gives up sends whose completions do not arrive: the number of bytes sent is unknown, and their memory is lost.
fn lose(send_batch: &mut SendBatch) {
    for send_op in send_batch.send_ops.iter_mut().filter(|send_op| send_op.result == PUSHED) {
        leak(mem::take(&mut send_op.queue));
        send_op.result = Err(Errno::IO.raw_os_error());
    }
    leak((mem::take(&mut send_batch.pieces), mem::take(&mut send_batch.headers)));
}
