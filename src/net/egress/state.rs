//! State of a stream under its lock.

use std::task::Waker;

use bytes::Bytes;

use super::super::options::Options;
use super::super::profile::Profile;
use super::super::stats::{Meter, Reason};
use super::single_writes::SingleWrites;
use super::socket_writer::SendFailure;
use crate::buf::origin::OriginSlices;
use crate::buf::queue::Queue;
use crate::counters::{Counter, count};
use crate::net::egress::high_water::HighWater;
use crate::sys::clock::coarse_millis;

#[derive(Default)]
pub(super) struct EgressState {
    pub(super) queue: Queue,
    /// The writer that waits for room, or for an empty queue.
    pub(super) waiter: Option<Waker>,
    /// Whether the last write found no room, and none was made since.
    pub(super) refused: bool,
    pub(super) scheduled: bool,
    pub(super) blocked: bool,
    /// Blocked by a shared rate, not by the peer.
    pub(super) paced: bool,
    /// The socket has room again, and a flush is scheduled.
    pub(super) room: bool,
    /// Number of bytes sent at which the round trip is measured next, and the profile chosen for it.
    pub(super) look_at: u64,
    pub(super) fitted: Profile,
    /// Queued bytes above which writers wait, and the adaptive mark that sets them, if any.
    pub(super) high: usize,
    pub(super) mark: Option<Box<HighWater>>,
    pub(super) failure: Option<SendFailure>,
    /// Whether no call has returned the failure yet.
    pub(super) unreported: bool,
    /// Whether bytes were lost, so that none may follow.
    pub(super) dead: bool,
    /// Whether writes are refused: the sending side was shut down, or reading has failed.
    pub(super) ended: bool,
    /// Whether the owner has shut the sending side down. The socket's own is closed behind the queue.
    pub(super) shut_down: bool,
    pub(super) burst: usize,
    pub(super) single_writes: SingleWrites,
    /// Gathered since the last flush: writes, bytes copied, bytes held.
    pub(super) uncounted: (u64, usize, usize),
}

impl EgressState {
    pub(super) fn new(options: &Options) -> Self {
        let mark = options.high_range.map(|(min, max)| Box::new(HighWater::new(min..=max, coarse_millis())));
        let high = options.high_range.map_or(options.high, |(min, _)| min);
        Self { high, mark, look_at: u64::MAX, ..Self::default() }
    }

    /// Records bytes written and sent, which may move the adaptive mark.
    #[inline]
    pub(super) fn record_bytes(&mut self, came: usize, left: usize) {
        if let Some(mark) = &mut self.mark {
            self.high = mark.note(came, left, coarse_millis());
        }
    }

    /// Returns whether a non-empty queue needs a flush (invariant 3). The caller must then schedule the stream.
    pub(super) fn needs_flush(&mut self) -> bool {
        let needs = !self.scheduled && !self.blocked && !self.queue.is_empty();
        self.scheduled |= needs;
        needs
    }

    pub(super) fn enqueue(&mut self, slices: OriginSlices<'_>) {
        self.uncounted.0 += 1;
        for slice in slices.iter() {
            match self.queue.push(slice) {
                true => self.uncounted.2 += slice.bytes().len(),
                false => self.uncounted.1 += slice.bytes().len(),
            }
        }
    }

    pub(super) fn enqueue_bytes(&mut self, bytes: Bytes) {
        self.uncounted.0 += 1;
        let len = bytes.len();
        match self.queue.push_bytes(bytes) {
            true => self.uncounted.2 += len,
            false => self.uncounted.1 += len,
        }
    }

    pub(super) fn settle(&mut self) {
        if self.uncounted.0 > 0 {
            let (writes, copied, held) = std::mem::take(&mut self.uncounted);
            count(Counter::Gathered, writes);
            count(Counter::BytesCopied, copied as u64);
            count(Counter::BytesHeld, held as u64);
        }
    }

    pub(super) fn reason(&mut self) -> Reason {
        if std::mem::take(&mut self.room) { Reason::Room } else { Reason::Turn }
    }

    /// Drops waiting bytes, which can no longer be sent.
    pub(super) fn lose(&mut self, meter: &Meter) {
        let lost = self.queue.clear();
        self.dead |= lost > 0;
        meter.lost(lost);
        self.settle();
    }
}
