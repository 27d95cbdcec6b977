//! A stream, gathered into pieces that are worth a trip to the disk.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;

use crate::buf::{Lease, lease};
use crate::sys::call::IOV_LIMIT;

/// Bytes after which no more are taken.
const FULL: usize = 1 << 20;
/// Items below this are copied together: each piece kept costs an entry in the system call, and may be a small part of a
/// large buffer that it keeps alive.
const COPY_MAX: usize = 16 << 10;
/// Room for such items.
const TOGETHER: usize = 64 << 10;

/// What a stream has brought so far.
#[derive(Debug, Default)]
pub(super) struct ChunkBatch {
    pieces: Vec<Bytes>,
    /// Copies of small items; what comes after the pieces.
    small: Option<Lease>,
    len: usize,
}

impl ChunkBatch {
    /// Takes items until it is full, and says whether the stream has ended.
    pub(super) async fn fill<S, B, E>(&mut self, mut stream: Pin<&mut S>) -> Result<bool, E>
    where
        S: Stream<Item = Result<B, E>>,
        B: Into<Bytes>,
    {
        while self.len < FULL && self.pieces.len() < IOV_LIMIT {
            match poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
                Some(item) => self.push(item?.into()),
                None => return Ok(true),
            }
        }
        Ok(false)
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

    /// What has come, in order.
    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        self.close_small();
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::io;

    /// How much is taken at a time of items of these lengths, and in how many pieces.
    async fn taken(lens: &[usize]) -> Vec<(usize, usize)> {
        let bytes = |(n, &len): (usize, &usize)| vec![n as u8; len];
        let items: Vec<_> = lens.iter().enumerate().map(bytes).collect();
        let mut stream = Box::pin(stream::iter(items.clone().into_iter().map(Ok::<_, io::Error>)));
        let (mut all, mut rounds, mut ended) = (Vec::new(), Vec::new(), false);
        while !ended {
            let mut chunk_batch = ChunkBatch::default();
            ended = chunk_batch.fill(stream.as_mut()).await.unwrap();
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
    async fn it_is_full_after_a_mebibyte_or_the_pieces_of_one_call() {
        assert_eq!(taken(&[FULL / 2, FULL / 2, 7]).await, [(FULL, 2), (7, 1)]);
        assert_eq!(taken(&[5 * FULL, 7]).await, [(5 * FULL, 1), (7, 1)]);
        let many = taken(&[COPY_MAX; 70]).await;
        assert_eq!(many, [(64 * COPY_MAX, 64), (6 * COPY_MAX, 6)]);
    }
}
