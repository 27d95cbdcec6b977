//! Queue of the bytes to send on one stream, in order.
//!
//! A [`Queue`] is a list of segments: *copied* bytes in pool memory, *held* bytes shared with their owner, *given*
//! bytes, and pieces of *files* for `sendfile`. It fills slices without allocating and advances by any number of bytes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};

use super::origin::{Kept, Origin, OriginSlice, is_torn};
use super::pool::{self, Lease};
use super::slab::Block;
use crate::counters::QUEUED as ALL;
use crate::sys::fd::BorrowedFd;

/// Size of the first chunk of copied bytes: enough for most events and response heads.
const FIRST_CHUNK: usize = 4 << 10;
const NEXT_CHUNK: usize = 16 << 10;
/// Size of a chunk for one event, or after bytes that are not copied: the next segment is unlikely to be copied.
const SMALL_CHUNK: usize = 512;

const KEEP_MIN: usize = 2 << 10;
/// Minimum length of [`Bytes`] that are kept by reference: this needs no look-up and no new reference.
const GIVEN_MIN: usize = 512;

/// Pool memory that a queue may keep by reference at any length: one block of the largest class.
const PINNED_FREE: usize = 256 << 10;

/// Minimum length of a slice that is sent from its file. Many HTTP/2 frames, of 16 KiB each, fit one call.
const FILE_MIN: usize = 32 << 10;

/// Number of bytes that a queue does not account for: most queues never hold more.
const FREE: usize = 4 << 10;
/// Step in which a queue accounts for its bytes, so that few pushes update the counter shared by all threads.
const STEP: usize = 16 << 10;

/// Segments in the order in which they are sent.
///
/// # Memory
///
/// A slice that is kept by reference keeps its whole pool block, up to 256 KiB. A queue keeps at most 256 KiB of blocks
/// plus twice the bytes waiting in it; it copies slices beyond that. Consecutive slices of one block count once.
/// [`Bytes`] outside the pool are kept without this limit, because their memory use is unknown.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    segments: VecDeque<Segment>,
    len: usize,
    pinned: usize,
    accounted: usize,
    /// Number of bytes copied since the queue was last empty, and the approximate number in each earlier period.
    copied: usize,
    usual: usize,
}

#[derive(Debug)]
enum Segment {
    /// Bytes in memory of this queue; the bytes before `from` are sent.
    Copied {
        lease: Lease,
        from: usize,
    },
    Held(Kept, Pin),
    Given(Bytes, Pin),
    /// Same as `Held`, but long enough to be sent from the file.
    File(Kept),
}

#[derive(Debug, Default)]
struct Pin {
    block: Option<Block>,
    /// Number of bytes added to `Queue::pinned`: the block's size, or 0 if the previous segment keeps the same block.
    counted: usize,
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied { lease, from } => &lease.as_ref()[*from..],
            Self::Given(bytes, _) => bytes,
            Self::Held(kept, _) | Self::File(kept) => kept.as_ref(),
        }
    }

    fn pin(&mut self) -> Option<&mut Pin> {
        match self {
            Self::Held(_, pin) | Self::Given(_, pin) => Some(pin),
            Self::Copied { .. } | Self::File(_) => None,
        }
    }
}

/// The front of a [`Queue`].
#[derive(Debug)]
pub(crate) enum Front<'a> {
    Memory {
        /// Number of slices filled.
        slices: usize,
        /// Whether more bytes follow the slices.
        more: bool,
    },
    /// A piece of a file, sent by `sendfile`.
    File { file: BorrowedFd<'a>, offset: u64, len: usize },
}

impl Queue {
    /// Number of bytes in all queues of the process at which they count as full.
    pub(crate) const ALL_MAX: usize = 256 << 20;

    /// Returns the number of bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the queues of the process together hold 256 MiB or more. Callers should then not add bytes that
    /// can wait elsewhere.
    pub(crate) fn all_are_full() -> bool {
        ALL.load(Ordering::Relaxed) >= Self::ALL_MAX
    }

