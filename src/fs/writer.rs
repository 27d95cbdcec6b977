//! Sequential writer: one write is in flight while the next is gathered.

use std::fmt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncSeek, AsyncWrite};

use super::file::File;
use super::pending_seek::PendingSeek;
use super::read_ahead::Under;
use crate::buf::pool::{self, Lease};
use crate::counters::{Counter, count};

const PIECE: usize = 256 << 10;

/// A position in a [`File`] to write to: [`AsyncWrite`] and [`AsyncSeek`].
///
/// Bytes are gathered into pieces of 256 KiB. A full piece is written while the next is gathered; at most one write is
/// in flight, so bytes stay in order even if the file is appended to. Unlike with tokio's `File`, a vectored write
/// accepts only bytes of the first buffer that is not empty.
///
/// **Flush it, or shut it down, before dropping it:** accepted bytes that are not written yet may be lost, and are
/// counted in [`bytes_lost`](crate::counters::Snapshot::bytes_lost). Both write everything to the page cache;
/// [`File::sync_data`] writes to the disk.
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
/// Returns the errors of [`File::write_at`]. An error of a piece is returned once, by the next write, flush, shutdown
/// or seek, which accepts nothing. The piece is not retried; the position stays behind it.
///
/// # Cancel safety
///
/// Dropping a future that writes, flushes or seeks loses nothing but the progress of that future itself, such as
/// `write_all`. A write after a seek whose future was dropped goes to the position before the seek, unless the seek had
/// ended.
pub struct FileWriter {
    file: File,
    position: u64,
    lease: Option<Lease>,
    under: Option<(Under<()>, usize)>,
    pending_seek: PendingSeek,
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWriter")
            .field("file", &self.file)
            .field("position", &self.position)
            .field("gathered", &self.gathered())
            .field("under_way", &self.under.as_ref().map_or(0, |(_, len)| *len))
            .finish_non_exhaustive()
    }
}

impl File {
    /// Returns a [`FileWriter`] that writes the file from its start.
    pub fn writer(&self) -> FileWriter {
        FileWriter::new(self.clone())
    }
}

impl FileWriter {
    fn new(file: File) -> Self {
        Self { file, position: 0, lease: None, under: None, pending_seek: PendingSeek::default() }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Continues at another position. All bytes must have been flushed.
    pub(crate) fn move_to(&mut self, to: u64) {
        debug_assert!(self.gathered() == 0 && self.under.is_none(), "internal: not flushed");
        self.position = to;
    }

    fn gathered(&self) -> usize {
        self.lease.as_ref().map_or(0, Lease::len)
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((write, _)) = &mut self.under else { return Poll::Ready(Ok(())) };
        let written = ready!(write.as_mut().poll(cx));
        self.under = None;
        Poll::Ready(written)
    }

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

impl AsyncWrite for FileWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.pending_seek.cancel();
        // Checked even if there is room: an error is returned before more bytes are accepted.
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

impl AsyncSeek for FileWriter {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.get_mut().pending_seek.start(to);
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if !self.pending_seek.is_asked_for() {
            return Poll::Ready(Ok(self.position + self.gathered() as u64));
        }
        // Flushes first: later bytes may overlap the pending ones, and the pending ones may move the end.
        ready!(self.as_mut().poll_flush(cx)).inspect_err(|_| self.pending_seek.cancel())?;
        let this = self.get_mut();
        this.position = ready!(this.pending_seek.poll(cx, &this.file, this.position))?;
        Poll::Ready(Ok(this.position))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        let lost = self.gathered() + self.under.as_ref().map_or(0, |(_, len)| *len);
        count(Counter::BytesLost, lost as u64);
    }
}
