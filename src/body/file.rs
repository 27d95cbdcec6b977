//! Response body from a file, a range of it, or several ranges.
//!
//! Invariants:
//! 1. `left` is the exact number of bytes that the body will still deliver, and `size_hint` returns it.
//! 2. A body ends cleanly only at `left == 0`. If the file has fewer bytes, the last item is an error, and hyper aborts
//!    the connection, so that no client regards a part as the whole file.
//! 3. After mapped frames, the end takes a separate poll. A layer that copies each frame has read it by then, so this
//!    poll reports a torn mapping, which a stream cannot recognise in the copy.

use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::ranges::Part;
use super::reader::Reader;
use crate::buf::origin::Mapping;
use crate::counters::{Counter, count, log};
use crate::fs::{self, File, Step};

/// Maximum length of a range of a kept file that is copied. A stream would also copy it.
const COPIED: usize = 2 << 10;

/// The body of a response from a file: all of it, a range, or several ranges with headers between them.
///
/// Frames are slices of the mapped file wherever possible. A [`net::TcpStream`](crate::net::TcpStream) sends them from
/// the file; other streams, layers and tests see plain bytes. A frame is returned only when its bytes are in memory, so
/// a cold file never blocks a runtime thread.
///
/// A body does not know the request: the caller must handle `Range`, `If-None-Match` and other conditions.
/// [`Files::get`](crate::files) answers them, from a handler as well.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("report.pdf");
/// # std::fs::write(&path, [7; 1000])?;
/// use millstream::body::FileBody;
/// use millstream::fs::File;
///
/// let file = File::open(&path).await?;
/// let response = http::Response::builder()
///     .header("etag", file.opened().etag())
///     .body(FileBody::new(&file, ..)?)
///     .map_err(std::io::Error::other)?;
/// # assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(1000));
/// # Ok(())
/// # }
/// ```
///
/// # Safety contract
///
/// While a mapped frame or a slice of it lives, nothing may write to that range of the file in place, and the file must
/// not be truncated. Otherwise the bytes change while safe code borrows them as `&[u8]` or `&str`, which is undefined
/// behaviour in that code. Replace files by renaming. Where that cannot be ensured, turn mapping off with
/// [`mapped`](Self::mapped) or [`FilesBuilder::mapped`](crate::files::FilesBuilder::mapped): all frames are then read
/// into separate memory that does not change.
///
/// # Errors
///
/// The error contains an [`fs::Error`](crate::fs::Error). If the file is shorter than when it was opened, the body
/// fails and never ends cleanly.
///
/// Mapped bytes read as zeros after the file was truncated. [`net::TcpStream`](crate::net::TcpStream),
/// [`TlsStream`](crate::server) and [`codec::Writer`](crate::codec::Writer) recognise such bytes by their address and
/// fail only what they were sending. A layer that copies or transforms frames gets an error from the body at the next
/// frame or at the end. hyper does not poll for the end of a body of known length: under such a layer, and under a TLS
/// stream of another crate, turn mapping off if files may be truncated in place.
#[derive(Debug)]
pub struct FileBody {
    left: u64,
    inner: FileBodyInner,
}

#[derive(Debug)]
enum FileBodyInner {
    Done,
    /// The frame of a kept file was returned; the mapping may still be torn.
    Sent(Arc<Whole>),
    Ready(Bytes),
    Kept(Bytes, Arc<Whole>),
    Stream(Box<Stream>),
}

/// A fully mapped file in memory, kept for many responses.
#[derive(Debug)]
pub(crate) struct Whole {
    file: File,
    mapping: Arc<Mapping>,
    bytes: Bytes,
}

#[derive(Debug)]
struct Stream {
    reader: Reader,
    range: Range<u64>,
    /// Parts after `range`. Empty for a single range, which then needs no allocation.
    rest: vec::IntoIter<Part>,
}

// Compile-time check of the bounds that hyper and axum require of a body.
const _: () = {
    const fn body<B: Body + Send + Unpin + 'static>() {}
    body::<FileBody>();
};

impl FileBody {
    /// Creates a body with a range of a regular file: `..` for all of it. Ranges end at the length that the file had
    /// when it was opened. The body delivers exactly these bytes or fails. The [safety contract](Self#safety-contract)
    /// applies.
    ///
    /// # Errors
    ///
    /// Fails with `ErrorKind::PermissionDenied` if `file` is not a regular file.
    pub fn new(file: &File, range: impl RangeBounds<u64>) -> Result<Self, fs::Error> {
        let opened = file.opened();
        opened.must_be_file(io::ErrorKind::PermissionDenied).map_err(|e| file.failed(Step::Inspect, e))?;
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        Ok(Self::range(Reader::new(file.clone()), start..end.min(opened.len())))
    }

