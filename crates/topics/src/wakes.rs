//! Which topics of a reader have news.
//!
//! Each topic has a waker of its own, which sets its bit and wakes the task of the response. So an event costs the same
//! beside any number of silent topics.
//!
//! Invariant: a waker sets its bit, then `is_woken`. The task clears `is_woken`, then takes the bits. Both change by
//! read-modify-write operations, so the task sees the bit or is woken.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Wake, Waker};

#[cfg(all(test, millstream_loom))]
use loom::sync::{Mutex, atomic};
#[cfg(not(all(test, millstream_loom)))]
use std::sync::{Mutex, atomic};

use atomic::{AtomicBool, AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// The bits of all topics, and the task of the response.
#[derive(Debug)]
pub(crate) struct Wakes {
    bits: Box<[AtomicU64]>,
    is_woken: AtomicBool,
    is_ending: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wakes {
    /// Creates the bits of so many topics.
    pub(crate) fn new(topics: usize) -> Arc<Self> {
        let bits = (0..words(topics)).map(|_| AtomicU64::default()).collect();
        Arc::new(Self {
            bits,
            is_woken: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            task: Mutex::default(),
        })
    }

    /// Returns the waker of the topic `at`.
    pub(crate) fn waker(self: &Arc<Self>, at: usize) -> Waker {
        Waker::from(Arc::new(TopicWaker { wakes: Arc::clone(self), at }))
    }

    /// Ends the response between two events.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake_task();
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Moves the bits of the topics that have news into `ready`. Wakes the task of `cx` for later ones.
    pub(crate) fn take(&self, cx: &Context<'_>, ready: &mut Ready) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        let old = if is_same { None } else { task.replace(cx.waker().clone()) };
        drop(task);
        // A waker may run any code when it is dropped.
        drop(old);
        self.is_woken.swap(false, Ordering::AcqRel);
        for (bits, ready) in self.bits.iter().zip(&mut ready.0) {
            if bits.load(Ordering::Relaxed) != 0 {
                *ready |= bits.swap(0, Ordering::AcqRel);
            }
        }
    }

    fn wake_task(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(task) = task {
                task.wake();
            }
        }
    }
}

struct TopicWaker {
    wakes: Arc<Wakes>,
    at: usize,
}

impl Wake for TopicWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.bits[self.at / BITS].fetch_or(1 << (self.at % BITS), Ordering::AcqRel);
        self.wakes.wake_task();
    }
}

/// The topics that have news, as far as the task knows.
#[derive(Debug)]
pub(crate) struct Ready(Vec<u64>);

impl Ready {
    /// Creates the set of all topics.
    pub(crate) fn all(topics: usize) -> Self {
        let mut all = Self(vec![0; words(topics)]);
        (0..topics).for_each(|at| all.insert(at));
        all
    }

    pub(crate) fn insert(&mut self, at: usize) {
        self.0[at / BITS] |= 1 << (at % BITS);
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.0[at / BITS] &= !(1 << (at % BITS));
    }

    /// Returns the next topic from `at` on, and from the first on after the last.
    pub(crate) fn next_from(&self, at: usize) -> Option<usize> {
        let (word, bit) = (at / BITS, at % BITS);
        // The first word comes last again, for the bits before `at`.
        (0..=self.0.len()).find_map(|n| {
            let at = (word + n) % self.0.len();
            let bits = self.0[at] & if n == 0 { u64::MAX << bit } else { u64::MAX };
            (bits != 0).then(|| at * BITS + bits.trailing_zeros() as usize)
        })
    }
}

fn words(topics: usize) -> usize {
    topics.div_ceil(BITS).max(1)
}

#[cfg(all(test, millstream_loom))]
mod models {
    use std::future::poll_fn;
    use std::task::Poll;

    use loom::future::block_on;
    use loom::thread;

    use super::*;

    /// Waits on topics until one is ready, or until the response is to end.
    fn wait(wakes: &Wakes) -> Ready {
        let mut ready = Ready::all(0);
        ready.0 = vec![0];
        block_on(poll_fn(|cx| {
            wakes.take(cx, &mut ready);
            if ready.0[0] != 0 || wakes.is_ending() { Poll::Ready(()) } else { Poll::Pending }
        }));
        ready
    }

    #[test]
    fn the_task_sees_each_topic_that_was_woken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let wakes = Wakes::new(2);
            let wakers = [0, 1].map(|at| wakes.waker(at));
            let topics = thread::spawn(move || wakers.into_iter().for_each(Waker::wake));
            let mut seen = 0;
            while seen != 0b11 {
                seen |= wait(&wakes).0[0];
            }
            topics.join().unwrap();
        });
    }

    #[test]
    fn the_task_sees_the_end() {
        loom::model(|| {
            let wakes = Wakes::new(1);
            let ending = thread::spawn({
                let wakes = Arc::clone(&wakes);
                move || wakes.end()
            });
            wait(&wakes);
            ending.join().unwrap();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_topic_is_found_from_any_place() {
        for topics in [1, 63, 64, 65, 130] {
            let mut ready = Ready::all(topics);
            assert!((0..topics).all(|at| ready.next_from(at) == Some(at)));
            (0..topics).filter(|at| at % 3 != 0).for_each(|at| ready.remove(at));
            for at in 0..topics {
                let expected = (at..topics).chain(0..at).find(|at| at % 3 == 0);
                assert_eq!(ready.next_from(at), expected, "from {at} of {topics}");
            }
            (0..topics).for_each(|at| ready.remove(at));
            assert_eq!(ready.next_from(topics - 1), None);
        }
    }

    #[test]
    fn a_topic_that_is_woken_is_taken_once_and_wakes_the_task_once() {
        struct Counts(AtomicU64);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (counts, wakes) = (Arc::new(Counts(AtomicU64::new(0))), Wakes::new(100));
        let task = Waker::from(Arc::clone(&counts));
        let (cx, mut ready) = (Context::from_waker(&task), Ready::all(0));
        ready.0 = vec![0; 2];
        wakes.take(&cx, &mut ready);
        for at in [3, 99, 3] {
            wakes.waker(at).wake();
        }
        assert_eq!((counts.0.load(Ordering::Relaxed), &ready.0), (1, &vec![0, 0]));
        wakes.take(&cx, &mut ready);
        assert_eq!(ready.0, [1 << 3, 1 << 35]);
        ready.0 = vec![0; 2];
        wakes.take(&cx, &mut ready);
        assert_eq!(ready.0, [0, 0]);
        wakes.end();
        assert_eq!((counts.0.load(Ordering::Relaxed), wakes.is_ending()), (2, true));
    }
}
