//! Unit tests of `adaptive_size`.

use super::*;
use proptest::prelude::*;

const MIN: usize = 4 << 10;
const MAX: usize = 64 << 10;

fn at(ms: u64) -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_millis(ms)
}

#[test]
fn a_flood_that_is_taken_grows_it_to_the_bound() {
    let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
    for ms in 0..4 {
        assert_eq!(buffer.size(), MIN << ms);
        buffer.came(buffer.size(), at(ms));
        buffer.left(buffer.size(), at(ms));
    }
    buffer.came(MAX, at(5));
    buffer.left(MAX, at(5));
    assert_eq!(buffer.size(), MAX);
}

#[test]
fn what_is_never_full_does_not_grow() {
    let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
    for ms in 0..10_000 {
        buffer.came(MIN - 1, at(ms));
        buffer.left(MIN - 1, at(ms));
    }
    assert_eq!(buffer.size(), MIN);
}

#[test]
fn it_settles_at_what_leaves_in_a_window() {
    let mut buffer = AdaptiveSize::new(MIN..=MAX, MAX);
    let mut sizes = Vec::new();
    for ms in (0..10_000).step_by(20) {
        buffer.mark_full(at(ms));
        buffer.left(2 << 10, at(ms));
        sizes.push(buffer.size());
    }
    assert!(sizes[sizes.len() / 2..].iter().all(|size| [8 << 10, 16 << 10].contains(size)), "{sizes:?}");
}

#[test]
fn a_trickle_shrinks_it_after_a_flood() {
    let mut buffer = AdaptiveSize::new(MIN..=MAX, MAX);
    buffer.came(MAX, at(0));
    buffer.left(MAX, at(0));
    for ms in (1..=100).step_by(9) {
        buffer.came(50, at(ms));
    }
    assert_eq!(buffer.size(), MAX, "the window has not ended");
    for ms in (100..1000).step_by(10) {
        buffer.came(50, at(ms));
        buffer.left(50, at(ms));
    }
    assert_eq!(buffer.size(), MIN);
}

#[test]
fn bytes_that_left_before_it_was_full_do_not_count() {
    let mut buffer = AdaptiveSize::new(MIN..=MAX, MIN);
    buffer.left(MAX, at(0));
    buffer.mark_full(at(0));
    buffer.left(MIN - 1, at(1));
    assert_eq!(buffer.size(), MIN);
    buffer.left(1, at(2));
    assert_eq!(buffer.size(), 2 * MIN);
}

#[derive(Clone, Debug)]
enum SizeStep {
    Came(usize),
    Full,
    Left(usize),
}

proptest! {
    #[test]
    fn it_stays_in_its_bounds(
        min in 1usize..10_000, more in 0usize..100_000, start in 0usize..200_000,
        steps in proptest::collection::vec((0u64..300, prop_oneof![
            (0usize..200_000).prop_map(SizeStep::Came), Just(SizeStep::Full), (0usize..200_000).prop_map(SizeStep::Left),
        ]), 0..200),
    ) {
        let mut buffer = AdaptiveSize::new(min..=min + more, start);
        let mut ms = 0;
        for (later, step) in steps {
            let before = buffer.size();
            ms += later;
            match step {
                SizeStep::Came(n) => buffer.came(n, at(ms)),
                SizeStep::Full => buffer.mark_full(at(ms)),
                SizeStep::Left(n) => buffer.left(n, at(ms)),
            }
            let size = buffer.size();
            prop_assert!((min..=min + more).contains(&size));
            prop_assert!(size <= before.saturating_mul(2) && size >= before / 2, "{before} to {size} in one step");
            if size > before {
                prop_assert!(matches!(step, SizeStep::Left(_)), "grows only when bytes were drained");
            }
        }
    }
}