    /// Returns the number of bytes in the queues of the process, without the first 4 KiB of each.
    pub(crate) fn all() -> usize {
        ALL.load(Ordering::Relaxed)
    }

    /// Returns whether all bytes are memory and leave room in a call of `limit` slices.
    pub(crate) fn fits_one_call(&self, limit: usize) -> bool {
        self.segments.len() < limit && !self.segments.iter().any(|s| matches!(s, Segment::File(_)))
    }

    /// Appends `slice`. Long slices of a mapped file or of a [frozen](Lease::freeze) lease that is not [too
    /// large](Self#memory) are kept by reference, others are copied. Returns whether no copy was made.
    #[inline]
    pub(crate) fn push(&mut self, slice: OriginSlice<'_>) -> bool {
        let bytes = slice.bytes();
        // The common way: a short slice behind others.
        if bytes.len() < KEEP_MIN && matches!(self.segments.back(), Some(Segment::Copied { .. })) {
            self.push_copy(bytes);
            return false;
        }
        self.push_long(slice)
    }

    fn push_long(&mut self, slice: OriginSlice<'_>) -> bool {
        let bytes = slice.bytes();
        if let Some(Segment::File(kept)) = self.segments.back_mut()
            && kept.extend(slice)
        {
            self.len += bytes.len();
            self.account();
            return true;
        }
        let pin = if bytes.len() >= KEEP_MIN { self.pin(slice) } else { None };
        let kept = pin.and_then(|pin| Some((Kept::of(slice)?, pin)));
        let held = kept.is_some();
        match kept {
            Some((kept, _)) if bytes.len() >= FILE_MIN && slice.is_sent_from_file() => {
                self.push_segment(Segment::File(kept));
            }
            Some((kept, pin)) => self.push_segment(Segment::Held(kept, pin)),
            None => self.push_copy(bytes),
        }
        held
    }

    /// Appends `bytes` without a copy, unless they are short or keep [too much](Self#memory) pool memory. Returns
    /// whether no copy was made.
    pub(crate) fn push_bytes(&mut self, bytes: Bytes) -> bool {
        let pin = if bytes.len() >= GIVEN_MIN { self.pin(OriginSlice::new(&bytes)) } else { None };
        let given = pin.is_some();
        match pin {
            Some(pin) => self.push_segment(Segment::Given(bytes, pin)),
            None => self.push_copy(&bytes),
        }
        given
    }

    /// Returns the pool memory kept by keeping `slice` by reference; `None` if it exceeds the limit of the queue.
    fn pin(&mut self, slice: OriginSlice<'_>) -> Option<Pin> {
        let block = if let Origin::Block(block) = slice.origin { Some(block) } else { None };
        let last = self.segments.back_mut().and_then(Segment::pin).and_then(|pin| pin.block);
        let counted = block.filter(|_| block != last).map_or(0, Block::size);
        let fits = counted == 0 || self.pinned + counted <= PINNED_FREE + 2 * (self.len + slice.bytes().len());
        fits.then_some(Pin { block, counted })
    }

    #[inline]
    fn account(&mut self) {
        if self.len > self.accounted + FREE {
            let more = (self.len - FREE - self.accounted).next_multiple_of(STEP);
            ALL.fetch_add(more, Ordering::Relaxed);
            self.accounted += more;
        }
    }

    fn settle(&mut self) {
        if self.len == 0 && self.accounted > 0 {
            ALL.fetch_sub(std::mem::take(&mut self.accounted), Ordering::Relaxed);
        }
    }

    fn push_segment(&mut self, mut segment: Segment) {
        self.len += segment.bytes().len();
        self.pinned += segment.pin().map_or(0, |pin| pin.counted);
        self.segments.push_back(segment);
        self.account();
    }

