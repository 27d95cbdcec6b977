//! The halves of a stream: borrowed for one task, owned for two.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::readiness::{Inner, reads, writes};
use super::stream::Stream;
use super::tcp::TcpStream;

/// The reading half of a stream, from `split`.
#[derive(Debug)]
pub struct ReadHalf<'a, S = TcpStream>(&'a S);

/// The writing half of a stream, from `split`. Dropping it does not end the stream.
#[derive(Debug)]
pub struct WriteHalf<'a, S = TcpStream>(&'a S);

/// The reading half of a stream, from `into_split`. The stream lives until both halves are dropped.
#[derive(Debug)]
pub struct OwnedReadHalf<S = TcpStream>(Arc<S>);

/// The writing half of a stream, from `into_split`. Dropping it is a `shutdown`: the stream ends behind the queued
/// bytes, which are sent in the background.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Inner = TcpStream> {
    stream: Arc<S>,
    ends: bool,
}

/// Error: the halves belong to different streams. Contains the halves.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "its fields are all that it has, as with tokio's")]
pub struct ReuniteError<S: Inner = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

pub(super) fn split<S: Inner>(stream: &mut S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn into_split<S: Inner>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, ends: true })
}

fn reunite<S: Inner>(read: OwnedReadHalf<S>, write: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
    if !Arc::ptr_eq(&read.0, &write.stream) {
        return Err(ReuniteError(read, write));
    }
    write.forget();
    Ok(Arc::into_inner(read.0).expect("internal: a stream has two halves"))
}

impl<S: Inner> OwnedReadHalf<S> {
    /// Joins two halves to their stream.
    ///
    /// # Errors
    ///
    /// The halves, if they are not of one stream.
    pub fn reunite(self, other: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        reunite(self, other)
    }
}

impl<S: Inner> OwnedWriteHalf<S> {
    /// As [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    ///
    /// The halves, if they are not of one stream.
    pub fn reunite(self, other: OwnedReadHalf<S>) -> Result<S, ReuniteError<S>> {
        reunite(other, self)
    }

    /// Drops the half without ending the stream.
    pub fn forget(mut self) {
        self.ends = false;
    }
}

impl<S: Inner> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            self.stream.inner().egress.shut_down_at_drop();
        }
    }
}

impl<S: Inner> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of the same stream")
    }
}

impl<S: Inner + fmt::Debug> Error for ReuniteError<S> {}

/// `InvalidInput`.
impl<S: Inner + fmt::Debug + Send + Sync + 'static> From<ReuniteError<S>> for io::Error {
    fn from(error: ReuniteError<S>) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Implements the methods of streams that are not in the traits, and the conversions to halves and to sockets of the
/// standard library.
macro_rules! whole {
    ($name:ident, $std:ty, $addr:ty) => {
        $crate::net::stream::readiness::reads!([] $name);
        $crate::net::stream::readiness::writes!([] $name);

        impl $crate::net::stream::readiness::Inner for $name {
            type Addr = $addr;

            fn inner(&self) -> &$crate::net::stream::stream::Stream {
                &self.stream
            }

            fn addr(&self, of_peer: bool) -> std::io::Result<$addr> {
                if of_peer { self.peer_addr() } else { self.local_addr() }
            }
        }

        impl TryFrom<$std> for $name {
            type Error = std::io::Error;

            /// As `from_std`, also in its panics.
            fn try_from(stream: $std) -> std::io::Result<Self> {
                Self::from_std(stream)
            }
        }

        impl $name {
            /// Returns the socket, a duplicate that is nonblocking.
            ///
            /// # Errors
            ///
            /// `ErrorKind::WouldBlock` if the socket has not accepted all written bytes; wait for
            /// [`flushed`](Self::flushed) first. The bytes are then sent as after a drop. `ErrorKind::InvalidInput` if
            /// received bytes were given back and not read again. An earlier error that was not returned yet. After an
            /// error the stream is dropped.
            pub fn into_std(self) -> std::io::Result<$std> {
                self.stream.duplicate().map(Into::into)
            }

            /// Splits the stream for one task. The halves borrow it.
            pub fn split(&mut self) -> ($crate::net::ReadHalf<'_, Self>, $crate::net::WriteHalf<'_, Self>) {
                $crate::net::stream::halves::split(self)
            }

            /// Splits the stream for two tasks. Dropping the write half shuts the sending side down.
            pub fn into_split(self) -> ($crate::net::OwnedReadHalf<Self>, $crate::net::OwnedWriteHalf<Self>) {
                $crate::net::stream::halves::into_split(self)
            }
        }
    };
}
pub(in crate::net) use whole;

/// Implements the methods that both halves share. `$stream` is the field with the stream.
macro_rules! half {
    ([$($generics:tt)*] $name:ty, $stream:tt) => {
        impl<$($generics)* S: Inner> Inner for $name {
            type Addr = S::Addr;

            fn inner(&self) -> &Stream {
                self.$stream.inner()
            }

            fn addr(&self, of_peer: bool) -> io::Result<S::Addr> {
                self.$stream.addr(of_peer)
            }
        }

        impl<$($generics)* S: Inner> AsRef<S> for $name {
            fn as_ref(&self) -> &S {
                &self.$stream
            }
        }

        impl<$($generics)* S: Inner> $name {
            /// Returns the local address.
            pub fn local_addr(&self) -> io::Result<S::Addr> {
                self.addr(false)
            }

            /// Returns the address of the peer.
            pub fn peer_addr(&self) -> io::Result<S::Addr> {
                self.addr(true)
            }
        }
    };
}

macro_rules! read_half {
    ([$($generics:tt)*] $name:ty) => {
        half!([$($generics)*] $name, 0);
        reads!([$($generics)* S: Inner] $name);

        impl<$($generics)* S: Inner> AsyncRead for $name {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                self.inner().receive(&mut self.inner().unread_bytes(), Some(cx), buf)
            }
        }
    };
}
read_half!(['a,] ReadHalf<'a, S>);
read_half!([] OwnedReadHalf<S>);

macro_rules! write_half {
    ([$($generics:tt)*] $name:ty, $stream:tt) => {
        half!([$($generics)*] $name, $stream);
        writes!([$($generics)* S: Inner] $name);

        impl<$($generics)* S: Inner> AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.inner().egress.poll_write(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.inner().egress.poll_write(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.inner().egress.flush_asked())
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.inner().egress.shut_down())
            }
        }
    };
}
write_half!(['a,] WriteHalf<'a, S>, 0);
write_half!([] OwnedWriteHalf<S>, stream);
