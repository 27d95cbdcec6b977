//! The form in which a reader gets its events.

use std::sync::Arc;

use bytes::Bytes;

use crate::counters::{Counter, count};
use crate::sse::event::{Coder, Deflater, Framed, FramingEnd, Gzip, Piece};

/// A line that clients ignore. It stands between two events. No empty line follows it, because some clients take an
/// empty line after an event with an id for an event without data, and fail.
pub(super) static COMMENT: &[u8] = b":\n";

/// The form in which a reader gets its events.
pub(in crate::sse) enum Coding {
    Plain,
    Gzip(Gzip),
    Framed(Arc<Framed>),
}

impl Coding {
    /// Returns the compressed form if there is a `deflater`, or else the plain one.
    pub(in crate::sse) fn gzip(deflater: Option<&Arc<Deflater>>) -> Self {
        deflater.map_or(Self::Plain, |deflater| Self::Gzip(Gzip::new(deflater)))
    }

    pub(super) fn coder(&self) -> Coder<'_> {
        match self {
            Self::Plain => Coder::Plain,
            Self::Gzip(gzip) => Coder::Gzip(gzip.deflater()),
            Self::Framed(framed) => Coder::Framed(framed),
        }
    }

    /// Returns the length of what precedes the first event.
    pub(super) fn head_len(&self) -> usize {
        if let Self::Gzip(gzip) = self { gzip.head_len() } else { 0 }
    }

    /// Returns what precedes the first event, once.
    pub(super) fn begin(&mut self) -> Option<Bytes> {
        if let Self::Gzip(gzip) = self { gzip.begin() } else { None }
    }

    /// Returns the checksum and the length of a compressed stream, or `None` for the plain form. `None` as well for a
    /// framing, which another process may not have.
    pub(super) fn sums(&self) -> Option<Option<(u32, u32)>> {
        match self {
            Self::Plain => Some(None),
            Self::Gzip(gzip) => Some(Some(gzip.sums())),
            Self::Framed(_) => None,
        }
    }

    /// Records that the reader gets a piece in its form.
    pub(super) fn add(&mut self, piece: &Piece) {
        if let Self::Gzip(gzip) = self
            && let Some(sum) = piece.sum
        {
            gzip.add(sum);
        }
    }

    /// Returns the bytes to send to this reader for a piece in its form.
    pub(super) fn take(&mut self, piece: Piece) -> Bytes {
        self.add(&piece);
        piece.bytes
    }

    /// Returns the bytes to send to this reader for events that no other reader gets.
    pub(super) fn own(&mut self, text: Bytes) -> Bytes {
        let piece = match self {
            Self::Plain => Piece::plain(text),
            Self::Gzip(gzip) => gzip.deflater().deflate(&text),
            Self::Framed(framed) => Piece::plain(framed.frame(&text)),
        };
        self.take(piece)
    }

    /// Returns what keeps an idle connection alive; nothing if the framing has none.
    pub(super) fn comment(&self) -> Piece {
        let comment = match self {
            Self::Plain => Piece::plain(Bytes::from_static(COMMENT)),
            Self::Gzip(gzip) => gzip.deflater().comment(COMMENT),
            Self::Framed(framed) => Piece::plain(Bytes::from_static(framed.framing().keep_alive())),
        };
        count(Counter::EventComments, u64::from(!comment.bytes.is_empty()));
        comment
    }

    /// Returns the end of the stream.
    pub(super) fn end(&mut self, end: FramingEnd) -> Bytes {
        let text = || format!("retry: {}\n\n", end.retry.as_millis());
        match self {
            Self::Plain => text().into(),
            Self::Gzip(gzip) => gzip.end(text().as_bytes()),
            Self::Framed(framed) => framed.end(end),
        }
    }

    /// Returns the length of a frame that may be replayed at once. A page is encoded in pieces, between which the task
    /// yields.
    pub(super) fn frame_max(&self) -> usize {
        if let Self::Plain = self { usize::MAX } else { 16 << 10 }
    }
}
