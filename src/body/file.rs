//! A file, a range of it, or several, as a response body.
//!
//! Invariants:
//! 1. `left` is exactly what the body will still deliver, and `size_hint` says so.
//! 2. A body ends cleanly only at `left == 0`. When the file has less to give, the last thing it yields is an error, at
//!    which hyper aborts the connection, so that no client takes a part for the whole.
//! 3. After mapped frames the end is told by a poll of its own. A layer that copies each frame as it comes has met by then
//!    what was torn, and is told so: a stream does not recognise the copy.

use std::io;
use std::ops::{Range, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::OpenFile;
use super::reader::Reader;
use crate::buf::origin::Mapping;
use crate::counters::log;
use crate::counters::{Counter, count};

/// Ranges of a kept file up to this many bytes are copied. A stream would copy them, too.
const COPIED: usize = 2 << 10;

/// The body of a response that comes from a file: all of it, a range, or several ranges with headers between them.
///
/// Frames are slices of the mapped file wherever that is possible. A [`net::TcpStream`](crate::net::TcpStream) that
/// hyper hands them to sends them from the file; to every other stream, layer or test they are plain bytes. A frame is
/// handed out only when its bytes are in memory, so a cold file never blocks a runtime thread.
///
/// # Safety contract
///
/// While a mapped frame or a slice of it lives, nothing may write to that range of the file in place, and the file must not
/// be truncated. Otherwise the bytes change while safe code borrows them as `&[u8]` or `&str`, which is undefined behaviour
/// of the code that does. Replace files by renaming. Where that cannot be ensured, turn mapping off by
/// [`OpenFile::mapped`] or [`FilesBuilder::mapped`](crate::files::FilesBuilder::mapped): all frames are then read into memory
/// of their own, which nothing changes.
///
/// # Errors
///
/// If the file turns out to be shorter than it was when it was opened, the body yields an error and never the clean end
/// of a shorter response.
///
/// Bytes of a mapped frame read as zeros once the file has lost them. [`net::TcpStream`](crate::net::TcpStream),
/// [`http::TlsStream`](crate::http) and [`vectored::Writer`](crate::codec::Writer) recognise such bytes by their address
/// and fail, each only what it was sending. A layer that copies or transforms frames is told by an error of the body when it
/// asks for the next frame or for the end. hyper does not ask for the end of a body of known length: under such a layer, and
/// under an encrypting stream that is not this crate's, turn mapping off if files may be truncated in place.
#[derive(Debug)]
pub struct FileBody {
    left: u64,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    /// Nothing to come, or failed.
    Done,
    /// The frame of a kept file was handed out; it may yet be torn.
    Sent(Arc<Whole>),
    /// One frame, ready.
    Ready(Bytes),
    /// One frame of a file that is kept for many responses.
    Kept(Bytes, Arc<Whole>),
    /// Frames as the file gives them.
    Stream(Box<Stream>),
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes between ranges.
    Text(Bytes),
    /// A range of the file, not empty.
    File(Range<u64>),
}

/// A file all of which is mapped and in memory, kept for many responses.
#[derive(Debug)]
pub(crate) struct Whole {
    file: OpenFile,
    mapping: Arc<Mapping>,
    bytes: Bytes,
}

#[derive(Debug)]
struct Stream {
    reader: Reader,
    range: Range<u64>,
    /// What comes when `range` is through. Never filled for a single range, so that costs no allocation.
    rest: vec::IntoIter<Part>,
}

// What hyper and axum ask of a body; the compiler says here, not at the user, when it is lost.
const _: () = {
    const fn body<B: Body + Send + Unpin + 'static>() {}
    body::<FileBody>();
};

impl FileBody {
    /// A body without bytes.
    pub const fn empty() -> Self {
        Self { left: 0, inner: Inner::Done }
    }

    /// A range of a kept file, which must lie within it, as one frame. `..` costs no more than a share.
    pub(crate) fn kept(whole: &Arc<Whole>, range: impl RangeBounds<usize>) -> Self {
        let bytes = whole.bytes.slice(range);
        if bytes.is_empty() {
            return Self::empty();
        }
        Self { left: bytes.len() as u64, inner: Inner::Kept(bytes, Arc::clone(whole)) }
    }

    /// A range of `file`, which must not reach beyond its length.
    pub(super) fn range(reader: Reader, range: Range<u64>) -> Self {
        if range.is_empty() {
            return Self::empty();
        }
        let stream = Stream { reader, range: range.clone(), rest: Vec::new().into_iter() };
        Self { left: range.end - range.start, inner: Inner::Stream(Box::new(stream)) }
    }

    /// Several parts, in order. Their ranges must not reach beyond the file's length.
    pub(crate) fn parts(file: &OpenFile, window: Option<Arc<Mapping>>, parts: Vec<Part>) -> Self {
        let left = parts.iter().map(Part::len).sum();
        let reader = Reader::new(file.clone(), window);
        let stream = Stream { reader, range: 0..0, rest: parts.into_iter() };
        Self { left, inner: Inner::Stream(Box::new(stream)) }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Inner::Stream(stream) = &mut self.inner {
            return if self.left > 0 { stream.poll_bytes(cx).map(Result::transpose) } else { stream.poll_end() };
        }
        Poll::Ready(match std::mem::replace(&mut self.inner, Inner::Done) {
            Inner::Ready(bytes) => Some(Ok(bytes)),
            Inner::Kept(_, whole) | Inner::Sent(whole) if whole.mapping.is_torn() => Some(Err(whole.file.short())),
            Inner::Kept(bytes, whole) if bytes.len() <= COPIED => Some(whole.copy(&bytes)),
            Inner::Kept(bytes, whole) => {
                self.inner = Inner::Sent(whole);
                Some(Ok(bytes))
            }
            Inner::Done | Inner::Sent(_) | Inner::Stream(_) => None,
        })
    }
}

impl Whole {
    /// `mapping` must be of all of `file`.
    pub(crate) fn new(file: OpenFile, mapping: Arc<Mapping>) -> Self {
        Self { bytes: mapping.bytes(), file, mapping }
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// A private copy of bytes of the mapping, if they are there.
    fn copy(&self, bytes: &[u8]) -> io::Result<Bytes> {
        let copy = Bytes::copy_from_slice(bytes);
        if self.mapping.is_torn() { Err(self.file.short()) } else { Ok(copy) }
    }
}

impl Stream {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        while self.range.is_empty() {
            match self.rest.next() {
                Some(Part::Text(text)) if text.is_empty() => {}
                Some(Part::Text(text)) => {
                    return Poll::Ready(self.reader.torn().map_or(Ok(Some(text)), Err));
                }
                Some(Part::File(range)) => self.range = range,
                None => return Poll::Ready(Ok(None)),
            }
        }
        self.reader.poll_next(cx, &mut self.range).map_ok(Some)
    }

    fn poll_end(&mut self) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.reader.torn().map(Err))
    }
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        Poll::Ready(match ready!(this.poll_bytes(cx)) {
            Some(Ok(bytes)) => {
                debug_assert!(!bytes.is_empty() && bytes.len() as u64 <= this.left);
                this.left -= bytes.len() as u64;
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(e)) => {
                if e.kind() == io::ErrorKind::UnexpectedEof {
                    count(Counter::TornFiles, 1);
                    log::file_torn();
                }
                this.inner = Inner::Done;
                Some(Err(e))
            }
            None => {
                this.inner = Inner::Done;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
            && match &self.inner {
                Inner::Stream(stream) => !stream.reader.is_mapped(),
                inner => !matches!(inner, Inner::Sent(_)),
            }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl From<Bytes> for FileBody {
    /// A body that is one ready frame.
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return Self::empty();
        }
        Self { left: bytes.len() as u64, inner: Inner::Ready(bytes) }
    }
}

impl Default for FileBody {
    fn default() -> Self {
        Self::empty()
    }
}

#[cfg(test)]
mod tests;
