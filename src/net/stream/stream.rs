//! Common part of all streams: [`Stream::poll_receive`] receives, the egress sends.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::handle::Handle;
use super::owed::Owed;
use super::recv_buf::{RecvBuf, poll_receive};
use crate::net::egress::Egress;
use crate::net::egress::outlet::{Outlet, Seal};
use crate::net::options::Options;
use crate::runtime::Turn;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};

pub struct Stream {
    pub(in crate::net) egress: Arc<Egress>,
    /// Bytes that a reader gave back. The lock makes receives exclusive.
    pub(in crate::net) unread: Mutex<Vec<u8>>,
    owed: Option<Arc<Owed>>,
}

/// A stream that accepts bytes back after they were read.
pub trait Rewind {
    /// Makes the next reads return `bytes` first, before bytes that were given back earlier.
    fn unread(&mut self, bytes: &[u8]);
}

/// A stream that a server can take over from hyper.
pub trait TakeOver {
    /// Counts the accepted bytes in `owed` from now on.
    fn count_writes(&mut self, owed: Arc<Owed>);

    /// Returns a way to send without the stream's task, if there is one.
    fn outlet(&self) -> Option<Outlet> {
        None
    }

    /// Returns the stream itself, if it encrypts and its records can be sent without its task.
    fn as_seal(&mut self) -> Option<&mut dyn Seal> {
        None
    }

    /// Returns the stream itself, if its socket may be used directly: to move bytes to the socket, or to let the kernel
    /// encrypt.
    fn as_socket(&mut self) -> Option<&mut dyn std::any::Any> {
        None
    }

    /// Returns a duplicate of the socket for a successor of the stream, which is dropped next.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput): the stream has received bytes. Others: it has no socket, there is
    /// no descriptor, or the stream [stays](Self::stay).
    fn poll_duplicate(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Makes [`poll_duplicate`](Self::poll_duplicate) fail from now on: the stream has state that a successor lacks.
    fn stay(&mut self) {}
}

/// A stream with a handle.
pub trait Seen {
    /// Whether the handle can detect that the peer has left while the stream is not read.
    const SEES_LEAVING: bool = true;

    /// Returns a handle.
    fn seen(&self) -> Handle;
}

impl Stream {
    /// Panics outside a tokio runtime with I/O enabled.
    #[track_caller]
    pub(in crate::net) fn new(socket: OwnedFd, turn: Arc<Turn>, options: impl Into<Arc<Options>>) -> io::Result<Self> {
        let egress = Egress::new(socket, turn, options)?;
        Ok(Self { egress, unread: Mutex::default(), owed: None })
    }

    /// Receives into `buf`, once; 0 bytes mean the end of the stream.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buf: &mut impl RecvBuf) -> Poll<io::Result<()>> {
        // An owner does not need the lock.
        let again = read_again(self.unread_mut(), buf);
        self.receive_new(again, Some(cx), buf)
    }

    fn unread_mut(&mut self) -> &mut Vec<u8> {
        self.unread.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unread_bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives `unread` bytes and then others into `buf`. Without `cx` it does not wait.
    pub(in crate::net) fn receive(
        &self,
        unread: &mut Vec<u8>,
        cx: Option<&mut Context<'_>>,
        buf: &mut impl RecvBuf,
    ) -> Poll<io::Result<()>> {
        let again = read_again(unread, buf);
        self.receive_new(again, cx, buf)
    }

    /// Receives into `buf`, which has `again` bytes that were given back. All reads use this function.
    fn receive_new<B: RecvBuf>(
        &self,
        again: usize,
        mut cx: Option<&mut Context<'_>>,
        buf: &mut B,
    ) -> Poll<io::Result<()>> {
        let room = buf.room();
        // A reset behind bytes that were given back is returned by the next call: a caller drops the bytes of a failed one.
        if room == 0 || (again > 0 && B::TAKES) {
            return Poll::Ready(Ok(()));
        }
        match poll_receive(&self.egress, cx.as_deref_mut(), room, |fd| buf.receive(fd)) {
            // The given-back bytes are returned first.
            Poll::Pending if again > 0 => Poll::Ready(Ok(())),
            Poll::Pending => {
                if let Some(cx) = cx {
                    self.egress.wake_at_failure(cx);
                }
                Poll::Pending
            }
            Poll::Ready(Ok(())) if again == 0 && buf.room() == room => Poll::Ready(self.egress.check_end()),
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(e)) => {
                self.egress.reading_failed();
                Poll::Ready(Err(e))
            }
        }
    }

    pub(in crate::net) fn unread(&mut self, bytes: &[u8]) {
        self.unread_mut().splice(..0, bytes.iter().copied());
    }

    pub(super) fn count_writes(&mut self, owed: Arc<Owed>) {
        self.owed = Some(owed);
    }

    /// Writes for the traits of tokio and hyper.
    pub(in crate::net) fn write(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = self.egress.poll_write(cx, bufs);
        Owed::wrote(self.owed.as_deref(), &written, bufs);
        written
    }

    /// Returns whether bytes were given back, so that another reader of the socket misses some.
    pub(super) fn has_unread_bytes(&self) -> bool {
        !self.unread_bytes().is_empty()
    }
}

