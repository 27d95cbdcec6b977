//! The stream of a response that was taken over. If it encrypts, a hub may write to it too.

use std::any::Any;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::net::{Outlet, Owed, Seal, Sent, TakeOver};
use crate::sync::{Mutex, lock};
use crate::sys::fd::OwnedFd;

pub(super) enum SharedStream<I> {
    Own(I),
    Shared(Arc<Mutex<Sealed<I>>>),
}

/// A stream that returned itself from [`TakeOver::as_seal`].
pub(super) struct Sealed<I>(I);

impl<I: TakeOver + Send + 'static> SharedStream<I> {
    pub(super) fn new(mut stream: I) -> Self {
        match stream.as_seal() {
            Some(_) => Self::Shared(Arc::new(Mutex::new(Sealed(stream)))),
            None => Self::Own(stream),
        }
    }

    /// Returns the stream.
    ///
    /// # Errors
    ///
    /// An outlet of it exists.
    pub(super) fn into_inner(self) -> io::Result<I> {
        let shared = match self {
            Self::Own(stream) => return Ok(stream),
            Self::Shared(shared) => Arc::into_inner(shared),
        };
        let stream = shared.map(|shared| shared.into_inner().unwrap_or_else(PoisonError::into_inner).0);
        stream.ok_or_else(|| io::Error::other("a body that has ended is still being written"))
    }

    fn with<T>(&mut self, call: impl FnOnce(Pin<&mut I>) -> T) -> T
    where
        I: Unpin,
    {
        match self {
            Self::Own(stream) => call(Pin::new(stream)),
            Self::Shared(shared) => call(Pin::new(&mut lock(shared).0)),
        }
    }
}

impl<I: TakeOver + Send> Seal for Sealed<I> {
    fn send_now(&mut self, bytes: &[u8]) -> Sent {
        self.0.as_seal().map_or(Sent::Failed, |stream| stream.send_now(bytes))
    }

    fn has_room(&mut self, cx: &Context<'_>) -> bool {
        self.0.as_seal().is_some_and(|stream| stream.has_room(cx))
    }
}

impl<I: TakeOver + Send + 'static> TakeOver for SharedStream<I> {
    fn count_writes(&mut self, owed: Arc<Owed>) {
        match self {
            Self::Own(stream) => stream.count_writes(owed),
            Self::Shared(shared) => lock(shared).0.count_writes(owed),
        }
    }

    fn outlet(&self) -> Option<Outlet> {
        match self {
            Self::Own(stream) => stream.outlet(),
            Self::Shared(shared) => Some(Outlet::sealed(Arc::<Mutex<Sealed<I>>>::clone(shared))),
        }
    }

    fn as_socket(&mut self) -> Option<&mut dyn Any> {
        match self {
            Self::Own(stream) => stream.as_socket(),
            Self::Shared(_) => None,
        }
    }

    fn poll_duplicate(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        match self {
            Self::Own(stream) => stream.poll_duplicate(cx),
            Self::Shared(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl<I: Read + TakeOver + Unpin + Send + 'static> Read for SharedStream<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buf))
    }
}

impl<I: Write + TakeOver + Unpin + Send + 'static> Write for SharedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}
