//! The pool memory that queues keep is bounded by the number of bytes they are to send.

use std::time::Duration;

use bytes::Bytes;
use millstream::buf::lease;
use millstream::codec::Writer;
use millstream::metrics::Snapshot;
use tokio::io::AsyncWriteExt;

use super::{LARGE, run};

use testkit::alone;

/// Length of a short slice, which is a part of a large block.
const SLICE: usize = 2 << 10;
/// Number of slices, which is more than a connection gathers.
const SLICES: usize = 80;
/// Number of bytes that a queue may keep in addition to twice the bytes it holds.
const SLACK: u64 = 256 << 10;

/// Creates a short slice that is the only use of a large block.
fn wasteful(byte: u8) -> Bytes {
    let mut lease = lease(LARGE);
    lease.extend_from_slice(&[byte; SLICE]);
    lease.freeze()
}

fn leased() -> u64 {
    Snapshot::now().pool_bytes
}

/// Asserts that the memory leased since `before` is within the bound for `queued` bytes.
fn bounded(before: u64, queued: usize) {
    let held = leased() - before;
    // Copies are stored in chunks, each at most four times as long as its contents.
    let bound = SLACK + 6 * queued as u64;
    assert!(queued >= SLICES * SLICE && held <= bound, "{queued} bytes keep {held} of the pool, more than {bound}");
}

#[test]
fn the_high_mark_of_a_stream_bounds_what_it_keeps() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let (mut ours, _theirs) = testkit::pair().await;
        ours.write_all(b"x").await.unwrap();
        let before = leased();
        // Below the high mark, 64 KiB.
        for i in 0..31 {
            let slice = wasteful(i);
            tokio::time::timeout(Duration::from_secs(30), ours.write_all(&slice)).await.unwrap().unwrap();
        }
        let held = leased() - before;
        assert!(held <= SLACK + 6 * 31 * SLICE as u64, "{held} bytes of the pool");
    });
}

#[test]
fn the_limit_of_a_writer_bounds_what_it_keeps() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        for copied in [false, true] {
            let before = leased();
            let mut writer = Writer::new(Vec::new());
            for i in 0..SLICES {
                let slice = wasteful(i as u8);
                if copied { writer.write_all(&slice).await.unwrap() } else { writer.push(slice).unwrap() }
            }
            bounded(before, writer.queued());
            writer.flush().await.unwrap();
            assert_eq!(leased(), before, "an empty queue keeps nothing");
            let expected: Vec<u8> = (0..SLICES).flat_map(|i| vec![i as u8; SLICE]).collect();
            assert!(writer.with_inner(|got| *got == expected));
        }
    });
}

#[test]
fn slices_of_one_block_are_kept() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let mut lease = lease(LARGE);
        lease.extend_from_slice(&[7; LARGE]);
        let block = lease.freeze();
        let (before, mut writer) = (leased(), Writer::new(Vec::new()));
        for piece in block.chunks(SLICE) {
            writer.write_all(piece).await.unwrap();
        }
        assert_eq!((writer.queued(), leased()), (LARGE, before));
    });
}
