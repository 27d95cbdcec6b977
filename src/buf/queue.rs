//! Bytes that wait to be sent on one stream, in order.
//!
//! A [`Queue`] is a list of segments: *copied* bytes in pool memory, *kept* bytes shared with their owner, *given*
//! bytes, and pieces of *files* for `sendfile`. It fills slices without allocating and advances by any count.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};

use super::origin::{Kept, block_of, is_sent_from_file, is_torn};
use super::pool::{self, Lease};
use super::slab::Block;
use crate::counters::QUEUED as ALL;

/// First chunk of copied bytes: enough for most events and heads.
const FIRST_CHUNK: usize = 4 << 10;
/// Later chunks: a stream that fills the first chunk writes in bulk.
const NEXT_CHUNK: usize = 16 << 10;
/// A chunk for one event, or behind bytes that are not copied, such as a frame's head: the next segment is unlikely to
/// be copied either.
const SMALL_CHUNK: usize = 512;

/// Slices of known origin at least this long are kept rather than copied.
const KEEP_MIN: usize = 2 << 10;
/// Bytes given to the queue are kept from this length on: keeping them takes no look-up and no new share.
const GIVEN_MIN: usize = 512;

/// Pool memory that a queue may keep by reference regardless of its length: one block of the largest class.
const PINNED_FREE: usize = 256 << 10;

/// Slices of files at least this long are sent from the file. Many HTTP/2 frames, of 16 KiB each, fit one call.
const FILE_MIN: usize = 32 << 10;

/// Bytes that a queue does not account for: most queues never hold more.
const FREE: usize = 4 << 10;
/// Step in which a queue accounts for its bytes, so that few pushes touch the counter that all threads share.
const STEP: usize = 16 << 10;

/// Segments in the order in which they are to be sent.
///
/// # Memory
///
/// A slice that is kept by reference keeps its whole pool block, up to 256 KiB. A queue keeps at most 256 KiB of blocks
/// plus twice as many bytes as wait in it; slices beyond that are copied. Successive slices of one block count once.
/// [`Bytes`] whose memory is not the pool's are kept without this limit: their memory use is not known here.
///
/// ```
/// use millstream::buf::{Front, Queue};
/// use std::io::IoSlice;
///
/// let mut queue = Queue::default();
/// queue.push(b"hello ");
/// queue.push(b"world");
/// let mut slices = [IoSlice::new(&[]); 8];
/// let Front::Memory { slices: n, .. } = queue.front(&mut slices) else { panic!() };
/// assert_eq!((n, &slices[0][..]), (1, &b"hello world"[..]));
/// queue.advance(11);
/// assert!(queue.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Queue {
    segments: VecDeque<Segment>,
    /// Sum of the segments' lengths.
    len: usize,
    /// Bytes of the blocks that segments keep by reference.
    pinned: usize,
    /// Bytes that this queue has added to `ALL`.
    accounted: usize,
    /// Bytes copied since the queue was last empty, and the approximate number copied each time before.
    copied: usize,
    usual: usize,
}

#[derive(Debug)]
enum Segment {
    /// Bytes in memory of this queue; those before `from` are sent.
    Copied { lease: Lease, from: usize },
    /// Bytes shared with their owner.
    Held(Kept, Pin),
    /// Bytes that were given away to the queue.
    Given(Bytes, Pin),
    /// As `Held`, but long enough to be sent from the file itself.
    File(Kept),
}

/// Pool memory that a segment keeps.
#[derive(Debug, Default)]
struct Pin {
    block: Option<Block>,
    /// Bytes added to `Queue::pinned`: the block's size, or 0 if the segment before it keeps the same block.
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
#[non_exhaustive]
pub enum Front<'a> {
    /// Nothing waits.
    Empty,
    /// Memory.
    #[non_exhaustive]
    Memory {
        /// Slices that were filled.
        slices: usize,
        /// Whether anything follows them.
        more: bool,
    },
    /// A piece of a file, to be sent by `sendfile`.
    #[non_exhaustive]
    File {
        /// The file.
        file: BorrowedFd<'a>,
        /// Start of the piece, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: usize,
    },
}

impl Queue {
    /// Bytes of all queues together beyond which they are full.
    pub(crate) const ALL_MAX: usize = 256 << 20;

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the queues of the process together hold so many bytes, 256 MiB, that bytes which can wait elsewhere
    /// should not be added.
    pub fn all_are_full() -> bool {
        ALL.load(Ordering::Relaxed) >= Self::ALL_MAX
    }

