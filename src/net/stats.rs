//! What a stream has done: noted by whoever sends and receives, read by whoever watches.
//!
//! Notes are of one writer each, the holder of the stream's lock or whoever receives, so they are plain stores. Times are
//! read off a clock that costs a few nanoseconds and ticks every few milliseconds, once for each receive and each send.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::path::IoPath;
use crate::counters::{Counter, count};
use crate::sys::tcp;
use crate::sys::tcp::{TcpInfo, coarse_millis};

/// What a stream has done so far. Times are as fine as the kernel's tick, 1 to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// The stream: its number among all of this process, from 1 on.
    pub id: u64,
    /// Bytes taken from the kernel.
    pub received: u64,
    /// Bytes the kernel took from us.
    pub sent: u64,
    /// The part of `sent` that went by `sendfile`.
    pub by_sendfile: u64,
    /// The part of `sent` that went by ring. What is in neither part went by `send` and `sendmsg`, or was spliced.
    pub by_ring: u64,
    /// Bytes that were written and wait to be handed to the kernel.
    pub queued: usize,
    /// Whether the kernel had no room for more when it was last asked, and has not said since that it has.
    pub blocked: bool,
    /// Bytes that were written and will not be sent: the stream has failed, or was dropped and its peer did not read.
    pub lost: u64,
    /// Calls that sent bytes, those of a ring included.
    pub writes: u64,
    /// Writes of callers that were taken: many may leave in one call, and a long one takes several.
    pub frames: u64,
    /// Calls for which the socket had less room than was offered.
    pub partial_writes: u32,
    /// Calls for which the socket had no room at all (`EAGAIN`).
    pub would_block: u32,
    /// Why what had gathered was sent.
    pub flushes: FlushCounts,
    /// From the stream's beginning to the first byte sent; `None`: nothing was sent yet.
    pub first_byte: Option<Duration>,
    /// The longest time from something received to the first bytes sent after it.
    pub longest_answer: Duration,
    /// The longest time from bytes sent to the next bytes sent, with nothing received in between.
    pub longest_gap: Duration,
    /// Which ways the stream may take.
    pub path: IoPath,
    /// What the kernel says. Filled in at the close; of a live stream ask [`Handle::kernel`](super::Handle::kernel).
    pub kernel: Option<KernelStats>,
}

/// What is looked at again and again by whoever watches over many streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Bytes taken from the kernel.
    pub(crate) received: u64,
    /// Bytes the kernel took from us.
    pub(crate) sent: u64,
    /// Bytes that wait to be handed to the kernel.
    pub(crate) queued: usize,
    /// The kernel had no room for more when it was last asked.
    pub(crate) blocked: bool,
    /// It waits for a rate of ours, and the peer can do nothing about it.
    pub(crate) paced: bool,
}

impl Pulse {
    /// Whether bytes wait for room in the kernel.
    pub(crate) fn waits(&self) -> bool {
        self.queued > 0 || self.blocked
    }
}

impl StreamStats {
    /// Writes of callers for each call that sent bytes; 0 before the first call.
    pub fn frames_per_write(&self) -> f64 {
        if self.writes == 0 { 0.0 } else { self.frames as f64 / self.writes as f64 }
    }
}

/// What the kernel says of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelStats {
    /// Bytes that the kernel took and that the other end has not confirmed (`SIOCOUTQ`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). Of a Unix socket: the memory that what was not read takes.
    pub unconfirmed: usize,
    /// Of a TCP connection only.
    pub tcp: Option<TcpInfo>,
}

impl KernelStats {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Self {
        Self { unconfirmed: tcp::unconfirmed(socket).unwrap_or(0), tcp: tcp::info(socket) }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident => $field:ident: $counter:expr,)+) => {
        /// Why bytes were sent: how often for each reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct FlushCounts { $($(#[$doc])+ pub $field: u32,)+ }

        /// A reason to send.
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
    /// A write went through at once, with what waited before it.
    Through => through: Some(Counter::ThroughFlushes),
    /// The end of a turn: nothing more had come, or the gather limit was reached.
    // Counted by the turn itself, with those for which there was nothing left to do.
    Turn => turn: None,
    /// A socket that was full had room again.
    RecvBuf => room: Some(Counter::RoomFlushes),
    /// The owner waited for it: `flushed`, or `flush` in the future of a `block_on`.
    Flushed => flushed: Some(Counter::AskedFlushes),
    /// The owner has ended the sending side.
    Shutdown => shutdown: Some(Counter::ShutdownFlushes),
    /// The owner has dropped the stream, or the process exits.
    Dropped => dropped: Some(Counter::DroppedFlushes),
    /// A [`copy`](mod@crate::copy) sends behind it.
    Copy => copy: Some(Counter::CopyFlushes),
}

/// What a stream notes. Small, because there is one for each connection.
#[derive(Debug)]
pub(super) struct Meter {
    /// The stream's.
    pub(super) id: u64,
    received: AtomicU64,
    sent: AtomicU64,
    by_sendfile: AtomicU64,
    by_ring: AtomicU64,
    lost: AtomicU64,
    writes: AtomicU64,
    frames: AtomicU64,
    partial_writes: AtomicU32,
    would_block: AtomicU32,
    reasons: [AtomicU32; Reason::ALL],
    /// By the coarse clock: the beginning, the last receive that nothing was sent after, and the last send. The latter two
    /// are 0 where there is none, and that millisecond counts as the next.
    since: u32,
    heard: AtomicU32,
    spoke: AtomicU32,
    /// Milliseconds; of the first byte one more, so that 0 is none.
    first_byte: AtomicU32,
    longest_answer: AtomicU32,
    longest_gap: AtomicU32,
}

