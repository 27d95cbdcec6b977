//! Sequential reader with read-ahead.

use std::io::{self, SeekFrom};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, ReadBuf};
use tokio::task::coop::consume_budget;

use super::cached;
use super::error::Step;
use super::file::{File, NOW_MAX};
use super::pending_seek::{OFFSET_MAX, PendingSeek};
use super::read_ahead::{DEPTH, PIECE, ReadAhead};
use crate::buf::pool;
use crate::runtime::programs::looks_now;
use crate::sys::fd::AsFd;

/// A position in a [`File`] to read from: [`AsyncRead`], [`AsyncBufRead`] and [`AsyncSeek`].
///
/// Bytes in the page cache are read at once, 64 KiB at a time. The first disk read has 64 KiB; from the second
/// consecutive one on, two reads of 256 KiB are in flight. They return the bytes of that moment: later writes behind
/// the position may be seen or not. Reading can continue at the end and returns bytes added since.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("lines");
/// # std::fs::write(&path, "one\ntwo\n")?;
/// use tokio::io::AsyncBufReadExt;
///
/// let mut lines = millstream::fs::File::open(&path).await?.reader().lines();
/// assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
/// # assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
/// # assert_eq!(lines.next_line().await?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns the errors of [`File::read_at`]. The position stays, and the next read tries again.
///
/// # Cancel safety
///
/// Dropping a future that reads or seeks loses nothing but the bytes read by that future itself, such as `read_exact`.
/// Seeking, and dropping the reader, cancel the reads in flight.
#[derive(Debug)]
pub struct FileReader {
    file: File,
    position: u64,
    chunk: Bytes,
    read_ahead: ReadAhead,
    in_a_row: bool,
    pending_seek: PendingSeek,
}

impl File {
    /// Returns a [`FileReader`] that reads the file from its start.
    pub fn reader(&self) -> FileReader {
        FileReader::new(self.clone())
    }
}

impl FileReader {
    fn new(file: File) -> Self {
        Self {
            file,
            position: 0,
            chunk: Bytes::new(),
            read_ahead: ReadAhead::default(),
            in_a_row: false,
            pending_seek: PendingSeek::default(),
        }
    }

    /// Returns the rest of the file as a stream of pieces of up to 256 KiB, without a copy.
    pub fn into_chunks(self) -> Chunks {
        Chunks(self)
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pending_seek.cancel();
        if !self.chunk.is_empty() || self.position == OFFSET_MAX {
            return Poll::Ready(Ok(()));
        }
        if self.read_ahead.is_empty() && looks_now() {
            // A file in memory must not monopolise the thread.
            ready!(pin!(consume_budget()).poll(cx));
            let mut lease = pool::lease(NOW_MAX);
            let read = cached::read(&mut lease, self.file.as_fd(), self.position, NOW_MAX);
            if read.map_err(|e| self.file.failed(Step::Read, e))?.is_some() {
                self.chunk = lease.freeze();
                return Poll::Ready(Ok(()));
            }
        }
        let (depth, end) = match self.in_a_row {
            true => (DEPTH, OFFSET_MAX),
            false => (1, OFFSET_MAX.min(self.position + NOW_MAX as u64)),
        };
        self.read_ahead.begin(cx, &self.file, self.position..end, depth);
        let read = ready!(self.read_ahead.poll_next(cx));
        self.chunk = read.map_err(|e| self.file.failed(Step::Read, e))?;
        if self.in_a_row && self.chunk.len() as u64 == PIECE {
            self.read_ahead.begin(cx, &self.file, self.position + PIECE..OFFSET_MAX, DEPTH);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn move_to(&mut self, to: u64) {
        match to.checked_sub(self.position) {
            Some(n) if n <= self.chunk.len() as u64 => self.chunk.advance(n as usize),
            _ => {
                self.chunk.clear();
                self.read_ahead = ReadAhead::default();
                self.in_a_row = false;
            }
        }
        self.position = to;
    }

    fn advance(&mut self, n: usize) {
        self.chunk.advance(n);
        self.position += n as u64;
        self.in_a_row |= self.chunk.is_empty();
    }
}

impl AsyncRead for FileReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_chunk(cx))?;
        let n = this.chunk.len().min(buf.remaining());
        buf.put_slice(&this.chunk[..n]);
        this.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for FileReader {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_chunk(cx))?;
        Poll::Ready(Ok(&this.chunk))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        let this = self.get_mut();
        this.advance(n.min(this.chunk.len()));
    }
}

impl AsyncSeek for FileReader {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.get_mut().pending_seek.start(to);
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        let to = ready!(this.pending_seek.poll(cx, &this.file, this.position))?;
        this.move_to(to);
        Poll::Ready(Ok(to))
    }
}

/// The rest of a file as a [`Stream`] of pool memory, returned by [`FileReader::into_chunks`]. It ends with the file,
/// and continues if polled again after an error.
#[derive(Debug)]
pub struct Chunks(FileReader);

impl Stream for Chunks {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = &mut self.get_mut().0;
        ready!(reader.poll_chunk(cx))?;
        let chunk = reader.chunk.clone();
        reader.advance(chunk.len());
        Poll::Ready((!chunk.is_empty()).then_some(Ok(chunk)))
    }
}
