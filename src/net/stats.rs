//! Statistics of a stream: written by its sender and receiver, read by observers.
//!
//! Each value has one writer, the holder of the stream's lock or the receiver, so plain stores suffice. Times come from
//! a clock that costs a few nanoseconds and ticks every few milliseconds, read once per receive and send.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::send_strategy::SendStrategy;
use crate::counters::{Counter, count, count_all};
use crate::sys::clock::coarse_millis;
use crate::sys::fd::BorrowedFd;
use crate::sys::tcp;
use crate::sys::tcp_info::TcpInfo;

/// Statistics of a stream. Times have the resolution of the kernel's tick, 1 to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Number of the stream, unique in this process, starting at 1.
    pub id: u64,
    /// Bytes received from the kernel.
    pub received: u64,
    /// Bytes that the kernel has accepted.
    pub sent: u64,
    /// The part of `sent` that used `sendfile`. The rest used `send`, `sendmsg` or `splice`.
    pub by_sendfile: u64,
    /// Bytes written but not handed to the kernel yet.
    pub queued: usize,
    /// Whether the socket was full at the last send and has not become writable since.
    pub blocked: bool,
    /// Bytes written that will never be sent, because the stream has failed, or was dropped while its peer did not
    /// read.
    pub lost: u64,
    /// Calls that sent bytes.
    pub writes: u64,
    /// Accepted writes of callers: one call may send many of them, and a long one takes several calls.
    pub frames: u64,
    /// Calls that sent only a part, because the socket had less room.
    pub partial_writes: u32,
    /// Calls that sent nothing, because the socket had no room (`EAGAIN`).
    pub would_block: u32,
    /// Number of flushes by reason.
    pub flushes: FlushCounts,
    /// Time from the start of the stream to the first byte sent; `None` if nothing was sent yet.
    pub first_byte: Option<Duration>,
    /// Longest time from receiving bytes to the first bytes sent after them.
    pub longest_answer: Duration,
    /// Longest time between two sends with nothing received in between.
    pub longest_gap: Duration,
    /// Strategy of the stream's writes.
    pub send_strategy: SendStrategy,
    /// Kernel statistics, set on close; for a live stream use [`Handle::kernel`](super::Handle::kernel).
    pub kernel: Option<KernelStats>,
}

/// Statistics that observers of many streams read often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) queued: usize,
    pub(crate) blocked: bool,
    /// Whether the stream waits for a shared rate, not for the peer.
    pub(crate) paced: bool,
}

impl Pulse {
    pub(crate) fn waits(&self) -> bool {
        self.queued > 0 || self.blocked
    }
}

/// Kernel statistics of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelStats {
    /// Bytes that the peer has not acknowledged (`SIOCOUTQ`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). For a Unix socket, the memory of unread bytes.
    pub unconfirmed: usize,
    /// Statistics of a TCP connection; `None` for other sockets.
    pub tcp: Option<TcpInfo>,
}

impl KernelStats {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Self {
        Self { unconfirmed: tcp::unconfirmed(socket).unwrap_or(0), tcp: tcp::info(socket) }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident => $field:ident: $counter:expr,)+) => {
        /// Number of flushes by reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct FlushCounts { $($(#[$doc])+ pub $field: u32,)+ }

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Reason { $($name,)+ }

        impl Reason {
            const ALL: usize = [$(stringify!($name),)+].len();

            fn counter(self) -> Option<Counter> {
                match self { $(Self::$name => $counter,)+ }
            }
        }

        impl FlushCounts {
            fn of(meter: &Meter) -> Self {
                let get = |reason: Reason| meter.reasons[reason as usize].load(Ordering::Relaxed);
                Self { $($field: get(Reason::$name),)+ }
            }
        }
    };
}

reasons! {
    /// A write was sent at once, with the bytes queued before it.
    Through => through: Some(Counter::ThroughFlushes),
    /// The end of a turn: no more writes came, or the gather limit was reached.
    // The flusher counts it, including flushes with no bytes left.
    Turn => turn: None,
    /// A full socket had room again.
    Room => room: Some(Counter::RoomFlushes),
    /// The owner waited: `flushed`, or `flush` in the future of a `block_on`.
    Flushed => flushed: Some(Counter::AskedFlushes),
    /// The owner closed the sending side.
    Shutdown => shutdown: Some(Counter::ShutdownFlushes),
    /// The owner dropped the stream, or the process exits.
    Dropped => dropped: Some(Counter::DroppedFlushes),
    /// A [`copy`](mod@crate::copy) sends after the queued bytes.
    Copy => copy: Some(Counter::CopyFlushes),
}

/// Counters of a stream. Small, because every connection has one.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) id: u64,
    received: AtomicU64,
    sent: AtomicU64,
    by_sendfile: AtomicU64,
    lost: AtomicU64,
    writes: AtomicU64,
    frames: AtomicU64,
    partial_writes: AtomicU32,
    would_block: AtomicU32,
    reasons: [AtomicU32; Reason::ALL],
    /// Coarse times of the start, of the last receive without a send after it, and of the last send. The latter two are
    /// 0 if there is none; the millisecond 0 is stored as 1.
    since: u32,
    heard: AtomicU32,
    spoke: AtomicU32,
    /// In milliseconds; the first byte plus one, so that 0 means none.
    first_byte: AtomicU32,
    longest_answer: AtomicU32,
    longest_gap: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Call,
    Sendfile,
}

fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

fn add_one(to: &AtomicU32) {
    to.store(to.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

fn raise(to: &AtomicU32, millis: u32) {
    if millis > to.load(Ordering::Relaxed) {
        to.store(millis, Ordering::Relaxed);
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        Self {
            id: STREAMS.fetch_add(1, Ordering::Relaxed) + 1,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            by_sendfile: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            partial_writes: AtomicU32::new(0),
            would_block: AtomicU32::new(0),
            reasons: [const { AtomicU32::new(0) }; Reason::ALL],
            since: coarse_millis(),
            heard: AtomicU32::new(0),
            spoke: AtomicU32::new(0),
            first_byte: AtomicU32::new(0),
            longest_answer: AtomicU32::new(0),
            longest_gap: AtomicU32::new(0),
        }
    }

    /// Counts received bytes. Calls must not be concurrent; the lock is not required.
    #[inline]
    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, bytes as u64);
        self.heard.store(coarse_millis().max(1), Ordering::Relaxed);
    }

    /// Counts a call that sent `bytes`. Requires the lock, like the methods below.
    #[inline]
    pub(super) fn sent(&self, bytes: usize, way: Way) {
        count(Counter::Writes, 1);
        count(Counter::BytesWritten, bytes as u64);
        add(&self.writes, 1);
        add(&self.sent, bytes as u64);
        match way {
            Way::Call => {}
            Way::Sendfile => {
                count(Counter::BytesBySendfile, bytes as u64);
                add(&self.by_sendfile, bytes as u64);
            }
        }
        self.sent_at(coarse_millis());
    }

    /// Counts an accepted write of `bytes` that one call has sent at once. As [`sent`](Self::sent), `frame` and
    /// `count_flush`, in one step.
    #[inline]
    pub(super) fn sent_at_once(&self, bytes: usize) {
        count_all([(Counter::Writes, 1), (Counter::BytesWritten, bytes as u64), (Counter::ThroughFlushes, 1)]);
        for (counter, n) in [(&self.writes, 1), (&self.sent, bytes as u64), (&self.frames, 1)] {
            add(counter, n);
        }
        add_one(&self.reasons[Reason::Through as usize]);
        self.sent_at(coarse_millis());
    }

    #[inline]
    fn sent_at(&self, now: u32) {
        match (self.heard.load(Ordering::Relaxed), self.spoke.load(Ordering::Relaxed)) {
            (0, 0) => {}
            (0, spoke) => raise(&self.longest_gap, now.wrapping_sub(spoke)),
            (heard, _) => {
                // Both times are from the same clock, but 0 is stored as 1.
                raise(&self.longest_answer, now.max(1).wrapping_sub(heard));
                self.heard.store(0, Ordering::Relaxed);
            }
        }
        if self.first_byte.load(Ordering::Relaxed) == 0 {
            self.first_byte.store(now.wrapping_sub(self.since).saturating_add(1), Ordering::Relaxed);
        }
        self.spoke.store(now.max(1), Ordering::Relaxed);
    }

    pub(super) fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn frame(&self) {
        add(&self.frames, 1);
    }

    pub(super) fn partial(&self) {
        count(Counter::PartialWrites, 1);
        add_one(&self.partial_writes);
    }

    pub(super) fn would_block(&self) {
        count(Counter::WouldBlock, 1);
        add_one(&self.would_block);
    }

    #[inline]
    pub(super) fn count_flush(&self, reason: Reason) {
        if let Some(counter) = reason.counter() {
            count(counter, 1);
        }
        add_one(&self.reasons[reason as usize]);
    }

    pub(super) fn lost(&self, bytes: usize) {
        count(Counter::BytesLost, bytes as u64);
        add(&self.lost, bytes as u64);
    }

    pub(super) fn stats(&self, queued: usize, blocked: bool, send_strategy: SendStrategy) -> StreamStats {
        let millis = |of: &AtomicU32| Duration::from_millis(of.load(Ordering::Relaxed).into());
        let first_byte = self.first_byte.load(Ordering::Relaxed).checked_sub(1);
        StreamStats {
            id: self.id,
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            by_sendfile: self.by_sendfile.load(Ordering::Relaxed),
            queued,
            blocked,
            lost: self.lost.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            frames: self.frames.load(Ordering::Relaxed),
            partial_writes: self.partial_writes.load(Ordering::Relaxed),
            would_block: self.would_block.load(Ordering::Relaxed),
            flushes: FlushCounts::of(self),
            first_byte: first_byte.map(|millis| Duration::from_millis(millis.into())),
            longest_answer: millis(&self.longest_answer),
            longest_gap: millis(&self.longest_gap),
            send_strategy,
            kernel: None,
        }
    }
}

/// The last statistics of a stream, once it is closed.
#[derive(Debug, Default)]
pub(super) struct Record(OnceLock<Box<StreamStats>>);

impl Record {
    pub(super) fn get(&self) -> Option<StreamStats> {
        self.0.get().map(|numbers| **numbers)
    }

    pub(super) fn set(&self, numbers: &StreamStats) {
        let _ = self.0.set(Box::new(*numbers));
    }
}

#[cfg(test)]
mod tests;