/// How bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Call,
    Sendfile,
    Ring,
}

/// Adds to what only the caller adds to.
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
            by_ring: AtomicU64::new(0),
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

    /// Notes that `bytes` came. One at a time calls this, with or without the lock.
    #[inline]
    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, bytes as u64);
        self.heard.store(coarse_millis().max(1), Ordering::Relaxed);
    }

    /// Notes that a call took `bytes`. Under the lock, as all below.
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
            Way::Ring => {
                count(Counter::RingSends, 1);
                count(Counter::BytesByRing, bytes as u64);
                add(&self.by_ring, bytes as u64);
            }
        }
        self.sent_at(coarse_millis());
    }

    #[inline]
    fn sent_at(&self, now: u32) {
        match (self.heard.load(Ordering::Relaxed), self.spoke.load(Ordering::Relaxed)) {
            (0, 0) => {}
            (0, spoke) => raise(&self.longest_gap, now.wrapping_sub(spoke)),
            (heard, _) => {
                // The two clocks are one, but 0 was taken for 1.
                raise(&self.longest_answer, now.max(1).wrapping_sub(heard));
                self.heard.store(0, Ordering::Relaxed);
            }
        }
        if self.first_byte.load(Ordering::Relaxed) == 0 {
            self.first_byte.store(now.wrapping_sub(self.since).saturating_add(1), Ordering::Relaxed);
        }
        self.spoke.store(now.max(1), Ordering::Relaxed);
    }

    /// Bytes taken from the kernel.
    pub(super) fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes the kernel took from us.
    #[inline]
    pub(super) fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Notes that a caller's write was taken.
    #[inline]
    pub(super) fn frame(&self) {
        add(&self.frames, 1);
    }

    /// Notes that a call took less than it was offered.
    pub(super) fn partial(&self) {
        count(Counter::PartialWrites, 1);
        add_one(&self.partial_writes);
    }

    /// Notes that a call took nothing.
    pub(super) fn would_block(&self) {
        count(Counter::WouldBlock, 1);
        add_one(&self.would_block);
    }

    /// Notes why what waits is sent.
    #[inline]
    pub(super) fn flushes(&self, reason: Reason) {
        if let Some(counter) = reason.counter() {
            count(counter, 1);
        }
        add_one(&self.reasons[reason as usize]);
    }

    /// Notes that so many bytes will never be sent.
    pub(super) fn lost(&self, bytes: usize) {
        count(Counter::BytesLost, bytes as u64);
        add(&self.lost, bytes as u64);
    }

    /// All of it, of a stream with so many bytes queued, for which the socket has room or has not.
    pub(super) fn numbers(&self, queued: usize, blocked: bool, path: IoPath) -> StreamStats {
        let millis = |of: &AtomicU32| Duration::from_millis(of.load(Ordering::Relaxed).into());
        let first_byte = self.first_byte.load(Ordering::Relaxed).checked_sub(1);
        StreamStats {
            id: self.id,
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            by_sendfile: self.by_sendfile.load(Ordering::Relaxed),
            by_ring: self.by_ring.load(Ordering::Relaxed),
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
            path,
            kernel: None,
        }
    }
}

/// The last numbers of a stream, once it is closed.
#[derive(Debug, Default)]
pub(super) struct Record(OnceLock<Box<StreamStats>>);

impl Record {
    pub(super) fn get(&self) -> Option<StreamStats> {
        self.0.get().map(|numbers| **numbers)
    }

    /// Keeps them. Only the first are kept.
    pub(super) fn set(&self, numbers: &StreamStats) {
        let _ = self.0.set(Box::new(*numbers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small() {
        assert!(size_of::<Meter>() <= 128, "{} bytes for each connection", size_of::<Meter>());
    }

    #[test]
    fn times_are_of_what_belongs_together() {
        let meter = Meter { since: 1000, ..Meter::new() };
        let millis = |n| Duration::from_millis(n);
        assert_eq!(meter.numbers(0, false, IoPath::Auto).first_byte, None);
        meter.heard.store(1010, Ordering::Relaxed);
        meter.sent_at(1030);
        meter.sent_at(1035);
        let numbers = meter.numbers(0, false, IoPath::Auto);
        assert_eq!((numbers.first_byte, numbers.longest_answer), (Some(millis(30)), millis(20)));
        assert_eq!(numbers.longest_gap, millis(5));
        // A peer that took its time to ask again is no gap.
        meter.heard.store(9000, Ordering::Relaxed);
        meter.sent_at(9001);
        meter.sent_at(9008);
        let numbers = meter.numbers(0, false, IoPath::Auto);
        assert_eq!((numbers.longest_answer, numbers.longest_gap), (millis(20), millis(7)));
        assert_eq!(numbers.first_byte, Some(millis(30)));
    }

    #[test]
    fn times_go_over_the_end_of_the_clock() {
        let meter = Meter { since: u32::MAX - 4, ..Meter::new() };
        meter.sent_at(0);
        meter.sent_at(10);
        let numbers = meter.numbers(0, false, IoPath::Auto);
        assert_eq!(numbers.first_byte, Some(Duration::from_millis(5)));
        assert_eq!(numbers.longest_gap, Duration::from_millis(9));
        meter.heard.store(1, Ordering::Relaxed);
        meter.sent_at(0);
        assert_eq!(meter.numbers(0, false, IoPath::Auto).longest_answer, Duration::ZERO);
    }
}
