//! Unit tests of `wake_task`.

use super::*;

#[cfg(millstream_loom)]
mod models;

#[test]
fn a_reader_checks_for_news_under_the_lock() {
    let group = Group::new(None, 0, Beat::new(None, None));
    let mut member = group.join(None);
    assert_eq!(member.wait(Waker::noop(), || true), Wait::News);
    assert!(lock(&group.readers).list.take().is_empty());
    let is_unlocked = || group.readers.try_lock().is_ok() || !group.waits.load(Ordering::Relaxed);
    assert_eq!(member.wait(Waker::noop(), is_unlocked), Wait::Waits, "a sender could wake in between");
    group.wake();
    assert!(lock(&group.readers).list.take().is_empty());
}
