//! A file written front to back, with one write under way while the next is gathered.

use std::fmt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncSeek, AsyncWrite};

use super::File;
use super::pending_seek::PendingSeek;
use super::read_ahead::Under;
use crate::buf::pool::{self, Lease};
use crate::counters::{Counter, count};

/// Bytes that are gathered for one write.
const PIECE: usize = 256 << 10;

/// A position in a [`File`] to write to: [`AsyncWrite`] and [`AsyncSeek`].
///
/// What is written is gathered into pieces of 256 KiB. A piece that is full is written while the next is gathered; at
/// most one write is under way, so that bytes reach the file in order also where it appends.
///
/// **Flush it, or shut it down, before it is dropped:** what was accepted and not written by then may be lost. It is
/// counted in [`bytes_lost`](crate::counters::Snapshot::bytes_lost). Either brings everything to the page cache; for the
/// disk there is [`File::sync_data`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("copy");
/// use tokio::io::AsyncWriteExt;
///
/// let file = millstream::fs::File::create(&path).await?;
/// let mut writer = file.writer();
/// tokio::io::copy(&mut &b"bytes from elsewhere"[..], &mut writer).await?;
/// writer.shutdown().await?;
/// file.sync_data().await?;
/// # assert_eq!(std::fs::read(&path)?, b"bytes from elsewhere");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`File::write_at`]. A piece that could not be written is told by the next write, flush, shut-down or seek,
/// once, and is not tried again; the position stays behind it. What that call was given is not accepted.
///
/// # Cancellation
///
/// Nothing is lost by dropping a future that writes, flushes or seeks, but for how far that future has come itself, such as
/// `write_all`.
pub struct Writer {
    file: File,
    /// Of the first byte that is gathered.
    position: u64,
    /// What is gathered.
    lease: Option<Lease>,
    /// A piece that is being written, and its length.
    under: Option<(Under<()>, usize)>,
    pending_seek: PendingSeek,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("file", &self.file)
            .field("position", &self.position)
            .field("gathered", &self.gathered())
            .field("under_way", &self.under.as_ref().map_or(0, |(_, len)| *len))
            .finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(file: File) -> Self {
        Self { file, position: 0, lease: None, under: None, pending_seek: PendingSeek::default() }
    }

    /// The file that is written.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Goes on at another position. All that was written must have been flushed.
    pub(crate) fn move_to(&mut self, to: u64) {
        debug_assert!(self.gathered() == 0 && self.under.is_none(), "internal: not flushed");
        self.position = to;
    }

    fn gathered(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::len)
    }

    /// Waits for the write that is under way, and tells its outcome.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((write, _)) = &mut self.under else { return Poll::Ready(Ok(())) };
        let written = ready!(write.as_mut().poll(cx));
        self.under = None;
        Poll::Ready(written)
    }

    /// Begins to write what is gathered, if nothing is under way, and tells the outcome if that is known at once.
    fn begin(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        let (file, position, len) = (self.file.clone(), self.position, lease.len());
        let write: Under<()> = Box::pin(async move { Ok(file.write_at(position, lease.freeze()).await?) });
        self.under = Some((write, len));
        self.position += len as u64;
        match self.poll_written(cx) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Also where there is room: an error is to be told before more is accepted.
        let under_way = this.poll_written(cx)?.is_pending();
        if this.gathered() == PIECE {
            if under_way {
                return Poll::Pending;
            }
            this.begin(cx)?;
        }
        let lease = this.lease.get_or_insert_with(|| pool::lease(PIECE));
        let n = bytes.len().min(PIECE - lease.len());
        lease.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_written(cx))?;
        this.begin(cx)?;
        this.poll_written(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for Writer {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.get_mut().pending_seek.start(to);
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if !self.pending_seek.is_asked_for() {
            return Poll::Ready(Ok(self.position + self.gathered() as u64));
        }
        // What comes behind the jump may be for the same place, and the end may be where this leads.
        ready!(self.as_mut().poll_flush(cx))?;
        let this = self.get_mut();
        this.position = ready!(this.pending_seek.poll(cx, &this.file, this.position))?;
        Poll::Ready(Ok(this.position))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let lost = self.gathered() + self.under.as_ref().map_or(0, |(_, len)| *len);
        count(Counter::BytesLost, lost as u64);
    }
}
