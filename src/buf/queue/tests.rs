//! Bytes leave the queue in order and unchanged, for all kinds of pieces and sequences of calls.

use super::*;
use crate::buf::origin::Mapping;
use proptest::prelude::*;
use std::io::{Read, Seek, Write};
use std::sync::Arc;

#[derive(Clone, Debug)]
enum QueueStep {
    Copy(Vec<u8>),
    Give(Vec<u8>),
    Hold(usize, usize),
    File(usize, usize),
    Advance(usize),
}

const POOL: usize = 4000;
const FILE: usize = if cfg!(miri) { 40 << 10 } else { 1 << 20 };

#[cfg(not(miri))]
fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let step = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..9000).prop_map(QueueStep::Copy),
        proptest::collection::vec(any::<u8>(), 0..2000).prop_map(QueueStep::Give),
        (0..POOL, 0..POOL).prop_map(|(a, b)| QueueStep::Hold(a.min(b), a.max(b))),
        (0..FILE, 0..FILE).prop_map(|(a, b)| QueueStep::File(a.min(b), a.max(b))),
        (0usize..FILE).prop_map(QueueStep::Advance),
    ];
    proptest::collection::vec(step, 0..40)
}

fn push(queue: &mut Queue, bytes: &[u8]) -> bool {
    queue.push(OriginSlice::new(bytes))
}

fn take(queue: &mut Queue, slots: usize, limit: usize) -> Vec<u8> {
    let mut out = vec![IoSlice::new(&[]); slots];
    let mut got = match queue.front(&mut out, true) {
        Front::Memory { slices, more } => {
            let all = out[..slices].iter().map(|s| &**s).collect::<Vec<_>>().concat();
            assert_eq!(all.len() < queue.len(), more);
            all
        }
        Front::File { file, offset, len } => {
            let mut file = std::fs::File::from(file.try_clone_to_owned().unwrap());
            file.seek(std::io::SeekFrom::Start(offset)).unwrap();
            let mut bytes = vec![0; len];
            file.read_exact(&mut bytes).unwrap();
            bytes
        }
    };
    got.truncate(limit);
    queue.advance(got.len());
    got
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // miri runs the test below instead: generating random steps takes it minutes.
    #[test]
    #[cfg_attr(portable, ignore = "files are not mapped")]
    #[cfg(not(miri))]
    fn bytes_come_out_as_they_went_in(steps in steps(), slots in 1usize..8) {
        comes_out(steps, slots);
    }
}

#[test]
#[cfg_attr(portable, ignore = "files are not mapped")]
fn bytes_of_every_kind_come_out_as_they_went_in() {
    let steps = || {
        vec![
            QueueStep::Copy(vec![1; 100]),
            QueueStep::Hold(0, KEEP_MIN),
            QueueStep::Hold(KEEP_MIN, POOL),
            QueueStep::Advance(600),
            QueueStep::File(5000, 5000 + KEEP_MIN),
            QueueStep::Give(vec![2; 700]),
            QueueStep::File(100, 100 + FILE_MIN),
            QueueStep::File(100 + FILE_MIN, 200 + FILE_MIN),
            QueueStep::Copy(vec![3; 600]),
            QueueStep::Advance(3000),
            QueueStep::Give(vec![4; 10]),
        ]
    };
    (1..if cfg!(miri) { 2 } else { 4 }).for_each(|slots| comes_out(steps(), slots));
}

fn comes_out(steps: Vec<QueueStep>, slots: usize) {
    let mut lease = pool::lease_block(POOL);
    lease.extend_from_slice(&(0..POOL).map(|i| (i % 253) as u8).collect::<Vec<_>>());
    let held: Bytes = lease.freeze();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&(0..249).collect::<Vec<u8>>().repeat(FILE / 249 + 1)[..FILE]).unwrap();
    let mapped = Mapping::new(Arc::new(file), 0, FILE).unwrap().bytes();

    let mut queue = Queue::default();
    let mut model: VecDeque<u8> = VecDeque::new();
    for step in steps {
        match step {
            QueueStep::Copy(bytes) => {
                assert!(!push(&mut queue, &bytes));
                model.extend(bytes);
            }
            QueueStep::Give(bytes) => {
                assert_eq!(queue.push_bytes(bytes.clone().into()), bytes.len() >= GIVEN_MIN);
                model.extend(bytes);
            }
            QueueStep::Hold(a, b) => {
                assert_eq!(push(&mut queue, &held[a..b]), b - a >= KEEP_MIN);
                model.extend(&held[a..b]);
            }
            QueueStep::File(a, b) => {
                assert!(push(&mut queue, &mapped[a..b]) || b - a < KEEP_MIN);
                model.extend(&mapped[a..b]);
            }
            QueueStep::Advance(n) => {
                let got = take(&mut queue, slots, n);
                let expected: Vec<u8> = model.drain(..got.len()).collect();
                assert_eq!(got, expected);
            }
        }
        assert_eq!(queue.len(), model.len());
        assert_eq!(queue.pieces().map(<[u8]>::len).sum::<usize>(), model.len());
    }
    while !queue.is_empty() {
        let got = take(&mut queue, slots, usize::MAX);
        assert!(!got.is_empty(), "the queue is not empty but offers nothing");
        let expected: Vec<u8> = model.drain(..got.len()).collect();
        assert_eq!(got, expected);
    }
    assert!(model.is_empty());
}

