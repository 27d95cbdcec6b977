//! Reads into pool memory and writes from it: one piece is written while the next is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};

use super::ends::{Source, Target};
use super::pipes::Pipe;
use crate::buf::{Lease, lease};
use crate::fs::Step;

/// Length of the first read. From this size on, moving pages costs less than copying bytes.
pub(super) const SMALL: usize = 16 << 10;
const LARGE: usize = 64 << 10;

/// Bytes that were read and not yet written. An empty pump holds no memory.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// Unwritten rest of the current piece, frozen so that a stream of this crate can keep it by reference.
    front: Bytes,
    back: Option<Lease>,
    filled: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stroke {
    /// Number of bytes read; 0 means the end.
    Read(usize),
    Wrote(usize),
}

type Result<T> = std::result::Result<T, (Step, io::Error)>;

impl Pump {
    pub(super) fn pending(&self) -> usize {
        self.front.len() + self.back.as_ref().map_or(0, Lease::len)
    }

    /// Returns whether the last read filled its buffer, so that more bytes may be available.
    pub(super) fn is_flooded(&self) -> bool {
        self.filled
    }

    pub(super) fn calm(&mut self) {
        self.filled = false;
    }

    /// Writes, or reads up to `room` bytes if the target is not ready or there is nothing to write. Returns `Pending`
    /// if neither is possible; the task is woken when one is.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        src: &mut dyn Source,
        dst: &mut dyn Target,
        room: u64,
    ) -> Poll<Result<Stroke>> {
        if let Poll::Ready(written) = self.poll_write(cx, dst) {
            return Poll::Ready(written.map(Stroke::Wrote).map_err(|e| (Step::Write, e)));
        }
        if room == 0 {
            return Poll::Pending;
        }
        let read = ready!(self.poll_read(cx, src, room));
        Poll::Ready(read.map(Stroke::Read).map_err(|e| (Step::Read, e)))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, dst: &mut dyn Target) -> Poll<io::Result<usize>> {
        if self.front.is_empty() {
            let Some(back) = self.back.take() else { return Poll::Pending };
            self.front = back.freeze();
        }
        let n = ready!(Pin::new(dst).poll_write(cx, &self.front))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.front.advance(n);
        if self.front.is_empty() {
            // An empty remainder would still hold the block.
            self.front = Bytes::new();
        }
        Poll::Ready(Ok(n))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, src: &mut dyn Source, room: u64) -> Poll<io::Result<usize>> {
        let size = if self.filled { LARGE } else { SMALL };
        let back = self.back.get_or_insert_with(|| lease(size));
        let size = room.min(back.spare_len() as u64) as usize;
        if size == 0 {
            // Both buffers are full, and the target is not ready.
            return Poll::Pending;
        }
        let before = back.len();
        let read = back.poll_read(cx, Pin::new(src), size);
        let n = back.len() - before;
        if back.is_empty() {
            self.back = None;
        }
        ready!(read)?;
        self.filled = n == size && n >= SMALL;
        Poll::Ready(Ok(n))
    }

    /// Reads bytes out of a pipe, for a target that cannot be spliced to. The pump must be empty.
    pub(super) fn take(&mut self, pipe: &mut Pipe) -> io::Result<()> {
        let mut piece = lease(LARGE);
        pipe.read(&mut piece, LARGE)?;
        self.back = Some(piece);
        Ok(())
    }
}
