//! Unit tests of `window`.

use super::*;

#[test]
fn buckets_are_in_order_and_bound_their_values() {
    let mut last = 0;
    for micros in (0..3_000_000).step_by(7) {
        let latency = Duration::from_micros(micros);
        let at = bucket(latency);
        assert!(at >= last && latency < bound(at), "{latency:?} in {at}, below {:?}", bound(at));
        assert!(at == 0 || bound(at - 1) <= latency || at == 2, "{latency:?} belongs before {at}");
        last = at;
    }
    assert_eq!((bucket(Duration::MAX), bound(BUCKETS - 1) > Duration::from_secs(50)), (BUCKETS - 1, true));
}

#[test]
fn counts_of_all_threads_are_summed() {
    let window = Window::new(Duration::from_secs(8), 2);
    std::thread::scope(|scope| {
        for shard in 0..4 {
            let window = &window;
            scope.spawn(move || {
                for _ in 0..1000 {
                    window.answered(1, Duration::from_millis(1), false, Duration::from_secs(3), shard);
                    window.failed(1, Duration::from_secs(3), shard);
                }
            });
        }
    });
    // The thread that empties the slot may lose a sample of another thread of its shard.
    let sums = window.sums(1, Duration::from_secs(4));
    assert!((3990..=4000).contains(&sums.answered) && (3990..=4000).contains(&sums.failed), "{sums:?}");
    assert_eq!(window.sums(2, Duration::from_secs(4)), Sums::default());
    assert_eq!(window.sums(1, Duration::from_secs(11)), Sums::default(), "the window has moved on");
}
