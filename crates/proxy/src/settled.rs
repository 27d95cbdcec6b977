//! A connection that reports when the SETTINGS of an HTTP/2 upstream have been processed.
//!
//! They are the first frame that an upstream sends ([RFC 9113
//! §3.4](https://www.rfc-editor.org/rfc/rfc9113#section-3.4)). The reader of frames asks for more bytes when it has
//! processed those that it has read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt;

pub(crate) struct Settled<S, F> {
    stream: S,
    has_read: bool,
    is_settled: bool,
    /// Called until it returns `true`.
    settle: F,
}

impl<S, F: FnMut() -> bool> Settled<S, F> {
    pub(crate) fn new(stream: S, settle: F) -> Self {
        Self { stream, has_read: false, is_settled: false, settle }
    }
}

impl<S: rt::Read + Unpin, F: FnMut() -> bool + Unpin> rt::Read for Settled<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.has_read && !self.is_settled {
            self.is_settled = (self.settle)();
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.has_read |= read.is_ready();
        read
    }
}

impl<S: rt::Write + Unpin, F: Unpin> rt::Write for Settled<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