    /// Bytes that the queues of the process hold together, without the first 4 KiB of each.
    pub(crate) fn all() -> usize {
        ALL.load(Ordering::Relaxed)
    }

    /// Whether all waiting bytes are memory and leave room in a call of `limit` slices.
    pub(crate) fn fits_one_call(&self, limit: usize) -> bool {
        self.segments.len() < limit && !self.segments.iter().any(|s| matches!(s, Segment::File(_)))
    }

    /// Appends `bytes`: by a share if they are long and lie in a mapped file or in a [frozen](Lease::freeze) lease that
    /// is not [too large](Self#memory) for them, else by a copy. Returns whether no copy was made.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if let Some(Segment::File(kept)) = self.segments.back_mut()
            && kept.extend(bytes)
        {
            self.len += bytes.len();
            self.account();
            return true;
        }
        let pin = if bytes.len() >= KEEP_MIN { self.pin(bytes) } else { None };
        let kept = pin.and_then(|pin| Some((Kept::of(bytes)?, pin)));
        let held = kept.is_some();
        match kept {
            Some((kept, _)) if bytes.len() >= FILE_MIN && is_sent_from_file(bytes) => {
                self.push_segment(Segment::File(kept));
            }
            Some((kept, pin)) => self.push_segment(Segment::Held(kept, pin)),
            None => self.push_copy(bytes),
        }
        self.account();
        held
    }

    /// Appends `bytes` without a copy, unless they are short or keep [too much](Self#memory) pool memory. Returns
    /// whether they were kept without a copy.
    pub fn push_bytes(&mut self, bytes: Bytes) -> bool {
        let pin = if bytes.len() >= GIVEN_MIN { self.pin(&bytes) } else { None };
        let given = pin.is_some();
        match pin {
            Some(pin) => self.push_segment(Segment::Given(bytes, pin)),
            None => self.push_copy(&bytes),
        }
        self.account();
        given
    }

    /// Pool memory that the queue keeps if it keeps `bytes` by reference; `None` if it exceeds the queue's limit.
    fn pin(&mut self, bytes: &[u8]) -> Option<Pin> {
        let block = block_of(bytes);
        let last = self.segments.back_mut().and_then(Segment::pin).and_then(|pin| pin.block);
        let counted = block.filter(|_| block != last).map_or(0, |block| block.size);
        let fits = counted == 0 || self.pinned + counted <= PINNED_FREE + 2 * (self.len + bytes.len());
        fits.then_some(Pin { block, counted })
    }

    /// Adds new bytes to `ALL`.
    fn account(&mut self) {
        if self.len > self.accounted + FREE {
            let more = (self.len - FREE - self.accounted).next_multiple_of(STEP);
            ALL.fetch_add(more, Ordering::Relaxed);
            self.accounted += more;
        }
    }

    /// Takes an empty queue's share out of `ALL`.
    fn settle(&mut self) {
        if self.len == 0 && self.accounted > 0 {
            ALL.fetch_sub(std::mem::take(&mut self.accounted), Ordering::Relaxed);
        }
    }

    fn push_segment(&mut self, mut segment: Segment) {
        self.len += segment.bytes().len();
        self.pinned += segment.pin().map_or(0, |pin| pin.counted);
        self.segments.push_back(segment);
    }

    /// Drops the first segment. If the next segment keeps the same block, the block is counted there from now on.
    fn pop_segment(&mut self) {
        let mut first = self.segments.pop_front();
        let Some(pin) = first.as_mut().and_then(Segment::pin) else { return };
        match self.segments.front_mut().and_then(Segment::pin) {
            Some(next) if next.block == pin.block && next.counted == 0 => next.counted = pin.counted,
            _ => self.pinned -= pin.counted,
        }
    }

    fn push_copy(&mut self, mut bytes: &[u8]) {
        let len = bytes.len();
        if let Some(Segment::Copied { lease, .. }) = self.segments.back_mut() {
            let fits = bytes.len().min(lease.spare_len());
            lease.extend_from_slice(&bytes[..fits]);
            self.len += fits;
            bytes = &bytes[fits..];
        }
        if !bytes.is_empty() {
            let chunk = match self.segments.back() {
                // A stream that writes one small event writes more: small chunks lie close together.
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
        self.copied += len;
    }

    /// Fills `out` with the memory up to the first piece of a file, or returns that piece. Allocates nothing.
    pub fn front<'a>(&'a self, out: &mut [IoSlice<'a>]) -> Front<'a> {
        if let Some(Segment::File(kept)) = self.segments.front() {
            let (file, offset) = kept.file().expect("internal: pushed as a piece of a file");
            return Front::File { file, offset, len: kept.as_ref().len() };
        }
        let mut slices = 0;
        let mut bytes = 0;
        for (segment, slot) in self.segments.iter().zip(out) {
            if matches!(segment, Segment::File(_)) {
                break;
            }
            *slot = IoSlice::new(segment.bytes());
            slices += 1;
            bytes += segment.bytes().len();
        }
        if slices == 0 { Front::Empty } else { Front::Memory { slices, more: bytes < self.len } }
    }

    /// As [`front`](Self::front), but pieces of files are given as memory, too.
    pub(crate) fn front_memory<'a>(&'a self, out: &mut [IoSlice<'a>]) -> Front<'a> {
        let slices = self.pieces().zip(&mut *out).map(|(piece, slot)| *slot = IoSlice::new(piece)).count();
        if slices == 0 { Front::Empty } else { Front::Memory { slices, more: slices < self.segments.len() } }
    }

    /// All waiting bytes, in order and as memory: for writers that cannot send files.
    pub(crate) fn pieces(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.segments.iter().map(Segment::bytes)
    }

    /// Drops the first `n` bytes, which were sent.
    ///
    /// # Panics
    ///
    /// If fewer than `n` bytes wait.
    pub fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "advancing {n} bytes of {}", self.len);
        self.len -= n;
        while n > 0 {
            let front = self.segments.front_mut().expect("internal: the lengths add up");
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

    /// Whether memory among the first `limit` pieces may hold zeros that are not contents of the file.
    pub(crate) fn is_torn(&self, limit: usize) -> bool {
        let mut front = self.segments.iter().take(limit);
        front.any(|segment| matches!(segment, Segment::Held(..) | Segment::Given(..)) && is_torn(segment.bytes()))
    }

    /// Passes at most `limit` pieces of memory at the front to `piece`. Returns whether anything follows them.
    pub(crate) fn for_front(&self, limit: usize, mut piece: impl FnMut(&[u8])) -> bool {
        let memory = self.segments.iter().take_while(|segment| !matches!(segment, Segment::File(_)));
        memory.take(limit).map(|segment| piece(segment.bytes())).count() < self.segments.len()
    }

    /// Whether a piece of a file is next.
    pub(crate) fn is_file_next(&self) -> bool {
        matches!(self.segments.front(), Some(Segment::File(_)))
    }

    /// Appends `other`.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.segments.append(&mut other.segments);
        self.len += std::mem::take(&mut other.len);
        self.pinned += std::mem::take(&mut other.pinned);
        self.accounted += std::mem::take(&mut other.accounted);
    }

    /// The first run of kept memory of at least `min` bytes among the first `limit` pieces: the number of pieces before
    /// it, and shares in its pieces.
    pub(crate) fn kept_run(&self, min: usize, limit: usize) -> Option<(usize, Shares)> {
        let pieces = self.segments.len().min(limit);
        let is_kept = |n: &usize| matches!(self.segments[*n], Segment::Held(..));
        let mut before = 0;
        while before < pieces {
            before = (before..pieces).find(is_kept)?;
            let end = (before..pieces).find(|n| !is_kept(n)).unwrap_or(pieces);
            let run = self.segments.range(before..end).map(Segment::bytes);
            if run.clone().map(<[u8]>::len).sum::<usize>() >= min {
                return Some((before, Shares(run.map(Kept::of).collect::<Option<_>>()?)));
            }
            before = end;
        }
        None
    }

    /// Drops everything, and returns the number of bytes dropped.
    pub fn clear(&mut self) -> usize {
        self.segments.clear();
        self.pinned = 0;
        let dropped = std::mem::take(&mut self.len);
        self.settle();
        dropped
    }
}

/// Shares in pieces of a queue, which keep their memory as it is.
#[derive(Debug)]
pub(crate) struct Shares(Vec<Kept>);

impl Shares {
    /// Number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
