//! The stream of an HTTP/2 connection, which is not read while its [request bodies](crate::server::state::unread) hold
//! too much.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::server::state::ConnState;

pub(super) struct Gated<I> {
    io: I,
    conn_state: Arc<ConnState>,
}

impl<I> Gated<I> {
    pub(in crate::server) fn new(io: I, conn_state: Arc<ConnState>) -> Self {
        Self { io, conn_state }
    }
}

impl<I: Read + Unpin> Read for Gated<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let conn_state = &*self.conn_state;
        // When the client leaves, its bodies end too.
        if conn_state.unread().is_some_and(|unread| unread.poll_open(cx).is_pending())
            && conn_state.handle.poll_leaving(cx).is_pending()
        {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: Write + Unpin> Write for Gated<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
