//! A connection that gives hyper the head of a chunked response without its body.
//!
//! hyper decodes the first bytes of a body together with the head. It has no way to stop, and does not show its place
//! in a chunk. So hyper gets only the head if it announces chunks. Then the owner of the connection reads the body, or
//! lets hyper read it.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use hyper::rt;

use super::stream::{Stream, inner};
use millstream::internal::Owed;
use millstream::internal::lease;

/// Maximum length of a head that is passed on without its body.
const HEAD: usize = 8 << 10;

/// hyper reads as from any stream.
const PASSING: u8 = 0;
/// The next bytes are the head of a response.
const AWAITED: u8 = 1;
/// hyper has the head, and gets no more.
const HELD: u8 = 2;

#[derive(Debug)]
pub(crate) struct HeadFirst {
    stream: Stream,
    hold: BodyHold,
    /// Whether the upstream accepts no more bytes. Further bytes are dropped instead of failing the write: after a
    /// write error hyper reads nothing, and the upstream may already have sent a response. If it has not, the read
    /// finds the end of the stream.
    is_deaf: bool,
}

/// Holds the body of a response back from hyper, and counts what hyper holds of the request. Only the task that polls
/// the connection uses it.
#[derive(Clone, Debug)]
pub(crate) struct BodyHold(Arc<HoldState>);

#[derive(Debug, Default)]
struct HoldState {
    place: AtomicU8,
    owed: Owed,
}

impl BodyHold {
    /// For a connection over which hyper has sent nothing yet.
    pub(crate) fn new() -> Self {
        let held = HoldState::default();
        held.owed.reset();
        Self(Arc::new(held))
    }

    /// Awaits the head of a response to a request that hyper is about to write.
    pub(crate) fn begin(&self) {
        self.set_place(AWAITED);
        self.0.owed.begin();
    }

    /// Records that hyper was given a frame of the request. hyper writes `bytes` bytes for it.
    pub(crate) fn gave(&self, bytes: u64) {
        self.0.owed.gave(bytes);
    }

    /// Returns whether hyper holds no bytes of the request. Such bytes would be lost when the connection is taken from
    /// hyper.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.owed.is_settled()
    }

    fn place(&self) -> u8 {
        self.0.place.load(Ordering::Relaxed)
    }

    fn set_place(&self, place: u8) {
        self.0.place.store(place, Ordering::Relaxed);
    }

    /// Returns whether the body is held back. If so, hyper has read nothing of it.
    pub(crate) fn is_held(&self) -> bool {
        self.place() == HELD
    }

    /// Lets hyper read. The connection has to be polled then.
    pub(crate) fn end(&self) {
        self.set_place(PASSING);
    }
}

impl HeadFirst {
    pub(crate) fn new(stream: Stream, hold: BodyHold) -> Self {
        Self { stream, hold, is_deaf: false }
    }

    pub(crate) fn into_inner(self) -> Stream {
        self.stream
    }

    /// Turns the write error of a closed peer into success: all bytes count as written, and `all` is returned.
    fn unless_deaf<T>(&mut self, written: Poll<io::Result<T>>, all: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(error)) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                self.is_deaf = true;
                Poll::Ready(Ok(all))
            }
            written => written,
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, mut buf: rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let max = buf.remaining().min(HEAD);
        let mut lease = lease(max);
        ready!(inner!(&mut self.stream, stream => lease.poll_read(cx, Pin::new(stream), max)))?;
        let bytes = lease.as_ref();
        match chunked_head(bytes) {
            Some(len) => {
                buf.put_slice(&bytes[..len]);
                self.stream.unread(&bytes[len..]);
                self.hold.set_place(HELD);
            }
            None => {
                buf.put_slice(bytes);
                self.hold.end();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the length of a complete head that announces chunks. hyper finds the same end, because each line must end
/// with CRLF. Interim responses are not matched, because another head follows them.
fn chunked_head(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(b"HTTP/1.1 ") || bytes.get(9) == Some(&b'1') {
        return None;
    }
    let (mut from, mut is_chunked) = (0, false);
    loop {
        let len = bytes[from..].iter().position(|&byte| byte == b'\n')?;
        let line = bytes[from..from + len].strip_suffix(b"\r")?;
        from += len + 1;
        if line.is_empty() {
            return is_chunked.then_some(from);
        }
        is_chunked |= line.eq_ignore_ascii_case(b"transfer-encoding: chunked");
    }
}

impl rt::Read for HeadFirst {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.hold.place() {
            AWAITED => this.poll_head(cx, buf),
            HELD => Poll::Pending,
            _ => Pin::new(&mut this.stream).poll_read(cx, buf),
        }
    }
}

impl rt::Write for HeadFirst {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        Owed::wrote(Some(&self.hold.0.owed), &written, &[IoSlice::new(bytes)]);
        self.unless_deaf(written, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = slices.iter().map(|slice| slice.len()).sum();
        if self.is_deaf {
            return Poll::Ready(Ok(all));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        Owed::wrote(Some(&self.hold.0.owed), &written, slices);
        self.unless_deaf(written, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_deaf(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.unless_deaf(shut, ())
    }
}

#[cfg(test)]
mod tests;
