//! Bytes that wait to be written to an inner writer. This module decides how to offer them, in one piece or in several,
//! and interprets the results. It does not know which task waits, or why it is called.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::{replace, take};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::buf::origin::{self, OriginSlice};
use crate::buf::queue::Queue;
use crate::buf::{Lease, lease};
use crate::codec::adaptive_size::AdaptiveSize;
use crate::counters::{Counter, count};
use crate::sys::vectored::PIECES_MAX;

/// Plaintext of one TLS record, RFC 8446 §5.1: the minimum size of a flat buffer.
const RECORD: usize = 16 << 10;
const FLAT_MAX: usize = 64 << 10;
/// Number of consecutive writes cut at a boundary after which an inner writer is treated as not accepting pieces.
const CUTS: u32 = 3;
/// Number of pieces offered from a small array, which is cheaper to set up than one for the maximum per call.
const FEW: usize = 64;

/// How a [`Writer`](super::Writer) hands pieces to its inner writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// As pieces, until the inner writer shows that it does not take several.
    #[default]
    Auto,
    /// Always as pieces.
    Vectored,
    /// Always copied into one piece.
    Flat,
}

pub(super) struct WriteBuffer<W> {
    pub(super) inner: W,
    queue: Queue,
    room: AdaptiveSize,
    /// Writers wait until half of `room` is free.
    full: bool,
    shape: Shape,
    /// Maximum number of bytes offered in one piece, if the inner writer does not accept pieces.
    flat: Option<usize>,
    cuts: Cuts,
    unflushed: bool,
    failure: Option<WriteFailure>,
    /// Totals since the last write: calls, bytes copied, bytes kept.
    uncounted: (u64, usize, usize),
}

#[derive(Debug, Default)]
struct Cuts {
    in_a_row: u32,
    /// Number of bytes accepted by the last write, if it was cut at a boundary. If the next write is accepted at once,
    /// the cut was not caused by a lack of room.
    last: Option<usize>,
}

/// The reason why nothing more can be written. It is kept because every later call returns it.
#[derive(Debug)]
struct WriteFailure {
    kind: io::ErrorKind,
    errno: Option<i32>,
    text: String,
}

impl WriteFailure {
    fn of(error: &io::Error) -> Self {
        Self { kind: error.kind(), errno: error.raw_os_error(), text: error.to_string() }
    }

    fn error(&self) -> io::Error {
        self.errno.map_or_else(|| io::Error::new(self.kind, self.text.clone()), io::Error::from_raw_os_error)
    }
}

struct Offer {
    offered: usize,
    first: usize,
    pieces: usize,
    taken: usize,
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was being sent")
}

impl<W: AsyncWrite + Unpin> WriteBuffer<W> {
    pub(super) fn new(inner: W, shape: Shape, limit: usize) -> Self {
        let flat = match shape {
            Shape::Flat => true,
            Shape::Vectored => false,
            Shape::Auto => !inner.is_write_vectored(),
        };
        let mut write_buffer = Self {
            inner,
            queue: Queue::default(),
            room: AdaptiveSize::new((limit / 8).max(1)..=limit.max(1), limit),
            full: false,
            shape,
            flat: None,
            cuts: Cuts::default(),
            unflushed: false,
            failure: None,
            uncounted: (0, 0, 0),
        };
        if flat {
            write_buffer.flatten(RECORD);
        }
        write_buffer
    }

