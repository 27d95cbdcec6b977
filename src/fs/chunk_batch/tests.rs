//! Unit tests of `chunk_batch`.

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
