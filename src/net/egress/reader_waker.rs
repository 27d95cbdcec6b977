//! The waker of the task that waits to read.

use std::ptr;
use std::task::{RawWakerVTable, Waker};

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Mutex, lock};

/// Holds the waker of the reading task, which registers each time that it waits. Nearly always its waker is there
/// already, which it sees without the lock.
#[derive(Default)]
pub(super) struct ReaderWaker {
    waker: Mutex<Option<Waker>>,
    /// Parts of the waker, null without one. Written under the lock. The waker keeps its task, so no other task has the
    /// same parts meanwhile. Two readers at the same time could mix the parts of two wakers that share their data and
    /// not their vtable; no runtime makes such wakers.
    data: AtomicPtr<()>,
    vtable: AtomicPtr<RawWakerVTable>,
}

impl ReaderWaker {
    /// Registers the waker of the reading task, in place of any other.
    #[inline]
    pub(super) fn register(&self, waker: &Waker) {
        // If another thread takes the waker meanwhile, it wakes this task, which then registers again.
        if self.data.load(Ordering::Relaxed) != data(waker) || self.vtable.load(Ordering::Relaxed) != vtable(waker) {
            self.replace(waker);
        }
    }

    #[cold]
    fn replace(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        self.data.store(data(waker), Ordering::Relaxed);
        self.vtable.store(vtable(waker), Ordering::Relaxed);
        let replaced = slot.replace(waker.clone());
        drop(slot);
        // It may drop its task.
        drop(replaced);
    }

    /// Takes the waker, to wake the task.
    pub(super) fn take(&self) -> Option<Waker> {
        let mut slot = lock(&self.waker);
        self.data.store(ptr::null_mut(), Ordering::Relaxed);
        self.vtable.store(ptr::null_mut(), Ordering::Relaxed);
        slot.take()
    }
}

fn data(waker: &Waker) -> *mut () {
    waker.data().cast_mut()
}

fn vtable(waker: &Waker) -> *mut RawWakerVTable {
    ptr::from_ref(waker.vtable()).cast_mut()
}

#[cfg(test)]
mod tests {
    #[cfg(millstream_loom)]
    mod models;

    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_is_woken_once_for_each_time_it_has_registered() {
        let reader = ReaderWaker::default();
        let tasks = [Arc::<Woken>::default(), Arc::default()];
        let [a, b] = tasks.clone().map(Waker::from);
        assert!(reader.take().is_none());
        // The last one waits. The same task waits once, and again after it was woken. The waker of no task is one, too.
        for (registered, woken) in [(vec![&a], [1, 0]), (vec![&a, &a], [2, 0]), (vec![&a, &b], [2, 1])] {
            for waker in registered {
                reader.register(waker);
            }
            reader.take().expect("one is registered").wake();
            assert!(reader.take().is_none());
            assert_eq!([0, 1].map(|n: usize| tasks[n].0.load(Ordering::Relaxed)), woken);
        }
        reader.register(Waker::noop());
        assert!(reader.take().is_some());
        drop((a, b));
        assert_eq!(tasks.map(|task| Arc::strong_count(&task)), [1, 1], "a waker is kept");
    }
}
