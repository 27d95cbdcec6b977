//! Writer: the API of gathered writing.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::shared::{Ends, WriterShared, WriterState};
use super::write_buffer::{Shape, WriteBuffer};
use crate::runtime::{Flush, Turn};

const HIGH_MARK: usize = 256 << 10;

/// Gathers pieces and passes many of them to an inner writer in one write.
///
/// [`Bytes`] are kept by reference, slices are copied into pool memory, and the order is preserved. A flush offers up
/// to 1024 pieces (`IOV_MAX`) in one `poll_write_vectored`; after a partial write the next call continues behind it.
///
/// ```
/// use millstream::codec::Writer;
/// use tokio::io::AsyncWriteExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let inner = Vec::new();
/// let mut writer = Writer::new(inner);
/// writer.write_all(b"head: ").await?;
/// writer.send(vec![b'x'; 4000].into()).await?;
/// writer.flush().await?;
/// # Ok(())
/// # }
/// ```
///
/// # When it writes
///
/// * On `flush`, [`flushed`](Self::flushed) and `shutdown`.
/// * When [enough bytes](WriterBuilder::flush_at) are queued, as far as the inner writer accepts them then.
/// * When the [high mark](WriterBuilder::high_mark) is reached. Writers then wait until half of it is free.
/// * At the [end of the turn](WriterBuilder::gather_limit), if so configured, even if its task is not polled again.
///   `flush` then returns at once, as for [`net::TcpStream`](crate::net::TcpStream), and `flushed` waits.
///
/// # Flat
///
/// An inner writer that does not support vectored writes gets the pieces copied into one: [`is_flat`](Self::is_flat).
/// This applies from the start if [`AsyncWrite::is_write_vectored`] is false. It also applies once three consecutive
/// writes were cut: each accepted only the first of several pieces, or whole TLS records of 16 KiB but not everything,
/// and the next write was accepted at once. The flat buffer is as long as the last cut write, 16 KiB to 64 KiB.
/// [`WriterBuilder::shape`] sets the mode explicitly.
///
/// # Errors
///
/// An error of the inner writer ends the writer: queued bytes are lost (and counted in
/// [`bytes_lost`](crate::counters::Snapshot::bytes_lost)), and every later call returns an error of the same kind. A
/// mapped file that shrinks while it is queued does the same, with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof):
/// some of its bytes may have been sent as zeros, so do not end the stream as if it were complete.
///
/// # Cancel safety
///
/// All methods are cancel safe: dropping a future loses no accepted bytes, and none is written twice. Dropping the
/// writer loses queued bytes, as with tokio's `BufWriter`; with `gather_limit` it still writes as much as the inner
/// writer accepts at the end of the turn. `shutdown` loses nothing. A forgotten writer leaks only its memory.
pub struct Writer<W> {
    shared: Arc<WriterShared<W>>,
    flush_at: usize,
}

/// Options of a [`Writer`].
#[must_use = "nothing is written before it is built"]
pub struct WriterBuilder<W> {
    inner: W,
    shape: Shape,
    high_mark: usize,
    flush_at: usize,
    ends: Option<(Arc<Turn>, Duration, AsFlush<W>)>,
}

type AsFlush<W> = fn(Weak<WriterShared<W>>) -> Weak<dyn Flush>;

impl<W: AsyncWrite + Unpin> WriterBuilder<W> {
    /// Sets whether the inner writer gets pieces or one flat buffer.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Sets the number of queued bytes above which writers wait; 256 KiB by default, at least 1. The mark shrinks, down
    /// to an eighth, while the inner writer takes longer than 100 ms to write that much, and grows again when it is
    /// faster.
    ///
    /// [`Bytes`] are accepted whole, so the last ones may exceed the mark. A writer keeps at most twice the mark and
    /// 256 KiB of the pool by reference.
    pub fn high_mark(mut self, bytes: usize) -> Self {
        self.high_mark = bytes.max(1);
        self
    }

    /// Writes, without waiting, whenever `bytes` bytes are queued. Off by default.
    pub fn flush_at(mut self, bytes: usize) -> Self {
        self.flush_at = bytes;
        self
    }

