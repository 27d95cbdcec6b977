//! A connection that gives hyper the head of a chunked response without its body.
//!
//! hyper decodes the first bytes of a body together with the head. It has no way to stop, and does not show its place
//! in a chunk. So a head that announces chunks is cut off here. The owner of the connection reads the body, or lets hyper.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use hyper::rt;

use super::stream::{Stream, inner};
use crate::buf::lease;

/// Maximum length of a head that is cut off.
const HEAD: usize = 8 << 10;

/// hyper reads as from any stream.
const PASSING: u8 = 0;
/// The next bytes are the head of a response.
const AWAITED: u8 = 1;
/// hyper has the head, and gets no more.
const HELD: u8 = 2;

#[derive(Debug)]
pub(super) struct HeadFirst {
    stream: Stream,
    hold: Hold,
}

/// Holds the body of a response back from hyper. Only the task that polls the connection uses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold(Arc<AtomicU8>);

impl Hold {
    /// Awaits the head of a response.
    pub(super) fn begin(&self) {
        self.0.store(AWAITED, Ordering::Relaxed);
    }

    /// Returns whether the body is held back. Then hyper has read nothing of it.
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HELD
    }

    /// Lets hyper read. The connection has to be polled then.
    pub(super) fn end(&self) {
        self.0.store(PASSING, Ordering::Relaxed);
    }
}

impl HeadFirst {
    pub(super) fn new(stream: Stream, hold: Hold) -> Self {
        Self { stream, hold }
    }

    pub(super) fn into_inner(self) -> Stream {
        self.stream
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
                self.hold.0.store(HELD, Ordering::Relaxed);
            }
            None => {
                buf.put_slice(bytes);
                self.hold.end();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the length of a whole head that announces chunks. hyper finds the same end: each line ends with CRLF, and an
/// interim response, which another head follows, is not cut off.
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
        match this.hold.0.load(Ordering::Relaxed) {
            AWAITED => this.poll_head(cx, buf),
            HELD => Poll::Pending,
            _ => Pin::new(&mut this.stream).poll_read(cx, buf),
        }
    }
}

impl rt::Write for HeadFirst {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_head_of_chunks_is_cut_off() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nx: y\r\n\r\n";
        assert_eq!(chunked_head(head.as_bytes()), Some(head.len()));
        assert_eq!(chunked_head(format!("{head}1\r\na\r\n\r\n").as_bytes()), Some(head.len()));
        for other in [
            &head[..head.len() - 1],
            "HTTP/1.1 200 OK\r\nx: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\n1\r\na\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(chunked_head(other.as_bytes()), None, "{other:?}");
        }
    }
}
