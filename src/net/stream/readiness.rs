//! Reads and writes that do not wait, and waits that do not read or write, as on tokio's streams and their halves.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, Interest, ReadBuf, Ready};

use super::recv_buf::{Peek, poll_receive};
use super::stream::Stream;
use crate::net::stats::Reason;
use crate::sys::fd::AsFd;
use crate::sys::socket::{self, PeerActivity};

/// A stream, or a half of one.
pub trait Inner {
    /// Type of the addresses.
    type Addr;

    fn inner(&self) -> &Stream;

    fn addr(&self, of_peer: bool) -> io::Result<Self::Addr>;
}

impl Stream {
    /// Waits until a read would not wait, as far as known.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unread_bytes().is_empty() {
            return Poll::Ready(Ok(()));
        }
        let ready = poll_receive(&self.egress, Some(cx), 1, |_| Ok(0));
        if ready.is_pending() {
            self.egress.wake_at_failure(cx);
        }
        ready
    }

    pub(in crate::net) fn poll_ready(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<Ready>> {
        if !interest.is_readable() && !interest.is_writable() {
            let why = "a stream is asked whether it is readable or writable";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let mut ready = Ready::EMPTY;
        if interest.is_readable() && self.poll_readable(cx)?.is_ready() {
            ready |= Ready::READABLE;
            if matches!(socket::peer(self.as_fd()), PeerActivity::Ended | PeerActivity::Gone) {
                ready |= Ready::READ_CLOSED;
            }
        }
        if interest.is_writable() && self.egress.poll_writable(cx)?.is_ready() {
            ready |= Ready::WRITABLE;
            if self.egress.is_write_closed() {
                ready |= Ready::WRITE_CLOSED;
            }
        }
        if ready.is_empty() { Poll::Pending } else { Poll::Ready(Ok(ready)) }
    }

    pub(super) fn try_receive(&self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        match self.receive(&mut self.unread_bytes(), None, buf) {
            Poll::Ready(received) => received,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn try_receive_buf(&self, buf: &mut impl BufMut) -> io::Result<usize> {
        /// Reads without waiting.
        struct Now<'a>(&'a Stream);

        impl AsyncRead for Now<'_> {
            fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.0.try_receive(buf))
            }
        }

        match pin!(Now(self).read_buf(buf)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        let peeked = self.receive(&mut self.unread_bytes(), Some(cx), &mut Peek(buf));
        peeked.map_ok(|()| buf.filled().len() - before)
    }

    /// Returns a duplicate of the socket, unless bytes would be missed.
    pub(super) fn duplicate(&self) -> io::Result<crate::sys::fd::OwnedFd> {
        self.egress.try_drain()?;
        if self.has_unread_bytes() {
            let why = "bytes were received that are not read";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.as_fd().try_clone_to_owned()
    }

    /// As [`duplicate`](Self::duplicate), once written bytes were sent. Fails at once for a stream that stays.
    pub(super) fn poll_duplicate(&self, cx: &mut Context<'_>) -> Poll<io::Result<crate::sys::fd::OwnedFd>> {
        if self.egress.stays() {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        ready!(self.egress.poll_drained(cx, Reason::Flushed))?;
        Poll::Ready(self.duplicate())
    }
}

/// Implements what reads, for a type that implements `Inner`.
macro_rules! reads {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> $name {
            /// Waits until the stream is readable: bytes or the end can be read. One task may wait at a time.
            ///
            /// # Errors
            ///
            /// The error that reading would return, and the end of the runtime.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe.
            pub async fn readable(&self) -> std::io::Result<()> {
                tokio::task::coop::unconstrained(std::future::poll_fn(|cx| self.poll_read_ready(cx))).await
            }

            /// As [`readable`](Self::readable).
            pub fn poll_read_ready(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                $crate::net::stream::readiness::Inner::inner(self).poll_readable(cx)
            }

            /// Waits until the stream is readable or writable, as selected by `interest`. One task may wait at a time.
            ///
            /// # Errors
            ///
            /// `ErrorKind::Unsupported` if `interest` has neither, and the errors of `readable` and `writable`.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe.
            pub async fn ready(&self, interest: tokio::io::Interest) -> std::io::Result<tokio::io::Ready> {
                let inner = $crate::net::stream::readiness::Inner::inner(self);
                tokio::task::coop::unconstrained(std::future::poll_fn(|cx| inner.poll_ready(cx, interest))).await
            }

            /// Reads what has arrived, without waiting. Returns the number of bytes; 0 means the end of the stream.
            ///
            /// # Errors
            ///
            /// `ErrorKind::WouldBlock` if nothing has arrived, as far as known: wait for `readable` then.
            pub fn try_read(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                let mut buf = tokio::io::ReadBuf::new(buf);
                $crate::net::stream::readiness::Inner::inner(self).try_receive(&mut buf)?;
                Ok(buf.filled().len())
            }

            /// As [`try_read`](Self::try_read), behind the bytes of a buffer.
            pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> std::io::Result<usize> {
                $crate::net::stream::readiness::Inner::inner(self).try_receive_buf(buf)
            }

            /// As [`try_read`](Self::try_read), into the first buffer that is not empty.
            pub fn try_read_vectored(&self, bufs: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                let buf = bufs.iter_mut().find(|buf| !buf.is_empty());
                self.try_read(buf.map_or(&mut [], |buf| &mut **buf))
            }

            /// Waits for bytes and copies them; the next reads return them again. Returns their number; 0 means the end
            /// of the stream. One task may wait at a time.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe.
            pub async fn peek(&self, buf: &mut [u8]) -> std::io::Result<usize> {
                let mut buf = tokio::io::ReadBuf::new(buf);
                std::future::poll_fn(|cx| self.poll_peek(cx, &mut buf)).await
            }

            /// As [`peek`](Self::peek).
            pub fn poll_peek(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                $crate::net::stream::readiness::Inner::inner(self).poll_peek(cx, buf)
            }
        }
    };
}
pub(in crate::net) use reads;

/// Implements what writes, for a type that implements `Inner`.
macro_rules! writes {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> $name {
            /// Waits until the stream is writable: the next write is accepted or fails. One task may wait at a time.
            ///
            /// # Errors
            ///
            /// The end of the runtime.
            ///
            /// # Cancel safety
            ///
            /// Cancel safe.
            pub async fn writable(&self) -> std::io::Result<()> {
                tokio::task::coop::unconstrained(std::future::poll_fn(|cx| self.poll_write_ready(cx))).await
            }

            /// As [`writable`](Self::writable).
            pub fn poll_write_ready(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                $crate::net::stream::readiness::Inner::inner(self).egress.poll_writable(cx)
            }

            /// Writes what is accepted without waiting; it leaves as other writes do. Returns the number of bytes.
            ///
            /// # Errors
            ///
            /// `ErrorKind::WouldBlock` if nothing is accepted: wait for `writable` then. The errors of writes.
            pub fn try_write(&self, buf: &[u8]) -> std::io::Result<usize> {
                self.try_write_vectored(&[std::io::IoSlice::new(buf)])
            }

            /// As [`try_write`](Self::try_write), of several buffers.
            pub fn try_write_vectored(&self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                $crate::net::stream::readiness::Inner::inner(self).egress.try_write(bufs)
            }
        }
    };
}
pub(in crate::net) use writes;

#[cfg(test)]
mod tests;
