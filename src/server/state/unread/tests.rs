//! Unit tests of `unread`.

use std::sync::Arc;
use std::task::Wake;

use super::*;

const MUCH: u64 = 1 << 20;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn bytes_count_from_their_arrival_until_they_are_read() {
    let unread = Unread::default();
    assert_eq!(unread.held(MUCH), 0, "no body");
    let mut part = unread.begin();
    assert_eq!(unread.held(MUCH), MUCH as usize - FREE);
    unread.read(&mut part, MUCH / 2);
    assert_eq!(unread.held(MUCH), MUCH as usize / 2 - FREE);
    unread.catch_up(&mut part, || MUCH + 5000);
    assert_eq!(unread.held(2 * MUCH), 0);
    // A further frame.
    unread.read(&mut part, 100);
    assert_eq!(unread.held(2 * MUCH), (MUCH - 5100) as usize - FREE);
    unread.end(part, || 2 * MUCH);
    assert_eq!(unread.held(9 * MUCH), 0);
}

#[test]
fn requests_without_bodies_are_no_unread_bytes() {
    const WINDOW: usize = 4 * MUCH as usize;
    let unread = Unread::default();
    unread.bound(100 * MUCH, WINDOW, usize::MAX, false);
    let mut part = unread.begin();
    assert_eq!(unread.held(101 * MUCH), MUCH as usize - FREE, "what came before the body");
    unread.catch_up(&mut part, || 101 * MUCH);
    let other = unread.begin();
    assert_eq!(
        unread.held(104 * MUCH),
        3 * MUCH as usize - FREE,
        "the bytes of a body may come before its head is seen"
    );
    unread.bound(250 * MUCH, WINDOW, usize::MAX, false);
    assert_eq!(lock(&unread.charge).bytes(), WINDOW, "hyper holds no more than its window");
    unread.end(part, || 250 * MUCH);
    unread.end(other, || 250 * MUCH);
}

#[test]
fn a_body_that_is_read_does_not_hide_one_that_is_not() {
    let unread = Unread::default();
    let (mut one, mut two) = (unread.begin(), unread.begin());
    unread.catch_up(&mut one, || MUCH);
    unread.catch_up(&mut one, || MUCH);
    assert_eq!(unread.held(MUCH), MUCH as usize - FREE);
    unread.catch_up(&mut two, || MUCH);
    unread.read(&mut one, 10);
    assert_eq!(unread.held(2 * MUCH), MUCH as usize - 10 - FREE);
    unread.end(one, || 2 * MUCH);
    assert_eq!(unread.held(2 * MUCH), 0, "the other body was read");
    let three = unread.begin();
    unread.end(two, || 3 * MUCH);
    assert_eq!(unread.held(3 * MUCH), MUCH as usize - FREE);
    unread.end(three, || 3 * MUCH);
    assert_eq!(unread.bodies.load(Ordering::Relaxed), 0);
}

#[test]
fn a_closed_connection_is_read_again_when_its_bodies_are_read() {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let cx = &Context::from_waker(&waker);
    let unread = Unread::default();
    unread.close();
    assert!(unread.poll_open(cx).is_ready(), "no body");
    let mut part = unread.begin();
    unread.close();
    assert!(unread.poll_open(cx).is_pending());
    unread.read(&mut part, 1);
    assert!(unread.poll_open(cx).is_pending());
    unread.catch_up(&mut part, || 1);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(unread.poll_open(cx).is_ready());
    unread.read(&mut part, 1);
    unread.close();
    assert!(unread.poll_open(cx).is_pending());
    unread.end(part, || 2);
    assert!(unread.poll_open(cx).is_ready());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
}
