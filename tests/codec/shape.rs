//! Pieces or one flat buffer: selected by the inner writer's flag, by its observed writes, or by the caller.

use bytes::Bytes;
use millstream::codec::{Shape, Writer};
use tokio::io::AsyncWriteExt;

use crate::fake::{Act, Fake};
use testkit::noise;

const RECORD: usize = 16 << 10;

/// Writes a hundred pieces of 1 KiB and a flush.
async fn flush_100(writer: &mut Writer<Fake>) -> Vec<u8> {
    let piece = Bytes::from(noise(1024));
    for _ in 0..100 {
        writer.send(piece.clone()).await.unwrap();
    }
    writer.flush().await.unwrap();
    piece.repeat(100)
}

#[tokio::test]
async fn one_that_takes_no_pieces_gets_whole_records() {
    let fake = Fake::flat();
    let mut writer = Writer::new(fake.clone());
    assert!(writer.is_flat());
    let sent = flush_100(&mut writer).await;
    let seen = fake.seen();
    assert!(seen.bytes == sent);
    // 6.25 records.
    assert_eq!(seen.calls, [RECORD, RECORD, RECORD, RECORD, RECORD, RECORD, RECORD / 4].map(|len| vec![len]));
}

#[tokio::test]
async fn one_that_takes_the_first_piece_only_is_found_out() {
    let fake = Fake::always(Act::TakeOne);
    let mut writer = Writer::new(fake.clone());
    assert!(!writer.is_flat());
    let sent = flush_100(&mut writer).await;
    assert!(writer.is_flat());
    let seen = fake.seen();
    assert!(seen.bytes == sent);
    // Four pieces, of which the fourth shows that the third was not cut for lack of room; then 96 KiB in records.
    assert_eq!(seen.calls.len(), 4 + 6);
    assert!(seen.calls[4..].iter().all(|call| *call == [RECORD]));
}

#[tokio::test]
async fn one_that_takes_whole_records_gets_as_many_in_one_piece() {
    for records in [1, 2, 4] {
        let fake = Fake::always(Act::Take(records * RECORD));
        let mut writer = Writer::new(fake.clone());
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.extend(flush_100(&mut writer).await);
        }
        assert!(writer.is_flat(), "{records} records at a time");
        fake.seen().calls.clear();
        sent.extend(flush_100(&mut writer).await);
        let seen = fake.seen();
        assert!(seen.bytes == sent);
        assert_eq!(seen.calls.len(), (100usize << 10).div_ceil(records * RECORD));
        assert!(seen.calls.iter().all(|call| call.len() == 1));
    }
}

#[tokio::test]
async fn one_that_is_full_keeps_its_pieces() {
    // The writes end where pieces and records end, but for lack of room.
    let full = [Act::Take(RECORD), Act::Yield, Act::TakeOne, Act::Yield];
    let fake = Fake::new(full.into_iter().cycle().take(100));
    let mut writer = Writer::new(fake.clone());
    flush_100(&mut writer).await;
    flush_100(&mut writer).await;
    assert!(!writer.is_flat());
    // All writes end elsewhere.
    let fake = Fake::always(Act::Take(10_000));
    let mut writer = Writer::new(fake.clone());
    flush_100(&mut writer).await;
    assert!(!writer.is_flat());
    // Only some writes are cut at a record.
    let cut = [Act::Take(RECORD), Act::Take(usize::MAX), Act::Take(usize::MAX)];
    let fake = Fake::new(cut.into_iter().cycle().take(100));
    let mut writer = Writer::new(fake.clone());
    for _ in 0..20 {
        flush_100(&mut writer).await;
    }
    assert!(!writer.is_flat());
}

#[tokio::test]
async fn who_knows_better_says_so() {
    let fake = Fake::always(Act::TakeOne);
    let mut writer = Writer::builder(fake.clone()).shape(Shape::Vectored).build();
    let sent = flush_100(&mut writer).await;
    assert!(!writer.is_flat());
    assert!(fake.seen().bytes == sent);
    assert_eq!(fake.seen().calls.len(), 100);

    let fake = Fake::default();
    let mut writer = Writer::builder(fake.clone()).shape(Shape::Flat).build();
    assert!(writer.is_flat());
    let sent = flush_100(&mut writer).await;
    assert!(fake.seen().bytes == sent);
    assert_eq!(fake.seen().calls.len(), 7);
}

/// Some TLS libraries remember an unfinished write and reject a shorter retry.
#[tokio::test]
async fn what_is_offered_again_is_no_shorter() {
    for (first, second) in [(100, 0), (100, 600), (700, 600), (20_000, 600), (700, 40_000)] {
        let fake = Fake::flat();
        fake.seen().script.extend([Act::Yield, Act::Yield]);
        let mut writer = Writer::builder(fake.clone()).flush_at(1).build();
        for piece in [noise(first), noise(second), b"end".to_vec()] {
            writer.send(piece.into()).await.unwrap();
        }
        writer.flush().await.unwrap();
        let seen = fake.seen();
        assert!(seen.bytes == [noise(first), noise(second), b"end".to_vec()].concat());
        assert!(seen.offers[..3].is_sorted(), "{:?}", seen.offers);
        assert!(seen.offers[0] == first);
    }
}