    /// Drops the first segment. If the next segment keeps the same block, it takes over the block's count.
    fn pop_segment(&mut self) {
        let mut first = self.segments.pop_front();
        let Some(pin) = first.as_mut().and_then(Segment::pin) else { return };
        match self.segments.front_mut().and_then(Segment::pin) {
            Some(next) if next.block == pin.block && next.counted == 0 => next.counted = pin.counted,
            _ => self.pinned -= pin.counted,
        }
    }

    #[inline]
    fn push_copy(&mut self, mut bytes: &[u8]) {
        let len = bytes.len();
        if let Some(Segment::Copied { lease, .. }) = self.segments.back_mut() {
            let fits = bytes.len().min(lease.spare_len());
            lease.extend_from_slice(&bytes[..fits]);
            self.len += fits;
            bytes = &bytes[fits..];
            self.account();
        }
        if !bytes.is_empty() {
            self.push_chunk(bytes);
        }
        self.copied += len;
    }

    fn push_chunk(&mut self, bytes: &[u8]) {
        let chunk = match self.segments.back() {
            // A stream that writes one small event writes more: small chunks are close together in memory.
            None => {
                self.usual = (self.usual / 2).max(std::mem::take(&mut self.copied));
                if (1..=SMALL_CHUNK).contains(&self.usual) { SMALL_CHUNK } else { FIRST_CHUNK }
            }
            Some(Segment::Copied { .. }) => NEXT_CHUNK,
            Some(_) => SMALL_CHUNK,
        };
        let mut lease = pool::lease(chunk.max(bytes.len()));
        lease.extend_from_slice(bytes);
        self.push_segment(Segment::Copied { lease, from: 0 });
    }

    /// Returns the segments before the first piece of a file, or all if pieces of files are not sent `from_files`.
    fn memory(&self, from_files: bool) -> impl Iterator<Item = &Segment> {
        self.segments.iter().take_while(move |segment| !(from_files && matches!(segment, Segment::File(_))))
    }

    /// Fills `out` with the memory before the first piece of a file, or returns that piece. Pieces of files count as
    /// memory unless they are sent `from_files`. Allocates nothing.
    pub(crate) fn front<'a>(&'a self, out: &mut [IoSlice<'a>], from_files: bool) -> Front<'a> {
        if from_files && let Some(Segment::File(kept)) = self.segments.front() {
            let (file, offset) = kept.file().expect("internal: the segment is a piece of a file");
            return Front::File { file, offset, len: kept.as_ref().len() };
        }
        let filled = self.memory(from_files).zip(out).map(|(segment, slot)| *slot = IoSlice::new(segment.bytes()));
        let slices = filled.count();
        Front::Memory { slices, more: slices < self.segments.len() }
    }

    pub(crate) fn pieces(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.segments.iter().map(Segment::bytes)
    }

    /// Drops the first `n` bytes after they were sent.
    ///
    /// Panics if the queue holds fewer.
    pub(crate) fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "advancing {n} bytes of {}", self.len);
        self.len -= n;
        while n > 0 {
            let front = self.segments.front_mut().expect("internal: `len` is the sum of the segment lengths");
            let len = front.bytes().len();
            if n >= len {
                n -= len;
                self.pop_segment();
                continue;
            }
            match front {
                Segment::Copied { from, .. } => *from += n,
                Segment::Given(bytes, _) => bytes.advance(n),
                Segment::Held(kept, _) | Segment::File(kept) => kept.advance(n),
            }
            n = 0;
        }
        self.settle();
    }

    /// Returns whether one of at most `limit` slices that [`front`](Self::front) fills is torn.
    pub(crate) fn is_torn(&self, limit: usize, from_files: bool) -> bool {
        self.memory(from_files).take(limit).any(|segment| match segment {
            Segment::Copied { .. } => false,
            Segment::Given(bytes, _) => is_torn(bytes),
            Segment::Held(kept, _) | Segment::File(kept) => kept.is_torn(),
        })
    }

    /// Drops all bytes and returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        self.segments.clear();
        self.pinned = 0;
        let dropped = std::mem::take(&mut self.len);
        self.settle();
        dropped
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
