//! Reader: reads into pool memory and returns `Bytes`.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};
use tokio::net::{TcpStream, tcp};
#[cfg(unix)]
use tokio::net::{UnixStream, unix};

use crate::buf::{Lease, lease};
use crate::codec::adaptive_size::AdaptiveSize;

const LEASE_MIN: usize = 4 << 10;
const LEASE_MAX: usize = 64 << 10;
const LEASES: usize = 4;

/// Source of [`Reader::vectored`]: waits for input without a buffer, then reads into several buffers. Implemented for
/// tokio's sockets.
pub trait ReadVectored {
    /// Waits until there may be input, like tokio's `poll_read_ready`.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads into `bufs` in order, like [`readv(2)`](https://man7.org/linux/man-pages/man2/readv.2.html), and returns
    /// the number of bytes written to them. The buffers are not zeroed: an implementation that returns more than it has
    /// written exposes old contents.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no input; `poll_read_ready` then waits again.
    fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
}

macro_rules! read_vectored {
    ($($stream:ty, $of:expr;)+) => {$(
        impl ReadVectored for $stream {
            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                $of(self).poll_read_ready(cx)
            }

            fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                $of(self).try_read_vectored(bufs)
            }
        }
    )+};
}

read_vectored! {
    TcpStream, std::convert::identity::<&TcpStream>;
    tcp::OwnedReadHalf, AsRef::<TcpStream>::as_ref;
}
#[cfg(unix)]
read_vectored! {
    UnixStream, std::convert::identity::<&UnixStream>;
    unix::OwnedReadHalf, AsRef::<UnixStream>::as_ref;
}

type Filled = [Option<Lease>; LEASES];

/// Function that reads once into leases, the first of a given size.
type Fill<R> = fn(&mut R, &mut Context<'_>, usize) -> Poll<io::Result<Filled>>;

/// Reads into memory of the [pool](crate::buf) and returns it as [`Bytes`], without a copy.
///
/// ```
/// use millstream::codec::Reader;
/// use tokio::io::AsyncBufReadExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let inner = &b"a line\nand what follows"[..];
/// let mut reader = Reader::new(inner);
/// let end = reader.fill_buf().await?.iter().position(|&b| b == b'\n').unwrap();
/// assert_eq!(reader.split_to(end + 1), "a line\n");
/// assert_eq!(reader.chunk().await?, "and what follows");
/// assert!(reader.chunk().await?.is_empty(), "the end");
/// # Ok(())
/// # }
/// ```
///
/// A read asks for 4 KiB to 64 KiB, depending on earlier reads, or with [`vectored`](Self::vectored) for up to 256 KiB
/// in several leases; leases that stay empty are freed at once. A reader that waits for input holds no memory. Returned
/// bytes keep their lease alive.
///
/// # Errors
///
/// Returns the errors of the inner reader. Reading may continue after an error.
///
/// # Cancel safety
///
/// All methods are cancel safe: bytes that were read stay in the reader until they are taken.
pub struct Reader<R> {
    inner: R,
    fill: Fill<R>,
    /// Bytes that were read and not taken: the front, and the following pieces.
    front: Bytes,
    rest: VecDeque<Bytes>,
    size: AdaptiveSize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Creates a reader with one lease for each read.
    pub fn new(inner: R) -> Self {
        Self::by(inner, |inner, cx, size| {
            let mut lease = lease(size);
            ready!(lease.poll_read(cx, Pin::new(inner), size))?;
            Poll::Ready(Ok([Some(lease), None, None, None]))
        })
    }

    /// Creates a reader of a socket, with several leases for each read, allocated only when input is available.
    pub fn vectored(inner: R) -> Self
    where
        R: ReadVectored,
    {
        Self::by(inner, |inner, cx, size| {
            loop {
                ready!(inner.poll_read_ready(cx))?;
                // At least two leases: input that exceeds the first is read by the same call.
                let used = if size < LEASE_MAX { 2 } else { LEASES };
                let mut leases: Filled = std::array::from_fn(|i| match i {
                    0 => Some(lease(size)),
                    i => (i < used).then(|| lease(LEASE_MAX)),
                });
                let mut slices = leases.each_mut().map(|lease| match lease {
                    Some(lease) => IoSliceMut::new(lease.spare()),
                    None => IoSliceMut::new(&mut []),
                });
                let mut n = match inner.try_read_vectored(&mut slices[..used]) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                    read => read?,
                };
                for lease in leases.iter_mut().flatten() {
                    let len = n.min(lease.spare_len());
                    lease.advance(len);
                    n -= len;
                }
                return Poll::Ready(Ok(leases));
            }
        })
    }

    fn by(inner: R, fill: Fill<R>) -> Self {
        let size = AdaptiveSize::new(LEASE_MIN..=LEASE_MAX, LEASE_MIN);
        Self { inner, fill, front: Bytes::new(), rest: VecDeque::new(), size }
    }

    fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.front.is_empty() {
            let leases = ready!((self.fill)(&mut self.inner, cx, self.size.size()))?;
            let filled = leases.into_iter().flatten().filter(|lease| !lease.is_empty());
            self.rest.extend(filled.map(Lease::freeze));
            let n = self.rest.iter().map(Bytes::len).sum();
            self.size.came(n, Instant::now());
            self.front = self.rest.pop_front().unwrap_or_default();
        }
        Poll::Ready(Ok(()))
    }

    fn taken(&mut self, n: usize) {
        self.size.left(n, Instant::now());
        if self.front.is_empty() {
            self.front = self.rest.pop_front().unwrap_or_default();
        }
    }

    /// Returns the available bytes, up to the end of a lease; waits if there are none. Returns no bytes at the end.
    pub async fn chunk(&mut self) -> io::Result<Bytes> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        ready!(self.poll_some(cx))?;
        Poll::Ready(Ok(self.split_to(self.front.len())))
    }

    /// Returns bytes that were read and not taken, up to the end of a lease.
    pub fn buffer(&self) -> &[u8] {
        &self.front
    }

    /// Takes the first `n` bytes of [`buffer`](Self::buffer) or `fill_buf`, without a copy.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer than `n` bytes.
    pub fn split_to(&mut self, n: usize) -> Bytes {
        let bytes = self.front.split_to(n);
        self.taken(n);
        bytes
    }

    /// Returns the inner reader. Bytes read from it directly are missing here.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// Returns the inner reader mutably.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }
}

impl<R: AsyncRead + Unpin> AsyncBufRead for Reader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let me = self.get_mut();
        ready!(me.poll_some(cx))?;
        Poll::Ready(Ok(&me.front))
    }

    fn consume(mut self: Pin<&mut Self>, n: usize) {
        self.front.advance(n);
        self.taken(n);
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Reader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.front.is_empty() && buf.remaining() >= self.size.size() {
            // Reads directly into a large buffer of the caller, which saves a copy.
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let there = ready!(self.as_mut().poll_fill_buf(cx))?;
        let n = there.len().min(buf.remaining());
        buf.put_slice(&there[..n]);
        self.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl<R: fmt::Debug> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("inner", &self.inner)
            .field("buffered", &(self.front.len() + self.rest.iter().map(Bytes::len).sum::<usize>()))
            .field("size", &self.size.size())
            .finish_non_exhaustive()
    }
}