    /// Builds the writer.
    pub fn build(self) -> Writer<W> {
        let Self { inner, shape, high_mark, flush_at, ends } = self;
        let write_buffer = WriteBuffer::new(inner, shape, high_mark);
        let shared = Arc::new_cyclic(|me: &Weak<WriterShared<W>>| {
            let ends = ends.map(|(turn, limit, flush)| Ends::new(turn, limit, flush(me.clone())));
            WriterShared::new(write_buffer, ends)
        });
        Writer { shared, flush_at }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> WriterBuilder<W> {
    /// Flushes at the end of the runtime's turn, and sets the maximum time that a byte waits while writes continue, as
    /// [`gather_limit`](crate::net::TcpListenerBuilder::gather_limit) of sockets, which is 1 ms. No timer is armed. Off
    /// by default.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[track_caller]
    pub fn gather_limit(mut self, limit: Duration) -> Self {
        self.ends = Some((Turn::current(), limit, |me| me));
        self
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Creates a writer that writes on `flush`, `flushed` and `shutdown`.
    pub fn new(inner: W) -> Self {
        Self::builder(inner).build()
    }

    /// Returns a builder with default options.
    pub fn builder(inner: W) -> WriterBuilder<W> {
        WriterBuilder { inner, shape: Shape::Auto, high_mark: HIGH_MARK, flush_at: usize::MAX, ends: None }
    }

    /// Returns the number of queued bytes.
    pub fn queued(&self) -> usize {
        self.shared.with(|state| state.write_buffer.queued())
    }

    /// Returns whether the inner writer gets everything in one piece.
    pub fn is_flat(&self) -> bool {
        self.shared.with(|state| state.write_buffer.is_flat())
    }

    /// Calls `look` with the inner writer. `look` must not use this writer, which is locked.
    pub fn with_inner<T>(&self, look: impl FnOnce(&W) -> T) -> T {
        self.shared.with(|state| look(&state.write_buffer.inner))
    }

    /// Waits until there is room below the [high mark](WriterBuilder::high_mark). Fails if the writer has ended.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|state| Self::poll_room(&self.shared, state, cx))
    }

    fn poll_room(shared: &WriterShared<W>, state: &mut WriterState<W>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        state.write_buffer.check()?;
        if state.write_buffer.check_room() {
            return Poll::Ready(Ok(()));
        }
        state.write_buffer.wait_for_room();
        match shared.poll(state, Some(cx), WriteBuffer::poll_drain)? {
            Poll::Pending if !state.write_buffer.check_room() => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Queues `bytes` now, without a copy if they are 512 or more. Does not check for room: see
    /// [`poll_ready`](Self::poll_ready). Fails, without queueing, if the writer has ended.
    pub fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        self.shared.with(|state| self.take(state, |write_buffer| write_buffer.push_bytes(bytes)))
    }

    /// Waits for room, then queues `bytes` like [`push`](Self::push).
    pub async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        let mut bytes = Some(bytes);
        poll_fn(|cx| {
            self.shared.with(|state| {
                ready!(Self::poll_room(&self.shared, state, cx))?;
                Poll::Ready(self.take(state, |write_buffer| write_buffer.push_bytes(bytes.take().unwrap_or_default())))
            })
        })
        .await
    }

    /// Waits until the inner writer has accepted and flushed all bytes. Fails if the writer has ended.
    pub async fn flushed(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.shared.with(|state| self.shared.poll(state, Some(cx), WriteBuffer::poll_drain))).await
    }

    fn take(
        &self,
        state: &mut WriterState<W>,
        push: impl FnOnce(&mut WriteBuffer<W>) -> io::Result<()>,
    ) -> io::Result<()> {
        state.write_buffer.check()?;
        push(&mut state.write_buffer)?;
        self.shared.note_write();
        if state.write_buffer.queued() >= self.flush_at {
            // The bytes are queued in any case; the next call returns an error.
            let _told_later = self.shared.poll(state, None, WriteBuffer::poll_drain);
        }
        Ok(())
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Writer<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.shared.with(|state| {
            ready!(Self::poll_room(&self.shared, state, cx))?;
            let mut taken = 0;
            let push = |write_buffer: &mut WriteBuffer<W>| {
                for buf in bufs {
                    let piece = &buf[..buf.len().min(write_buffer.room())];
                    write_buffer.push(piece)?;
                    taken += piece.len();
                    if piece.len() < buf.len() {
                        break;
                    }
                }
                Ok(())
            };
            self.take(state, push)?;
            Poll::Ready(Ok(taken))
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|state| match self.shared.leaves_by_itself() {
            true => Poll::Ready(state.write_buffer.check()),
            false => self.shared.poll(state, Some(cx), WriteBuffer::poll_drain),
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|state| self.shared.poll(state, Some(cx), WriteBuffer::poll_shutdown))
    }
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<W> fmt::Debug for WriterBuilder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterBuilder")
            .field("shape", &self.shape)
            .field("high_mark", &self.high_mark)
            .finish_non_exhaustive()
    }
}
