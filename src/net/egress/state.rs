//! What a stream keeps under its lock.

use std::io::IoSlice;
use std::task::Waker;

use super::super::options::Options;
use super::super::profile::Profile;
use super::super::socket_writer::Failure;
use super::super::stats::{Meter, Reason};
use crate::buf::queue::Queue;
use crate::counters::{Counter, count};
use crate::net::egress::high_water::HighWater;
use crate::sys::tcp::coarse_millis;

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: Queue,
    /// The writer that waits for room, or for the queue to be empty.
    pub(super) waiter: Option<Waker>,
    pub(super) scheduled: bool,
    pub(super) blocked: bool,
    /// Blocked by the rate that it shares, not by the peer.
    pub(super) paced: bool,
    /// It has room again, and what waits is flushed for that.
    pub(super) room: bool,
    /// Bytes that the ring is sending.
    pub(super) away: usize,
    /// Bytes sent at which the peer's distance is looked at, and what was found to fit it.
    pub(super) look_at: u64,
    pub(super) fitted: Profile,
    /// Queued bytes beyond which writers wait, and what moves that, if anything does.
    pub(super) high: usize,
    pub(super) mark: Option<Box<HighWater>>,
    pub(super) failure: Option<Failure>,
    /// No call has returned the failure yet.
    pub(super) untold: bool,
    /// Bytes were lost, so none may follow.
    pub(super) dead: bool,
    /// The kernel refuses all writes: the sending side was ended, or reading has failed.
    pub(super) ended: bool,
    /// Bytes sent since the writing task last had to wait.
    pub(super) burst: usize,
    /// What was gathered since the last flush: writes, bytes copied, bytes held.
    pub(super) tally: (u64, usize, usize),
}

impl State {
    pub(super) fn new(options: &Options) -> Self {
        let mark = options.elastic.map(|(min, max)| Box::new(HighWater::new(min..=max, coarse_millis())));
        let high = options.elastic.map_or(options.high, |(min, _)| min);
        Self { high, mark, look_at: u64::MAX, ..Self::default() }
    }

    /// Notes that so many bytes were written, and so many sent: that may move the mark.
    #[inline]
    pub(super) fn moved(&mut self, came: usize, left: usize) {
        if let Some(mark) = &mut self.mark {
            self.high = mark.note(came, left, coarse_millis());
        }
    }

    /// Whether nobody is to send now.
    pub(super) fn is_held(&self) -> bool {
        self.blocked || self.away > 0
    }

    /// Bytes that wait to be sent.
    pub(super) fn queued(&self) -> usize {
        self.queue.len() + self.away
    }

    /// Whether the queue has nobody yet to empty it (invariant 4); whoever is told so has to schedule the stream.
    pub(super) fn needs_flush(&mut self) -> bool {
        let needs = !self.scheduled && !self.is_held() && !self.queue.is_empty();
        self.scheduled |= needs;
        needs
    }

    pub(super) fn enqueue(&mut self, slices: &[IoSlice<'_>]) {
        self.tally.0 += 1;
        for slice in slices {
            match self.queue.push(slice) {
                true => self.tally.2 += slice.len(),
                false => self.tally.1 += slice.len(),
            }
        }
    }

    /// Counts what was gathered.
    pub(super) fn settle(&mut self) {
        if self.tally.0 > 0 {
            let (writes, copied, held) = std::mem::take(&mut self.tally);
            count(Counter::Gathered, writes);
            count(Counter::BytesCopied, copied as u64);
            count(Counter::BytesHeld, held as u64);
        }
    }

    /// Why the turn flushes it.
    pub(super) fn reason(&mut self) -> Reason {
        if std::mem::take(&mut self.room) { Reason::RecvBuf } else { Reason::Turn }
    }

    /// Drops what waits: it cannot be sent any more.
    pub(super) fn lose(&mut self, meter: &Meter) {
        let lost = self.queue.clear();
        self.dead |= lost > 0;
        meter.lost(lost);
        self.settle();
    }
}
