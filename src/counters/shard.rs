//! One shard for each thread: counting takes no lock, and no cache line from another thread.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::counter::NUMBERS;
use super::histogram::{Adder, Buckets};
use super::labels::{METHODS, SETS};

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

/// Results of the responses with one set of labels.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) duration: Buckets,
    pub(super) time_to_head: Buckets,
    pub(super) largest_gap: Buckets,
    pub(super) body_size: Buckets,
    pub(super) frames: Buckets,
}

impl Row {
    pub(super) fn new() -> Self {
        let [duration, time_to_head, largest_gap, body_size, frames] = [const { Buckets::new() }; 5];
        Self { duration, time_to_head, largest_gap, body_size, frames }
    }
}

/// Results of requests.
pub(super) struct Part {
    pub(super) active: [AtomicU64; METHODS.len()],
    pub(super) gaps: Buckets,
    /// Created by the thread's first response with these labels.
    pub(super) rows: [OnceLock<Box<Row>>; SETS],
}

impl Part {
    const fn new() -> Self {
        Self {
            active: [const { AtomicU64::new(0) }; METHODS.len()],
            gaps: Buckets::new(),
            rows: [const { OnceLock::new() }; SETS],
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
