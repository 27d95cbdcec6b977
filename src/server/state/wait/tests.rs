//! Unit tests of `wait`.

use super::*;

const LIMIT: Duration = Duration::from_secs(1);

/// A body that must deliver `rate` bytes per second, waited for since `Instant::now()`.
fn waiting(rate: u64) -> (Wait, Instant) {
    let (wait, now) = (Wait::new(rate), Instant::now());
    assert!(!wait.pends(Waker::noop()));
    wait.check_window(now, LIMIT, || false);
    (wait, now)
}

#[test]
fn a_body_that_has_brought_something_may_be_asked_for_any_rate() {
    let (wait, now) = waiting(u64::MAX);
    assert!(!wait.came(5));
    wait.check_window(now, LIMIT, || false);
    assert!(!wait.pends(Waker::noop()));
    wait.check_window(now + LIMIT, LIMIT, || false);
    assert!(!wait.pends(Waker::noop()), "the window began anew after the service did not wait");
    wait.check_window(now + LIMIT * 3 / 2, LIMIT, || false);
    assert!(!wait.pends(Waker::noop()));
    wait.check_window(now + LIMIT * 2, LIMIT, || false);
    assert!(wait.came(5), "too late");
}

#[test]
fn bytes_that_came_before_the_service_was_polled_are_in_time() {
    let (wait, now) = waiting(100);
    wait.check_window(now + LIMIT, LIMIT, || false);
    assert!(!wait.came(100), "they were waiting for the service");
    assert!(!wait.pends(Waker::noop()));
    wait.check_window(now + LIMIT, LIMIT, || false);
    wait.check_window(now + LIMIT * 2, LIMIT, || false);
    assert!(wait.came(99), "too few");
}

#[test]
fn a_waker_that_panics_does_not_end_the_check() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("the waker of a test");
        }
    }
    let (wait, now) = waiting(1);
    assert!(!wait.pends(&Waker::from(std::sync::Arc::new(Panics))));
    wait.check_window(now + LIMIT, LIMIT, || false);
    assert!(wait.pends(Waker::noop()), "the client is late");
}

#[test]
fn bytes_that_the_server_has_not_read_are_in_time() {
    let (wait, now) = waiting(100);
    wait.check_window(now + LIMIT * 10, LIMIT, || true);
    assert!(!wait.pends(Waker::noop()), "the server is late");
    wait.check_window(now + LIMIT * 10, LIMIT, || false);
    assert!(wait.pends(Waker::noop()), "the client is late");
}
