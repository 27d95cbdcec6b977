//! What waits to be sent on one stream, in order.
//!
//! A [`Queue`] is a list of segments: *copied* bytes in pool memory, *kept* bytes shared with their owner, and pieces of
//! *files* long enough for `sendfile`. It fills a caller's slices without allocating and is advanced by any count.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use super::origin::Kept;
use super::pool::{self, Lease};

/// First chunk of copied bytes: enough for most events and heads.
const FIRST_CHUNK: usize = 4 << 10;
/// Later chunks: whoever filled the first writes in bulk.
const NEXT_CHUNK: usize = 16 << 10;

/// Segments in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    segments: VecDeque<Segment>,
    /// Sum of the segments' lengths.
    len: usize,
}

#[derive(Debug)]
enum Segment {
    /// Bytes of ours; those before `from` are sent.
    Copied { lease: Lease, from: usize },
    /// Bytes shared with their owner.
    Held(Kept),
    /// As `Held`, but long enough to be sent from the file itself.
    File(Kept),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied { lease, from } => &lease.as_ref()[*from..],
            Self::Held(kept) | Self::File(kept) => kept.as_ref(),
        }
    }
}

/// What is at the front of a queue.
#[derive(Debug)]
pub(crate) enum Front<'a> {
    /// Nothing waits.
    Empty,
    /// Memory: `slices` of them were filled; `more` says whether anything follows.
    Memory { slices: usize, more: bool },
    /// A piece of a file.
    File { file: BorrowedFd<'a>, offset: u64, len: usize },
}

impl Queue {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether everything that waits is memory and leaves room in a call of `limit` slices.
    pub(crate) fn fits_one_call(&self, limit: usize) -> bool {
        self.segments.len() < limit && !self.segments.iter().any(|s| matches!(s, Segment::File(_)))
    }

    /// Appends a copy of `bytes`.
    pub(crate) fn push_copy(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        if let Some(Segment::Copied { lease, .. }) = self.segments.back_mut() {
            let fits = bytes.len().min(lease.spare_len());
            lease.extend_from_slice(&bytes[..fits]);
            bytes = &bytes[fits..];
        }
        if !bytes.is_empty() {
            let chunk = if self.segments.is_empty() { FIRST_CHUNK } else { NEXT_CHUNK };
            let mut lease = pool::lease(chunk.max(bytes.len()));
            lease.extend_from_slice(bytes);
            self.segments.push_back(Segment::Copied { lease, from: 0 });
        }
    }

    /// Appends bytes kept by a share in their origin; `from_file` if they are to be sent from the file behind them.
    pub(crate) fn push_kept(&mut self, kept: Kept, from_file: bool) {
        let len = kept.as_ref().len();
        debug_assert!(!from_file || kept.file().is_some());
        if len > 0 {
            self.len += len;
            self.segments.push_back(if from_file { Segment::File(kept) } else { Segment::Held(kept) });
        }
    }

    /// Fills `out` with the memory at the front, up to the first piece of a file, or gives that piece.
    pub(crate) fn front<'a>(&'a self, out: &mut [IoSlice<'a>]) -> Front<'a> {
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

    /// Drops the first `n` bytes: they were sent.
    pub(crate) fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "internal: advancing {n} bytes of {}", self.len);
        self.len -= n;
        while n > 0 {
            let front = self.segments.front_mut().expect("internal: the lengths add up");
            let len = front.bytes().len();
            if n >= len {
                n -= len;
                self.segments.pop_front();
                continue;
            }
            match front {
                Segment::Copied { from, .. } => *from += n,
                Segment::Held(kept) | Segment::File(kept) => kept.advance(n),
            }
            n = 0;
        }
    }

    /// Drops everything, and says how many bytes that was.
    pub(crate) fn clear(&mut self) -> usize {
        self.segments.clear();
        std::mem::take(&mut self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::origin::Mapping;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::io::{Read, Seek, Write};
    use std::sync::Arc;

    #[derive(Clone, Debug)]
    enum Step {
        Copy(Vec<u8>),
        Hold(usize, usize),
        File(usize, usize),
        Advance(usize),
    }

    const POOL: usize = 4000;
    const FILE: usize = 20_000;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..9000).prop_map(Step::Copy),
            (0..POOL, 0..POOL).prop_map(|(a, b)| Step::Hold(a.min(b), a.max(b))),
            (0..FILE, 0..FILE).prop_map(|(a, b)| Step::File(a.min(b), a.max(b))),
            (0usize..30_000).prop_map(Step::Advance),
        ];
        proptest::collection::vec(step, 0..40)
    }

    /// What `front` offers, read the way a flush would.
    fn take(queue: &mut Queue, slots: usize, limit: usize) -> Vec<u8> {
        let mut out = vec![IoSlice::new(&[]); slots];
        let mut got = match queue.front(&mut out) {
            Front::Empty => Vec::new(),
            Front::Memory { slices, more } => {
                let all = out[..slices].iter().map(|s| &**s).collect::<Vec<_>>().concat();
                assert_eq!(all.len() < queue.len(), more);
                all
            }
            Front::File { file, offset, len } => {
                let mut file = std::fs::File::from(file.try_clone_to_owned().unwrap());
                file.seek(std::io::SeekFrom::Start(offset)).unwrap();
                let mut bytes = vec![0; len];
                file.read_exact(&mut bytes).unwrap();
                bytes
            }
        };
        got.truncate(limit);
        queue.advance(got.len());
        got
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(steps in steps(), slots in 1usize..8) {
            let mut lease = pool::lease(POOL);
            lease.extend_from_slice(&(0..POOL).map(|i| (i % 253) as u8).collect::<Vec<_>>());
            let held: Bytes = lease.freeze();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&(0..FILE).map(|i| (i % 249) as u8).collect::<Vec<_>>()).unwrap();
            let mapped = Mapping::new(Arc::new(file), 0, FILE).unwrap().bytes();

            let mut queue = Queue::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Copy(bytes) => {
                        queue.push_copy(&bytes);
                        model.extend(bytes);
                    }
                    Step::Hold(a, b) => {
                        queue.push_kept(Kept::of(&held[a..b]).unwrap(), false);
                        model.extend(&held[a..b]);
                    }
                    Step::File(a, b) => {
                        queue.push_kept(Kept::of(&mapped[a..b]).unwrap(), true);
                        model.extend(&mapped[a..b]);
                    }
                    Step::Advance(n) => {
                        let got = take(&mut queue, slots, n);
                        let expected: Vec<u8> = model.drain(..got.len()).collect();
                        prop_assert_eq!(got, expected);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            while !queue.is_empty() {
                let got = take(&mut queue, slots, usize::MAX);
                prop_assert!(!got.is_empty(), "something waits but nothing is offered");
                let expected: Vec<u8> = model.drain(..got.len()).collect();
                prop_assert_eq!(got, expected);
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn small_writes_share_a_chunk() {
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.push_copy(&[1; 40]);
        }
        let mut out = [IoSlice::new(&[]); 64];
        assert!(matches!(queue.front(&mut out), Front::Memory { slices: 1, more: false }));
    }

    #[test]
    #[should_panic(expected = "advancing 2 bytes of 1")]
    fn more_than_there_is_cannot_be_advanced() {
        let mut queue = Queue::default();
        queue.push_copy(b"x");
        queue.advance(2);
    }
}