#[test]
fn small_writes_share_a_chunk() {
    let mut queue = Queue::default();
    for _ in 0..100 {
        push(&mut queue, &[1; 40]);
    }
    let mut out = [IoSlice::new(&[]); 64];
    assert!(matches!(queue.front(&mut out, true), Front::Memory { slices: 1, more: false }));
}

#[test]
fn every_byte_is_accounted_for_and_given_back() {
    let mut queue = Queue::default();
    push(&mut queue, &[0; FREE]);
    assert_eq!(queue.accounted, 0);
    push(&mut queue, &[0; 100]);
    assert_eq!(queue.accounted, STEP);
    push(&mut queue, &[0; 3 * STEP]);
    assert_eq!(queue.accounted, 4 * STEP);
    assert!(ALL.load(Ordering::Relaxed) >= 4 * STEP);
    queue.advance(200);
    assert_eq!(queue.accounted, 4 * STEP);
    queue.advance(queue.len());
    assert_eq!(queue.accounted, 0);
}

#[test]
#[should_panic(expected = "advancing 2 bytes of 1")]
fn more_than_there_is_cannot_be_advanced() {
    let mut queue = Queue::default();
    push(&mut queue, b"x");
    queue.advance(2);
}

#[test]
fn the_pool_memory_that_short_slices_pin_is_bounded() {
    let wasteful = |byte| {
        let mut lease = pool::lease_block(PINNED_FREE);
        lease.extend_from_slice(&[byte; KEEP_MIN]);
        lease.freeze()
    };
    let mut queue = Queue::default();
    for given in [false, true] {
        for i in 0..10 {
            if given {
                queue.push_bytes(wasteful(i))
            } else {
                push(&mut queue, &wasteful(i))
            };
            assert!(queue.pinned <= PINNED_FREE + 2 * queue.len());
        }
        assert!(queue.pinned > 0);
        queue.clear();
        assert_eq!(queue.pinned, 0);
    }
}

#[test]
fn slices_of_one_block_pin_it_once() {
    let mut lease = pool::lease_block(PINNED_FREE);
    lease.extend_from_slice(&[7; PINNED_FREE]);
    let block = lease.freeze();
    let mut queue = Queue::default();
    for piece in block.chunks(KEEP_MIN) {
        assert!(push(&mut queue, piece));
    }
    // A partly sent block is still one block.
    queue.advance(100 * KEEP_MIN + 1);
    assert!(push(&mut queue, &block[..KEEP_MIN]));
    assert_eq!(queue.pinned, PINNED_FREE);
}

#[test]
fn memory_that_a_lease_may_still_write_is_copied() {
    let (mut queue, mut lease) = (Queue::default(), pool::lease_block(2 * POOL));
    let lent = lease.read_with(|spare| {
        spare[..POOL].fill(b'A');
        assert!(!push(&mut queue, &spare[..POOL]), "kept by reference");
        Ok(0)
    });
    assert_eq!(lent.unwrap(), 0);
    lease.extend_from_slice(&[b'B'; POOL]);
    assert!(take(&mut queue, 4, POOL) == [b'A'; POOL]);
}

#[test]
fn only_frozen_leases_are_kept() {
    let (mut queue, mut lease) = (Queue::default(), pool::lease_block(POOL));
    lease.extend_from_slice(&[b'A'; POOL]);
    assert!(!push(&mut queue, lease.as_ref()));
    let frozen = lease.freeze();
    assert!(push(&mut queue, &frozen));
    // The same block, leased again, is not frozen any more.
    drop((queue, frozen));
    for _ in 0..100 {
        let mut lease = pool::lease(POOL);
        lease.extend_from_slice(&[b'A'; POOL]);
        assert!(!push(&mut Queue::default(), lease.as_ref()));
    }
}
