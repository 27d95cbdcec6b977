//! Panics in code of users: in wakers, and in drops of memory.

use std::task::Wake;

use super::*;

/// A waker that panics if `panics`, and otherwise counts.
struct Called {
    panics: bool,
    wakes: AtomicUsize,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "a waker that panics, as it should");
    }
}

struct PanicsWhenDropped;

impl AsRef<[u8]> for PanicsWhenDropped {
    fn as_ref(&self) -> &[u8] {
        b"four"
    }
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a drop that panics, as it should");
    }
}

#[test]
fn a_panic_of_one_task_keeps_no_other_from_its_wake_up() {
    let alive = Arc::new(AtomicUsize::new(0));
    let (driver, handle) = driver(16, |_| Act::Hold);
    handle.ignore_cancels();
    let dropped: Vec<_> = (0..2)
        .map(|_| submit(&driver, Program::of(write(&file(), 0, Bytes::from_owner(PanicsWhenDropped)))))
        .chain([submit(&driver, Program::of(write(&file(), 0, counted(10, &alive))))])
        .collect();
    let called = |panics| Arc::new(Called { panics, wakes: AtomicUsize::new(0) });
    let all = [called(true), called(false), called(true), called(false)];
    let mut running: Vec<_> = all
        .iter()
        .map(|called| {
            let mut running = submit(&driver, Program::of(write(&file(), 0, pattern(10))));
            let waker = Waker::from(Arc::clone(called));
            assert!(Pin::new(&mut running).poll(&mut Context::from_waker(&waker)).is_pending());
            running
        })
        .collect();
    driver.turn();
    drop(dropped);
    driver.turn();
    handle.set_script(|_| Act::Do);
    handle.proceed();
    driver.turn();
    assert!(all.iter().all(|called| called.wakes.load(Ordering::SeqCst) == 1));
    running.iter_mut().for_each(|running| drop(finished(running)));
    assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
}