/// Moves `unread` bytes into `buf`, and returns their number.
fn read_again<B: RecvBuf>(unread: &mut Vec<u8>, buf: &mut B) -> usize {
    let again = unread.len().min(buf.room());
    if again > 0 {
        buf.put(&unread[..again]);
    }
    if again > 0 && B::TAKES {
        unread.drain(..again);
        if unread.is_empty() {
            // Frees the buffer: most streams never need it again.
            *unread = Vec::new();
        }
    }
    again
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.egress.fmt(f)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.egress.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.egress.abandon();
    }
}

/// Implements the methods of all streams, and the stream traits of tokio and hyper, for a type with the field `stream`
/// and a method `peer_addr`. `$std` is the stream of the standard library.
macro_rules! stream {
    ($name:ident, $std:ty, $addr:ty) => {
        $crate::net::stream::halves::whole!($name, $std, $addr);

        impl $name {
            /// Returns the number of bytes written but not handed to the kernel yet.
            pub fn queued(&self) -> usize {
                self.stream.egress.queued()
            }

            /// Returns a handle, which reports the stream's numbers and controls it.
            pub fn handle(&self) -> $crate::net::Handle {
                $crate::net::Handle::new(&self.stream.egress)
            }

            /// Waits until the kernel has accepted every byte that was written.
            ///
            /// # Errors
            ///
            /// The error that ended the sending side; bytes queued at that time are lost.
            pub async fn flushed(&mut self) -> std::io::Result<()> {
                std::future::poll_fn(|cx| self.poll_drained(cx)).await
            }

            /// As [`flushed`](Self::flushed), for one task.
            pub(crate) fn poll_drained(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
                self.stream.egress.poll_drained(cx, $crate::net::stats::Reason::Flushed)
            }

            /// Returns whether bytes were given back, which [`poll_receive_with`](Self::poll_receive_with) would overtake.
            pub(crate) fn has_unread_bytes(&self) -> bool {
                self.stream.has_unread_bytes()
            }

            /// Calls `receive` once bytes may have arrived. Returns their number; 0 means the end of the stream.
            /// `receive` must not block.
            pub(crate) fn poll_receive_with(
                &self,
                cx: &mut std::task::Context<'_>,
                mut receive: impl FnMut(crate::sys::fd::BorrowedFd<'_>) -> std::io::Result<usize>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                let mut received = 0;
                let receive = |fd: crate::sys::fd::BorrowedFd<'_>| receive(fd).inspect(|&n| received = n);
                // With a room of 1 a short read does not mean that the socket is empty.
                std::task::ready!($crate::net::stream::recv_buf::poll_receive(&self.stream.egress, Some(cx), 1, receive))?;
                if received == 0 {
                    self.stream.egress.check_end()?;
                }
                std::task::Poll::Ready(Ok(received))
            }

            pub(crate) fn poll_send_with(
                &self,
                cx: &mut std::task::Context<'_>,
                send: impl FnMut(crate::sys::fd::BorrowedFd<'_>) -> std::io::Result<usize>,
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.egress.poll_send_with(cx, send)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct(stringify!($name));
                if let Ok(peer) = self.peer_addr() {
                    debug.field("peer", &peer);
                }
                debug.field("egress", &self.stream).finish()
            }
        }

        $crate::sys::fd::as_fd!($name, stream);

        impl $crate::net::stream::stream::Rewind for $name {
            fn unread(&mut self, bytes: &[u8]) {
                self.stream.unread(bytes);
            }
        }

        impl $crate::net::stream::stream::TakeOver for $name {
            fn count_writes(&mut self, owed: std::sync::Arc<$crate::net::Owed>) {
                self.stream.count_writes(owed);
            }

            fn outlet(&self) -> Option<$crate::net::Outlet> {
                Some($crate::net::Outlet::new(&self.stream.egress))
            }

            fn as_socket(&mut self) -> Option<&mut dyn std::any::Any> {
                Some(self)
            }

            fn poll_duplicate(
                &mut self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<$crate::sys::fd::OwnedFd>> {
                self.stream.poll_duplicate(cx)
            }

            fn stay(&mut self) {
                self.stream.egress.stay();
            }
        }

        impl $crate::net::stream::stream::Seen for $name {
            fn seen(&self) -> $crate::net::Handle {
                self.handle()
            }
        }

        impl tokio::io::AsyncRead for $name {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.poll_receive(cx, buf)
            }
        }

        impl hyper::rt::Read for $name {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                mut buf: hyper::rt::ReadBufCursor<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.poll_receive(cx, &mut buf)
            }
        }

        $crate::net::stream::stream::stream!($name writes by tokio::io::AsyncWrite);
        $crate::net::stream::stream::stream!($name writes by hyper::rt::Write);
    };
    ($name:ident writes by $($write:ident)::+) => {
        impl $($write)::+ for $name {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.write(cx, &[std::io::IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.write(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(self.stream.egress.flush_asked())
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::task::Poll::Ready(self.stream.egress.shut_down())
            }
        }
    };
}
pub(in crate::net) use stream;

#[cfg(test)]
mod tests;
