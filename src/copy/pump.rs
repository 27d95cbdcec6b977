//! Reading into memory of the pool and writing from there: one piece is written while the next is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::Step;
use super::pipes::Pipe;
use crate::buf::{Lease, lease};

/// What is read at first. From here on moving pages costs less than copying bytes.
pub(super) const SMALL: usize = 16 << 10;
/// What is read once that was filled.
const LARGE: usize = 64 << 10;

/// Bytes that were read and not yet written. Without any it holds no memory.
#[derive(Debug, Default)]
pub(super) struct Pump {
    /// What is being written and was not yet. It is frozen, so that a stream of ours can keep it by reference.
    front: Bytes,
    /// What was read meanwhile.
    back: Option<Lease>,
    /// The last read filled what it was given.
    filled: bool,
}

/// One move of a pump.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stroke {
    /// So many bytes were read; none is the end.
    Read(usize),
    /// So many bytes were written.
    Wrote(usize),
}

type Result<T> = std::result::Result<T, (Step, io::Error)>;

impl Pump {
    /// Bytes in hand.
    pub(super) fn pending(&self) -> usize {
        self.front.len() + self.back.as_ref().map_or(0, Lease::len)
    }

    /// Whether the last read filled its buffer, so that there may be much more.
    pub(super) fn is_flooded(&self) -> bool {
        self.filled
    }

    /// Takes note that there is not so much after all.
    pub(super) fn calm(&mut self) {
        self.filled = false;
    }

    /// Writes, and reads up to `room` bytes if the target has to be waited for or there is nothing to write. `Pending`: neither
    /// was possible, and the task is woken when one is.
    pub(super) fn poll<S, D>(
        &mut self,
        cx: &mut Context<'_>,
        src: Pin<&mut S>,
        dst: Pin<&mut D>,
        room: u64,
    ) -> Poll<Result<Stroke>>
    where
        S: AsyncRead,
        D: AsyncWrite,
    {
        if let Poll::Ready(written) = self.poll_write(cx, dst) {
            return Poll::Ready(written.map(Stroke::Wrote).map_err(|e| (Step::Write, e)));
        }
        if room == 0 {
            return Poll::Pending;
        }
        let read = ready!(self.poll_read(cx, src, room));
        Poll::Ready(read.map(Stroke::Read).map_err(|e| (Step::Read, e)))
    }

    /// `Pending` also if there is nothing to write.
    fn poll_write<D: AsyncWrite>(&mut self, cx: &mut Context<'_>, dst: Pin<&mut D>) -> Poll<io::Result<usize>> {
        if self.front.is_empty() {
            let Some(back) = self.back.take() else { return Poll::Pending };
            self.front = back.freeze();
        }
        let n = ready!(dst.poll_write(cx, &self.front))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.front.advance(n);
        if self.front.is_empty() {
            // An empty rest would still hold the block.
            self.front = Bytes::new();
        }
        Poll::Ready(Ok(n))
    }

    fn poll_read<S: AsyncRead>(
        &mut self,
        cx: &mut Context<'_>,
        src: Pin<&mut S>,
        room: u64,
    ) -> Poll<io::Result<usize>> {
        let size = if self.filled { LARGE } else { SMALL };
        let back = self.back.get_or_insert_with(|| lease(size));
        let size = room.min(back.spare_len() as u64) as usize;
        if size == 0 {
            // Both are full, and the target has to be waited for.
            return Poll::Pending;
        }
        let before = back.len();
        let read = back.poll_read(cx, src, size);
        let n = back.len() - before;
        if back.is_empty() {
            self.back = None;
        }
        ready!(read)?;
        self.filled = n == size && n >= SMALL;
        Poll::Ready(Ok(n))
    }

    /// Takes bytes out of a pipe, for a target that a pipe cannot be emptied into. Nothing must be in hand.
    pub(super) fn take(&mut self, pipe: &mut Pipe) -> io::Result<()> {
        let mut piece = lease(LARGE);
        pipe.read(&mut piece, LARGE)?;
        self.back = Some(piece);
        Ok(())
    }
}
