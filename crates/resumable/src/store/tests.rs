//! Unit tests of `store`.

use super::*;

fn event(n: u64, len: usize) -> Vec<u8> {
    format!("data: {}\nid: {n}\n\n", "x".repeat(len)).into_bytes()
}

#[test]
fn every_event_is_found_from_every_number() {
    for len in [1, 300, 5000, 40_000] {
        let mut store = Store::default();
        let events: Vec<_> = (0..150).map(|n| event(n, len * (n as usize % 3))).collect();
        for (n, event) in events.iter().enumerate() {
            store.push(event);
            assert_eq!(store.page(n as u64), Some((event.clone().into(), n as u64 + 1)));
        }
        for finished in [false, true] {
            if finished {
                store.finish();
                assert!(store.tail.capacity() == 0 && store.chunks.capacity() == store.chunks.len());
            }
            for from in 0..150 {
                let (mut all, mut next) = (Vec::new(), from);
                while let Some((page, after)) = store.page(next) {
                    assert!(page.len() <= CHUNK || after == next + 1, "{}", page.len());
                    all.extend_from_slice(&page);
                    next = after;
                }
                assert_eq!((next, store.bytes()), (150, events.concat().len()));
                assert!(all == events[from as usize..].concat(), "{len} {from}");
            }
        }
        assert_eq!(store.page(150), None);
    }
}
