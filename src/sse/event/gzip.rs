//! Events in gzip form (RFC 1952), compressed once for all readers.
//!
//! ```text
//!  head │ event │ event │ … │ comment, gap or replay │ … │ `retry:` │ end: empty block, CRC32, length
//!       └ deflate blocks, shared by all readers ┘      └ made for one reader ┘
//! ```
//!
//! Each piece is a sequence of deflate blocks (RFC 1951). It contains no references to other pieces and ends at a byte
//! boundary, so a reader may join at any event. The checksum at the end of the stream covers the bytes sent to this
//! reader. It is combined from the checksums of the pieces.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use zlib_rs::crc32::{crc32, crc32_combine_gen, crc32_combine_op};

use super::piece::{Piece, Sum};
use crate::buf::pool;
use crate::sync::{Mutex, lock};

/// Deflate, no name, no time, unknown system.
static HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// The last block, which is empty.
const LAST: [u8; 2] = [3, 0];

thread_local! {
    /// The encoder of this thread and its level. Every piece starts it anew.
    static ENCODER: RefCell<Option<(u32, Compress)>> = const { RefCell::new(None) };
}

/// The compressed form of an event in the ring, once a reader needed it.
#[derive(Clone, Debug, Default)]
pub(in crate::sse) struct Slot(Option<Arc<OnceLock<Piece>>>);

/// An event of the ring, and the place of its compressed form.
#[derive(Debug)]
pub(in crate::sse) struct Part {
    event: Bytes,
    deflated: Arc<OnceLock<Piece>>,
}

impl Slot {
    pub(in crate::sse) fn part(&mut self, event: &Bytes) -> Part {
        Part { event: event.clone(), deflated: Arc::clone(self.0.get_or_insert_default()) }
    }
}

/// Compresses the events of a hub.
#[derive(Debug)]
pub(in crate::sse) struct Deflater {
    level: u32,
    comment: OnceLock<Piece>,
    /// The last joined events and their numbers: most lagging readers are at the same position.
    joined: Mutex<Option<((u64, u64), Piece)>>,
    events: AtomicU64,
}

impl Deflater {
    pub(in crate::sse) fn new(level: u32) -> Self {
        Self { level, comment: OnceLock::new(), joined: Mutex::default(), events: AtomicU64::new(0) }
    }

    /// Returns the number of events that were compressed.
    pub(in crate::sse) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns these events of the ring as one piece. Compresses the events that no reader has needed before. Other
    /// readers of such an event wait until it is compressed.
    pub(in crate::sse) fn join(&self, range: (u64, u64), parts: &[Part]) -> Piece {
        let deflated = |part: &Part| {
            let made = || {
                self.events.fetch_add(1, Ordering::Relaxed);
                self.deflate(&part.event)
            };
            part.deflated.get_or_init(made).clone()
        };
        if let [part] = parts {
            return deflated(part);
        }
        if let Some((joined, piece)) = &*lock(&self.joined)
            && *joined == range
        {
            return piece.clone();
        }
        let pieces: Vec<Piece> = parts.iter().map(deflated).collect();
        let mut bytes = pool::lease(pieces.iter().map(|piece| piece.bytes.len()).sum());
        let mut sum = sum(b"");
        for piece in &pieces {
            bytes.extend_from_slice(&piece.bytes);
            sum = piece.sum.map_or(sum, |next| joined(sum, next));
        }
        let piece = Piece { bytes: bytes.freeze(), sum: Some(sum) };
        *lock(&self.joined) = Some((range, piece.clone()));
        piece
    }

    /// Compresses what one reader gets.
    pub(in crate::sse) fn deflate(&self, data: &[u8]) -> Piece {
        let bytes = ENCODER.with_borrow_mut(|encoder| {
            let (level, encoder) =
                encoder.get_or_insert_with(|| (self.level, Compress::new(Compression::new(self.level), false)));
            if *level != self.level {
                (*level, *encoder) = (self.level, Compress::new(Compression::new(self.level), false));
            }
            encoder.reset();
            let mut bytes = Vec::with_capacity(data.len() / 2 + 64);
            loop {
                let rest = &data[encoder.total_in() as usize..];
                let done = encoder.compress_vec(rest, &mut bytes, FlushCompress::Sync);
                done.expect("internal: the state of the encoder is valid");
                // A flush of deflate is complete once it leaves room in the output buffer.
                if bytes.len() < bytes.capacity() {
                    break;
                }
                bytes.reserve(bytes.len());
            }
            bytes.into_boxed_slice()
        });
        Piece { bytes: bytes.into(), sum: Some(sum(data)) }
    }

    /// Returns the comment that keeps connections alive, which is always the same.
    pub(in crate::sse) fn comment(&self, comment: &[u8]) -> Piece {
        self.comment.get_or_init(|| self.deflate(comment)).clone()
    }
}

fn sum(data: &[u8]) -> Sum {
    Sum { crc: crc32(0, data), len: data.len() as u32, shift: crc32_combine_gen(data.len() as u64) }
}

/// Returns the checksum of two consecutive pieces.
fn joined(first: Sum, next: Sum) -> Sum {
    Sum {
        crc: crc32_combine_op(first.crc, next.crc, next.shift),
        len: first.len.wrapping_add(next.len),
        shift: crc32_combine_op(first.shift, 0, next.shift),
    }
}

/// The stream of one reader.
pub(in crate::sse) struct Gzip {
    deflater: Arc<Deflater>,
    has_begun: bool,
    crc: u32,
    /// Modulo 2³².
    len: u32,
}

impl Gzip {
    pub(in crate::sse) fn new(deflater: &Arc<Deflater>) -> Self {
        Self { deflater: Arc::clone(deflater), has_begun: false, crc: 0, len: 0 }
    }

    /// Goes on with a stream that has this checksum and length.
    pub(in crate::sse) fn resumed(deflater: &Arc<Deflater>, (crc, len): (u32, u32)) -> Self {
        Self { deflater: Arc::clone(deflater), has_begun: true, crc, len }
    }

    /// Returns the checksum and the length of the bytes so far.
    pub(in crate::sse) fn sums(&self) -> (u32, u32) {
        (self.crc, self.len)
    }

    pub(in crate::sse) fn deflater(&self) -> &Deflater {
        &self.deflater
    }

    /// Returns the head, once.
    pub(in crate::sse) fn begin(&mut self) -> Option<Bytes> {
        let begins = !std::mem::replace(&mut self.has_begun, true);
        begins.then(|| Bytes::from_static(&HEAD))
    }

    /// Returns the length of the head.
    pub(in crate::sse) fn head_len(&self) -> usize {
        HEAD.len()
    }

    /// Adds the checksum of the next bytes to that of the stream.
    pub(in crate::sse) fn add(&mut self, sum: Sum) {
        self.crc = crc32_combine_op(self.crc, sum.crc, sum.shift);
        self.len = self.len.wrapping_add(sum.len);
    }

    /// Returns the last text with the end of the stream.
    pub(in crate::sse) fn end(&mut self, text: &[u8]) -> Bytes {
        let piece = self.deflater.deflate(text);
        piece.sum.into_iter().for_each(|sum| self.add(sum));
        [&piece.bytes[..], &LAST, &self.crc.to_le_bytes(), &self.len.to_le_bytes()].concat().into()
    }
}

impl fmt::Debug for Gzip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
