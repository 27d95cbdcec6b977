//! The writer: what its owner calls.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::shared::{Ends, Shared, State};
use super::write_buffer::{Shape, WriteBuffer};
use crate::runtime::{Flush, Turn};

/// Bytes beyond which writers wait, unless the builder says otherwise.
const LIMIT: usize = 256 << 10;

/// Gathers pieces for an inner writer, and hands many of them over in one write.
///
/// [`Bytes`] are kept as they are, slices are copied into pool memory, and their order stays. A flush offers up to 1024
/// pieces, `IOV_MAX`, in one `poll_write_vectored`; if the inner writer takes a part, the next call goes on behind it.
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
/// * When it is told to: `flush`, [`flushed`](Self::flushed), `shutdown`.
/// * When [so many bytes](Builder::flush_at) wait, as far as the inner writer takes them at that moment.
/// * When the [limit](Builder::limit) is reached. Then writers wait, until half of it is free.
/// * At the [end of the turn](Builder::end_of_turn), if it was built so, whether or not its task is polled again. Then
///   `flush` returns at once, as it does for [`net::TcpStream`](crate::net::TcpStream), and `flushed` waits.
///
/// # Flat
///
/// An inner writer that does not write pieces gets them copied into one: [`is_flat`](Self::is_flat). That is so from the
/// start if it says so itself ([`AsyncWrite::is_write_vectored`]), and from the third time in a row that it takes just
/// the first piece of several, or whole TLS records of 16 KiB but not all that was offered, and then at once takes more.
/// The flat buffer is as long as what it took then, 16 KiB to 64 KiB. [`Builder::shape`] settles it beforehand.
///
/// # Errors
///
/// An error of the inner writer ends the writer: what waits is lost (and counted in
/// [`bytes_lost`](crate::counters::Snapshot::bytes_lost)), and every later call returns an error of the same kind. So does
/// a mapped file that shrinks while it waits, with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof): some of its bytes may
/// have left as zeros, so do not end the stream as if it were whole.
///
/// # Cancellation and drop
///
/// All methods are cancel safe: a future that is dropped has lost no bytes that were taken, and will not write any twice.
/// A dropped writer loses what waits, as tokio's `BufWriter` does; one that leaves at the end of the turn still writes
/// what the inner writer takes there. `shutdown` loses nothing. A forgotten writer keeps its memory, and nothing else.
pub struct Writer<W> {
    shared: Arc<Shared<W>>,
    flush_at: usize,
}

/// Options of a [`Writer`].
#[must_use = "nothing is written before it is built"]
pub struct Builder<W> {
    inner: W,
    shape: Shape,
    limit: usize,
    flush_at: usize,
    ends: Option<(Arc<Turn>, Duration, AsFlush<W>)>,
}

/// Forgets the type of the inner writer, where that can be done.
type AsFlush<W> = fn(Weak<Shared<W>>) -> Weak<dyn Flush>;

impl<W: AsyncWrite + Unpin> Builder<W> {
    /// Whether the inner writer gets pieces or one flat buffer.
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Most bytes that may wait; 256 KiB by default, at least 1. The bound is lowered, down to an eighth, while the inner
    /// writer takes longer than 100 ms for what fills it, and raised again when it is faster.
    ///
    /// [`Bytes`] are taken whole, so the last of them may go beyond. Of the pool a writer keeps by reference at most twice as
    /// much and [256 KiB](crate::buf::Queue#memory).
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes.max(1);
        self
    }

    /// Writes whenever as many bytes wait, without waiting for it. Not so by default.
    pub fn flush_at(mut self, bytes: usize) -> Self {
        self.flush_at = bytes;
        self
    }

    /// Builds the writer.
    pub fn build(self) -> Writer<W> {
        let Self { inner, shape, limit, flush_at, ends } = self;
        let write_buffer = WriteBuffer::new(inner, shape, limit);
        let shared = Arc::new_cyclic(|me: &Weak<Shared<W>>| {
            let ends = ends.map(|(turn, limit, flush)| Ends::new(turn, limit, flush(me.clone())));
            Shared::new(write_buffer, ends)
        });
        Writer { shared, flush_at }
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Builder<W> {
    /// Has the writer leave at the end of the runtime's turn, or after `limit` while more writes keep coming; 1 ms is
    /// what [`net::TcpStream`](crate::net::TcpStream) waits at most. No timer is armed.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn end_of_turn(mut self, limit: Duration) -> Self {
        self.ends = Some((Turn::current(), limit, |me| me));
        self
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// A writer that writes when it is told to.
    pub fn new(inner: W) -> Self {
        Self::builder(inner).build()
    }

    /// A writer to be.
    pub fn builder(inner: W) -> Builder<W> {
        Builder { inner, shape: Shape::Auto, limit: LIMIT, flush_at: usize::MAX, ends: None }
    }

    /// Bytes that wait to be written.
    pub fn queued(&self) -> usize {
        self.shared.with(|state| state.write_buffer.queued())
    }

    /// Whether the inner writer gets everything in one piece.
    pub fn is_flat(&self) -> bool {
        self.shared.with(|state| state.write_buffer.is_flat())
    }

    /// Looks at the inner writer. `look` must not use this writer, which waits for it.
    pub fn with_inner<T>(&self, look: impl FnOnce(&W) -> T) -> T {
        self.shared.with(|state| look(&state.write_buffer.inner))
    }

    /// Ready once there is room for more, below the [limit](Builder::limit).
    ///
    /// # Errors
    ///
    /// That which ended the writer.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|state| Self::poll_room(&self.shared, state, cx))
    }

    fn poll_room(shared: &Shared<W>, state: &mut State<W>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        state.write_buffer.check()?;
        if state.write_buffer.has_room() {
            return Poll::Ready(Ok(()));
        }
        state.write_buffer.wait_for_room();
        match shared.poll(state, Some(cx), WriteBuffer::poll_drain)? {
            Poll::Pending if !state.write_buffer.has_room() => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Takes `bytes` now, without a copy if they are 512 or more. Does not ask for room: see [`poll_ready`](Self::poll_ready).
    ///
    /// # Errors
    ///
    /// That which ended the writer; `bytes` were not taken then.
    pub fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        self.shared.with(|state| self.take(state, |write_buffer| write_buffer.push_bytes(bytes)))
    }

    /// Waits for room, then takes `bytes`, without a copy if they are 512 or more.
    ///
    /// # Errors
    ///
    /// That which ended the writer; `bytes` were not taken then.
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

    /// Waits until the inner writer has taken everything and was flushed.
    ///
    /// # Errors
    ///
    /// That which ended the writer.
    pub async fn flushed(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.shared.with(|state| self.shared.poll(state, Some(cx), WriteBuffer::poll_drain))).await
    }

    fn take(&self, state: &mut State<W>, push: impl FnOnce(&mut WriteBuffer<W>) -> io::Result<()>) -> io::Result<()> {
        state.write_buffer.check()?;
        push(&mut state.write_buffer)?;
        self.shared.note_write();
        if state.write_buffer.queued() >= self.flush_at {
            // They were taken, whatever comes of it: an error is told by the next call.
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

impl<W> fmt::Debug for Builder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("shape", &self.shape).field("limit", &self.limit).finish_non_exhaustive()
    }
}
