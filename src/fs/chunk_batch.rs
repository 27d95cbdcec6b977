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
mod tests {
    use super::*;
    use futures_util::stream;
    use std::future::poll_fn;
    use std::io;

    async fn taken(lens: &[usize]) -> Vec<(usize, usize)> {
        let bytes = |(n, &len): (usize, &usize)| vec![n as u8; len];
        let items: Vec<_> = lens.iter().enumerate().map(bytes).collect();
        let mut stream = Box::pin(stream::iter(items.clone().into_iter().map(Ok::<_, io::Error>)));
        let (mut all, mut rounds, mut ended) = (Vec::new(), Vec::new(), false);
        while !ended {
            let mut chunk_batch = ChunkBatch::default();
            ended = poll_fn(|cx| chunk_batch.poll_fill(cx, stream.as_mut(), usize::MAX)).await.unwrap();
            let pieces = chunk_batch.into_pieces();
            rounds.push((pieces.iter().map(Bytes::len).sum(), pieces.len()));
            all.extend(pieces.concat());
        }
        assert!(all == items.concat());
        rounds
    }

    #[tokio::test]
    async fn small_items_are_copied_together_and_large_ones_kept() {
        assert_eq!(taken(&[]).await, [(0, 0)]);
        assert_eq!(taken(&[1, 0, 2, 3]).await, [(6, 1)]);
        assert_eq!(taken(&[1, 2, COPY_MAX, 3]).await, [(COPY_MAX + 6, 3)]);
        assert_eq!(taken(&[COPY_MAX - 1; 5]).await, [((COPY_MAX - 1) * 5, 2)]);
    }

    #[tokio::test]
    async fn it_is_full_after_448_kib_or_the_pieces_of_one_call() {
        assert_eq!(taken(&[FULL / 2, FULL / 2, 7]).await, [(FULL, 2), (7, 1)]);
        assert_eq!(taken(&[5 * FULL, 7]).await, [(5 * FULL, 1), (7, 1)]);
        let many = taken(&[COPY_MAX; 30]).await;
        assert_eq!(many, [(28 * COPY_MAX, 28), (2 * COPY_MAX, 2)]);
    }

    #[tokio::test]
    async fn it_takes_no_item_beyond_its_room() {
        let mut items = Box::pin(stream::iter([vec![0; 10], vec![0; 10], vec![0; 10]].map(Ok::<_, io::Error>)));
        let mut batch = ChunkBatch::default();
        for (room, len) in [(0, 0), (11, 20), (20, 20), (21, 30)] {
            assert!(!poll_fn(|cx| batch.poll_fill(cx, items.as_mut(), room)).await.unwrap());
            assert_eq!(batch.len, len);
        }
    }
}
