//! One shard for each thread: counting takes no lock, and no cache line from another thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::counter::NUMBERS;
use super::requests::Part;

/// Counts of one thread. Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) numbers: [AtomicU64; NUMBERS],
    pub(super) requests: Part,
}

impl Shard {
    const fn new() -> Self {
        Self { numbers: [const { AtomicU64::new(0) }; NUMBERS], requests: Part::new() }
    }
}

/// Other threads that add to the same shard.
#[derive(Clone, Copy)]
pub(super) enum Adder {
    /// None, so no read-modify-write is needed, which costs ten times as much.
    Alone,
    /// Threads that are ending.
    Among,
}

impl Adder {
    /// Adds `n`. Relaxed: counts order nothing.
    #[inline]
    pub(super) fn add(self, cell: &AtomicU64, n: u64) {
        match self {
            Self::Alone => cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed),
            Self::Among => drop(cell.fetch_add(n, Ordering::Relaxed)),
        }
    }
}

static LAST: Shard = Shard::new();

/// All shards, and those free for the next thread, which continues their counts.
struct Shards {
    all: Vec<&'static Shard>,
    free: Vec<&'static Shard>,
}

fn shards() -> MutexGuard<'static, Shards> {
    static SHARDS: Mutex<Shards> = Mutex::new(Shards { all: Vec::new(), free: Vec::new() });
    SHARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard of a running thread. Freed when the thread ends.
struct Mine(&'static Shard);

impl Mine {
    fn take() -> Self {
        let mut shards = shards();
        if let Some(shard) = shards.free.pop() {
            return Self(shard);
        }
        // At most as many as there were threads at a time.
        let shard: &'static Shard = Box::leak(Box::new(Shard::new()));
        shards.all.push(shard);
        Self(shard)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        shards().free.push(self.0);
    }
}

#[inline]
pub(super) fn with(add: impl Fn(&'static Shard, Adder)) {
    thread_local! {
        static MINE: Mine = Mine::take();
    }
    if MINE.try_with(|mine| add(mine.0, Adder::Alone)).is_err() {
        add(&LAST, Adder::Among);
    }
}

/// Calls `look` with each shard. Concurrent additions may or may not be visible.
pub(super) fn each(look: impl FnMut(&'static Shard)) {
    let all = shards().all.clone();
    all.into_iter().chain([&LAST]).for_each(look);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counter, count};

    #[test]
    fn shards_share_no_cache_line() {
        assert_eq!((align_of::<Shard>(), size_of::<Shard>() % 128), (128, 0));
    }

    #[test]
    fn threads_that_come_and_go_share_their_shards() {
        for _ in 0..100 {
            std::thread::spawn(|| count(Counter::AcceptPauses, 0)).join().unwrap();
        }
        // Other tests run on threads of their own.
        assert!(shards().all.len() < 80);
    }
}