    pub(super) fn check(&self) -> io::Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error()))
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_flat(&self) -> bool {
        self.flat.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        (self.queue.is_empty() && !self.unflushed) || self.failure.is_some()
    }

    pub(super) fn room(&self) -> usize {
        self.room.size().saturating_sub(self.queue.len())
    }

    /// Returns whether writers need not wait: there is room, or half of it is free if they had to wait.
    pub(super) fn check_room(&mut self) -> bool {
        if self.full {
            self.full = self.queue.len() > self.room.size() / 2;
        }
        !self.full && self.room() > 0 && (self.queue.is_empty() || !Queue::all_are_full())
    }

    pub(super) fn wait_for_room(&mut self) {
        if !replace(&mut self.full, true) {
            self.room.mark_full(Instant::now());
        }
    }

    pub(super) fn push(&mut self, slice: &[u8]) -> io::Result<()> {
        let slice = OriginSlice::new(slice);
        let held = self.queue.push(slice);
        self.taken(slice.bytes().len(), held, slice.is_torn())
    }

    pub(super) fn push_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        // Short bytes are copied, and the copy may read past the end of a truncated mapped file.
        let mapped = OriginSlice::new(&bytes).file().is_some().then(|| bytes.clone());
        let len = bytes.len();
        let held = self.queue.push_bytes(bytes);
        self.taken(len, held, mapped.is_some_and(|bytes| origin::is_torn(&bytes)))
    }

    fn taken(&mut self, len: usize, held: bool, is_torn: bool) -> io::Result<()> {
        self.uncounted.0 += 1;
        *if held { &mut self.uncounted.2 } else { &mut self.uncounted.1 } += len;
        if is_torn { Err(self.fail(torn())) } else { Ok(()) }
    }

    fn settle(&mut self) {
        let (calls, copied, held) = take(&mut self.uncounted);
        if calls > 0 {
            count(Counter::Gathered, calls);
            count(Counter::BytesCopied, copied as u64);
            count(Counter::BytesHeld, held as u64);
        }
    }

    pub(super) fn fail(&mut self, error: io::Error) -> io::Error {
        self.failure.get_or_insert_with(|| WriteFailure::of(&error));
        self.lose();
        error
    }

    fn lose(&mut self) {
        self.settle();
        count(Counter::BytesLost, self.queue.clear() as u64);
    }

    fn flatten(&mut self, size: usize) {
        self.flat = Some(size);
        if self.shape == Shape::Auto {
            count(Counter::FlatWriters, 1);
        }
    }

    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        self.settle();
        self.poll_all(cx).map_err(|e| self.fail(e))
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx).map_err(|e| self.fail(e))
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let pieces = self.queue.pieces().len();
            let offered = match self.flat {
                Some(size) => self.poll_flat(cx, size),
                None if pieces <= FEW => self.poll_pieces::<FEW>(cx),
                None => self.poll_pieces::<PIECES_MAX>(cx),
            };
            if offered.is_pending() {
                // The inner writer was full, which explains a cut.
                self.cuts = Cuts::default();
                count(Counter::WouldBlock, 1);
            }
            let offer = ready!(offered)?;
            match offer.taken {
                0 => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::WriteZero,
                        "the inner writer accepted 0 bytes",
                    )));
                }
                n if n > offer.offered => {
                    let text = format!("the inner writer reported {n} bytes written of {}", offer.offered);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                n => self.queue.advance(n),
            }
            self.unflushed = true;
            count(Counter::InnerWrites, 1);
            self.room.left(offer.taken, Instant::now());
            self.learn(&offer);
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_pieces<const N: usize>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Offer>> {
        let mut slices = [IoSlice::new(&[]); N];
        let (mut pieces, mut offered) = (0, 0);
        for (slot, piece) in slices.iter_mut().zip(self.queue.pieces()) {
            *slot = IoSlice::new(piece);
            pieces += 1;
            offered += piece.len();
        }
        let slices = &slices[..pieces];
        let first = slices[0].len();
        let is_torn = || slices.iter().any(|slice| origin::is_torn(slice));
        if is_torn() {
            return Poll::Ready(Err(torn()));
        }
        let written = match slices {
            [one] => Pin::new(&mut self.inner).poll_write(cx, one),
            many => Pin::new(&mut self.inner).poll_write_vectored(cx, many),
        };
        // The inner writer may read the pieces, as TLS does, and reach the end of a truncated file.
        if is_torn() {
            return Poll::Ready(Err(torn()));
        }
        Poll::Ready(Ok(Offer { offered, first, pieces, taken: ready!(written)? }))
    }

    /// Offers the front as one piece: unchanged if it is long enough or the only piece, otherwise copied together up to
    /// `size`. An offer repeated after `Pending` begins with the same bytes and is never shorter, as some TLS libraries
    /// require.
    fn poll_flat(&mut self, cx: &mut Context<'_>, size: usize) -> Poll<io::Result<Offer>> {
        let mut pieces = self.queue.pieces();
        let first = pieces.next().unwrap_or_default();
        let staged: Lease;
        let offered = if first.len() >= size || pieces.len() == 0 {
            first
        } else {
            let mut together = lease(size);
            for piece in self.queue.pieces() {
                together.extend_from_slice(&piece[..piece.len().min(size - together.len())]);
                if together.len() == size {
                    break;
                }
            }
            staged = together;
            staged.as_ref()
        };
        let is_torn = || self.queue.pieces().any(origin::is_torn);
        if is_torn() {
            return Poll::Ready(Err(torn()));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, offered);
        // The offered piece may itself be a mapping, which the inner writer reads.
        if is_torn() {
            return Poll::Ready(Err(torn()));
        }
        let len = offered.len();
        Poll::Ready(Ok(Offer { offered: len, first: len, pieces: 1, taken: ready!(written)? }))
    }

    fn learn(&mut self, offer: &Offer) {
        let &Offer { offered, first, pieces, taken } = offer;
        if taken < offered {
            count(Counter::PartialWrites, 1);
        }
        if self.shape != Shape::Auto || self.is_flat() {
            return;
        }
        if let Some(cut) = self.cuts.last.take() {
            self.cuts.in_a_row += 1;
            if self.cuts.in_a_row >= CUTS {
                return self.flatten(cut.next_multiple_of(RECORD).min(FLAT_MAX));
            }
        } else if taken == offered && offered > RECORD {
            self.cuts.in_a_row = 0;
        }
        let at_boundary = pieces > 1 && taken < offered && (taken == first || taken.is_multiple_of(RECORD));
        self.cuts.last = at_boundary.then_some(taken);
    }
}

impl<W> fmt::Debug for WriteBuffer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBuffer")
            .field("queued", &self.queue.len())
            .field("room", &self.room.size())
            .field("shape", &self.shape)
            .field("flat", &self.flat)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl<W> Drop for WriteBuffer<W> {
    fn drop(&mut self) {
        count(Counter::BytesLost, self.queue.len() as u64);
    }
}