    /// Sets whether frames may be slices of the mapped file, under the [contract](Self#safety-contract) that nothing
    /// writes to it in place. On by default. If off, the file is read into memory of the body, which copies each byte,
    /// and `sendfile` is not used. Call it before the first poll.
    pub fn mapped(mut self, on: bool) -> Self {
        if let FileBodyInner::Stream(stream) = &mut self.inner {
            stream.reader.set_mapped(on);
        }
        self
    }

    /// Sets whether the body leaves the page cache to other files: for a file that is larger than memory, or that is
    /// read once. Off by default. On, the file is not [mapped](Self::mapped), `sendfile` is not used, and two reads of
    /// 256 KiB are in flight. Call it before the first poll.
    ///
    /// Pages that are in the cache already stay there (`RWF_DONTCACHE`, Linux 6.14 with ext4, xfs or btrfs). Elsewhere
    /// the pages of the file are dropped behind the body, and often also pages that another reader has loaded.
    pub fn uncached(mut self, on: bool) -> Self {
        if let FileBodyInner::Stream(stream) = &mut self.inner {
            stream.reader.set_uncached(on);
        }
        self
    }

    /// Returns a body without bytes.
    pub(crate) const fn empty() -> Self {
        Self { left: 0, inner: FileBodyInner::Done }
    }

    /// Returns a body with a range of a kept file as one frame. The range must lie within the file.
    pub(crate) fn kept(whole: &Arc<Whole>, range: impl RangeBounds<usize>) -> Self {
        let bytes = whole.bytes.slice(range);
        if bytes.is_empty() {
            return Self::empty();
        }
        Self { left: bytes.len() as u64, inner: FileBodyInner::Kept(bytes, Arc::clone(whole)) }
    }

    pub(crate) fn range(reader: Reader, range: Range<u64>) -> Self {
        if range.is_empty() {
            return Self::empty();
        }
        let stream = Stream { reader, range: range.clone(), rest: Vec::new().into_iter() };
        Self { left: range.end - range.start, inner: FileBodyInner::Stream(Box::new(stream)) }
    }

    pub(crate) fn parts(reader: Reader, parts: Vec<Part>) -> Self {
        let left = parts.iter().map(Part::len).sum();
        let stream = Stream { reader, range: 0..0, rest: parts.into_iter() };
        Self { left, inner: FileBodyInner::Stream(Box::new(stream)) }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let FileBodyInner::Stream(stream) = &mut self.inner {
            return if self.left > 0 { stream.poll_bytes(cx).map(Result::transpose) } else { stream.poll_end() };
        }
        Poll::Ready(match std::mem::replace(&mut self.inner, FileBodyInner::Done) {
            FileBodyInner::Ready(bytes) => Some(Ok(bytes)),
            FileBodyInner::Kept(_, whole) | FileBodyInner::Sent(whole) if whole.mapping.is_torn() => {
                Some(Err(whole.torn()))
            }
            FileBodyInner::Kept(bytes, whole) if bytes.len() <= COPIED => Some(whole.copy(&bytes)),
            FileBodyInner::Kept(bytes, whole) => {
                self.inner = FileBodyInner::Sent(whole);
                Some(Ok(bytes))
            }
            FileBodyInner::Done | FileBodyInner::Sent(_) | FileBodyInner::Stream(_) => None,
        })
    }
}

impl Whole {
    /// Creates the kept file. `mapping` must cover all of `file`.
    pub(crate) fn new(file: File, mapping: Arc<Mapping>) -> Self {
        Self { bytes: mapping.bytes(), file, mapping }
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    fn copy(&self, bytes: &[u8]) -> io::Result<Bytes> {
        let copy = Bytes::copy_from_slice(bytes);
        if self.mapping.is_torn() { Err(self.torn()) } else { Ok(copy) }
    }

    fn torn(&self) -> io::Error {
        self.file.failed(Step::Read, self.file.short()).into()
    }
}

impl Stream {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        while self.range.is_empty() {
            match self.rest.next() {
                Some(Part::Text(text)) if text.is_empty() => {}
                Some(Part::Text(text)) => {
                    return Poll::Ready(self.reader.check().map(|()| Some(text)));
                }
                Some(Part::Range(range)) => self.range = range,
                None => return Poll::Ready(Ok(None)),
            }
        }
        self.reader.poll_next(cx, &mut self.range).map_ok(Some)
    }

    fn poll_end(&mut self) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.reader.check().err().map(Err))
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
                this.inner = FileBodyInner::Done;
                Some(Err(e))
            }
            None => {
                this.inner = FileBodyInner::Done;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
            && match &self.inner {
                FileBodyInner::Stream(stream) => !stream.reader.is_mapped(),
                inner => !matches!(inner, FileBodyInner::Sent(_)),
            }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl From<Bytes> for FileBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return Self::empty();
        }
        Self { left: bytes.len() as u64, inner: FileBodyInner::Ready(bytes) }
    }
}

impl Default for FileBody {
    fn default() -> Self {
        Self::empty()
    }
}

#[cfg(test)]
mod tests;
