//! Process exit: unsent bytes of all streams are handed to the kernel, which then sends them by itself.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::Egress;
use crate::sys::fd::AsFd;
use crate::sys::{exit, transfer};

/// Time limit for peers to take bytes that do not fit the kernel's buffers.
const EXIT: Duration = Duration::from_secs(1);
/// Time limit for a lock, which other threads hold only during a system call.
const LOCK: Duration = Duration::from_millis(100);

/// Live streams by number, sharded to reduce contention.
static STREAMS: [Mutex<BTreeMap<u64, Weak<Egress>>>; 16] = [const { Mutex::new(BTreeMap::new()) }; 16];

fn part(id: u64) -> MutexGuard<'static, BTreeMap<u64, Weak<Egress>>> {
    STREAMS[(id % 16) as usize].lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn register(egress: &Arc<Egress>) {
    exit::at_exit(hand_over_all);
    let id = egress.id();
    part(id).insert(id, Arc::downgrade(egress));
}

pub(super) fn unregister(egress: &Egress) {
    part(egress.id()).remove(&egress.id());
}

impl Egress {
    pub(super) fn finish(&self) -> usize {
        let Some(mut state) = try_for(&self.state, LOCK) else { return 1 };
        self.hand_over(&mut state);
        if state.failure.is_some() { 0 } else { state.queue.len() }
    }
}

/// Takes a lock, with a time limit: its holder may be the thread that exits.
fn try_for<T>(lock: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let since = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if since.elapsed() >= patience => return None,
            Err(TryLockError::WouldBlock) => thread::park_timeout(Duration::from_millis(1)),
        }
    }
}

fn hand_over_all() {
    let since = Instant::now();
    let mut streams = Vec::new();
    for part in &STREAMS {
        streams.extend(try_for(part, LOCK).iter().flat_map(|part| part.values().filter_map(Weak::upgrade)));
    }
    let mut left: Vec<&Arc<Egress>> = streams.iter().filter(|egress| egress.finish() > 0).collect();
    while let Some(rest) = EXIT.checked_sub(since.elapsed()).filter(|_| !left.is_empty()) {
        transfer::wait_for_room_blocking(left.iter().map(|egress| egress.as_fd()), rest);
        left.retain(|egress| egress.finish() > 0);
        // A socket may be ready and still take nothing.
        thread::park_timeout(Duration::from_millis(1));
    }
    drop(left);
    // Streams are not dropped, because their hooks must not run this late.
    for stream in streams {
        let _ = ManuallyDrop::new(stream);
    }
}
