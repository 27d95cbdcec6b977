//! Gathers the items of a stream into batches for the disk.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use crate::buf::{Lease, lease};
use crate::sys::call::IOV_LIMIT;

/// Two such batches and their last items, of up to 64 KiB each, have at most 1 MiB.
pub(super) const FULL: usize = 448 << 10;
/// Items shorter than this are copied together: a kept item costs an entry in the system call, and may pin a large
/// buffer.
const COPY_MAX: usize = 16 << 10;
const TOGETHER: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct ChunkBatch {
    pieces: Vec<Bytes>,
    small: Option<Lease>,
    len: usize,
}

impl ChunkBatch {
    /// Takes items until the batch is full, or has `room` bytes. Returns whether the stream has ended.
    pub(super) fn poll_fill<S, B, E>(
        &mut self,
        cx: &mut Context<'_>,
        mut stream: Pin<&mut S>,
        room: usize,
    ) -> Poll<Result<bool, E>>
    where
        S: Stream<Item = Result<B, E>>,
        B: Into<Bytes>,
    {
        while self.len < FULL.min(room) && self.pieces.len() < IOV_LIMIT {
            match ready!(stream.as_mut().poll_next(cx)) {
                Some(item) => self.push(item?.into()),
                None => return Poll::Ready(Ok(true)),
            }
        }
        Poll::Ready(Ok(false))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn push(&mut self, item: Bytes) {
        self.len += item.len();
        if item.len() >= COPY_MAX {
            self.close_small();
            self.pieces.push(item);
            return;
        }
        if self.small.as_ref().is_some_and(|small| small.spare_len() < item.len()) {
            self.close_small();
        }
        self.small.get_or_insert_with(|| lease(TOGETHER)).extend_from_slice(&item);
    }

    fn close_small(&mut self) {
        self.pieces.extend(self.small.take().map(Lease::freeze));
    }

    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        self.close_small();
        self.pieces
    }
}

#[cfg(test)]
mod tests;
