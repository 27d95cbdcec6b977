//! Pool memory as its users see it. Counters and size classes belong to the process, so each test runs in its own
//! process.

use bytes::Bytes;
use millstream::buf::{Lease, lease, lease_with_headroom};
use millstream::metrics::Snapshot;

use testkit::alone;

mod bound;
mod lent;

/// Number of pool blocks of 256 KiB.
const LARGE_BLOCKS: u64 = 128;
const LARGE: usize = 256 << 10;

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn hits(work: impl FnOnce()) -> (u64, u64) {
    let before = Snapshot::now();
    work();
    let counted = Snapshot::now().since(&before);
    (counted.pool_hits, counted.pool_misses)
}

#[test]
fn every_size_gets_room_on_a_cache_line() {
    if alone::ran_in_child() {
        return;
    }
    for need in [1, 511, 512, 513, 4096, 4097, 65_536, 262_144, 262_145, 1 << 20] {
        let mut kept = None;
        let (hits, misses) = hits(|| kept = Some(lease(need)));
        let mut lease = kept.unwrap();
        assert!(lease.spare_len() >= need);
        lease.extend_from_slice(b"x");
        assert_eq!(lease.as_ref().as_ptr() as usize % 64, 0, "{need}");
        assert_eq!((hits, misses), if need <= LARGE { (1, 0) } else { (0, 1) }, "{need}");
    }
}

#[test]
fn headroom_takes_a_header_without_moving_the_body() {
    if alone::ran_in_child() {
        return;
    }
    let mut lease = lease_with_headroom(100, 16);
    lease.extend_from_slice(b"body");
    let body = lease.as_ref().as_ptr();
    lease.prepend(b"second ");
    lease.prepend(b"first ");
    assert_eq!(lease.as_ref(), b"first second body");
    assert_eq!(lease.as_ref()[13..].as_ptr(), body);
    assert_eq!(&lease.freeze()[..], b"first second body");
}

#[test]
#[should_panic(expected = "4 bytes do not fit 3 of headroom")]
fn more_than_the_headroom_is_refused() {
    lease_with_headroom(10, 3).prepend(b"long");
}

#[test]
#[should_panic(expected = "do not fit the")]
fn a_reader_that_claims_too_much_is_refused() {
    let _ = lease(10).read_with(|spare| Ok(spare.len() + 1));
}

#[test]
fn a_reader_that_fails_appends_nothing() {
    if alone::ran_in_child() {
        return;
    }
    let mut lease = lease(10);
    lease.extend_from_slice(b"kept");
    assert!(lease.read_with(|_| Err(std::io::ErrorKind::WouldBlock.into())).is_err());
    assert_eq!(lease.as_ref(), b"kept");
}

#[test]
fn what_an_earlier_lease_wrote_stays_hidden() {
    if alone::ran_in_child() {
        return;
    }
    for _ in 0..100 {
        let mut secret = lease(LARGE);
        secret.extend_from_slice(&[b'!'; LARGE]);
        drop(secret);
        let mut next = lease(LARGE);
        assert!(next.is_empty() && next.as_ref().is_empty());
        next.extend_from_slice(b"mine");
        assert_eq!(&next.freeze()[..], b"mine");
    }
}

#[test]
fn a_class_is_bounded_and_then_leases_from_the_heap() {
    if alone::ran_in_child() {
        return;
    }
    let mut all: Vec<Lease> = Vec::new();
    let counted = hits(|| all.extend((0..LARGE_BLOCKS + 10).map(|_| lease(LARGE))));
    assert_eq!(counted, (LARGE_BLOCKS, 10));
    drop(all);
    assert_eq!(hits(|| drop(lease(LARGE))), (1, 0));
}

#[test]
fn blocks_leased_here_and_dropped_there_all_return() {
    if alone::ran_in_child() {
        return;
    }
    let (send, receive) = std::sync::mpsc::sync_channel::<Bytes>(8);
    std::thread::scope(|scope| {
        let threads = [0u8, 1, 2, 3].map(|tag| {
            let send = send.clone();
            scope.spawn(move || {
                for _ in 0..2000 {
                    let mut lease = lease(LARGE);
                    lease.extend_from_slice(&[tag; 64]);
                    let bytes = lease.freeze();
                    send.send(bytes.slice(10..20)).unwrap();
                    assert_eq!(&bytes[..], [tag; 64]);
                }
            })
        });
        drop(send);
        for bytes in receive {
            assert!(bytes.iter().all(|b| *b == bytes[0]), "a block was leased twice");
        }
        // Joined one by one, because a scope does not wait for thread-local destructors.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // Ended threads have returned their cached blocks: every block can be leased again.
    let mut all = Vec::new();
    assert_eq!(hits(|| all.extend((0..LARGE_BLOCKS).map(|_| lease(LARGE)))), (LARGE_BLOCKS, 0));
}
