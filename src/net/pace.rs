//! A send rate shared by many streams: one token bucket, and one task that waits for it.
//!
//! A stream without tokens is blocked and joins a queue. While the queue is not empty, a task sleeps until the bucket
//! has tokens, and then unblocks as many streams as the tokens allow. So there is no timer per stream.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::counters::token_bucket::TokenBucket;

/// Minimum number of bytes that an unblocked stream is assumed to send.
const TAKES: u64 = 4 << 10;

/// A send rate shared by all streams of one or several listeners. Cheap to clone; clones share the rate. Passed to
/// [`pace_all`](super::TcpListenerBuilder::pace_all).
///
/// Bursts of up to a tenth of a second are allowed. A system call is not split: if it sends more than allowed (gathered
/// bytes, or up to 2 MiB of a file), later calls are delayed.
///
/// # Panics
///
/// Binding a listener with a rate panics on a runtime without timers, because waiting needs them; see
/// [`tokio::runtime::Builder::enable_time`].
#[derive(Clone)]
pub struct SharedPace(Arc<Bucket>);

/// The answer to a stream that wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    Now,
    /// The stream is queued.
    Later,
    /// The runtime of the stream has ended, and no other waits for this rate.
    Never,
}

/// Spawns `task`. Returns `false` if the runtime has ended; it then drops the task.
fn is_spawned(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> bool {
    let task = pin!(unconstrained(runtime.spawn(task)));
    !matches!(task.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(e)) if e.is_cancelled())
}

struct Bucket {
    start: Instant,
    state: Mutex<BucketState>,
}

struct BucketState {
    pace: TokenBucket,
    rate: NonZeroU64,
    /// Bytes sent in excess of the bucket.
    owed: u64,
    waiting: VecDeque<Waiting>,
    attended: bool,
}

/// A blocked stream: the waker that unblocks it, its runtime, and the bytes that it may send then.
struct Waiting {
    waker: Waker,
    runtime: Handle,
    bytes: u64,
}

impl BucketState {
    /// Returns the number of bytes that may be sent now, or the delay until some may.
    fn grant(&mut self, now: Duration) -> Result<u64, Duration> {
        loop {
            let granted = self.pace.grant(now)?;
            let paid = granted.min(self.owed);
            self.pace.spend(paid);
            self.owed -= paid;
            if granted > paid {
                return Ok(granted - paid);
            }
        }
    }

    fn spend(&mut self, bytes: u64, now: Duration) {
        let paid = self.grant(now).map_or(0, |granted| granted.min(bytes));
        self.pace.spend(paid);
        self.owed += bytes - paid;
    }
}

impl SharedPace {
    /// Creates a rate with a limit in bytes per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        let state = BucketState {
            pace: TokenBucket::new(bytes_per_second),
            rate: bytes_per_second,
            owed: 0,
            waiting: VecDeque::new(),
            attended: false,
        };
        Self(Arc::new(Bucket { start: Instant::now(), state: Mutex::new(state) }))
    }

    /// Panics with tokio's message on a runtime without timers. The waiting task would panic there.
    #[track_caller]
    pub(super) fn require_timer() {
        drop(tokio::time::sleep(Duration::ZERO));
    }

    /// Returns the rate in bytes per second.
    pub fn rate(&self) -> NonZeroU64 {
        self.0.state().rate
    }

    /// Changes the rate of all streams that share it. Streams that already wait finish their wait at the old rate: a
    /// tenth of a second, or the time that the excess takes.
    pub fn set(&self, bytes_per_second: NonZeroU64) {
        let mut state = self.0.state();
        let now = self.0.start.elapsed();
        state.rate = bytes_per_second;
        state.pace = TokenBucket::new(bytes_per_second);
        // A new bucket is full; without this, repeated changes would refill it forever.
        if let Ok(granted) = state.pace.grant(now) {
            state.pace.spend(granted);
        }
    }

    /// Returns whether a stream may send `bytes` now. Otherwise queues its `waker`, which is called once the stream may
    /// send. The waker is not queued if no task can wait for the rate.
    pub(super) fn may_send(&self, bytes: usize, waker: &Waker, runtime: &Handle) -> Grant {
        loop {
            let mut state = self.0.state();
            let Err(wait) = state.grant(self.0.start.elapsed()) else { return Grant::Now };
            if state.attended {
                let bytes = (bytes as u64).max(TAKES);
                state.waiting.push_back(Waiting { waker: waker.clone(), runtime: runtime.clone(), bytes });
                return Grant::Later;
            }
            state.attended = true;
            drop(state);
            let attendant = Attendant { bucket: Arc::clone(&self.0), retired: false };
            if !is_spawned(runtime, async move { attendant.run(wait).await }) {
                return Grant::Never;
            }
        }
    }

    pub(super) fn spend(&self, bytes: usize) {
        self.0.state().spend(bytes as u64, self.0.start.elapsed());
    }
}

impl Bucket {
    fn state(&self) -> MutexGuard<'_, BucketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        f.debug_struct("SharedPace").field("rate", &state.rate).field("waiting", &state.waiting.len()).finish()
    }
}

struct Attendant {
    bucket: Arc<Bucket>,
    /// Whether no stream waits, or another task has taken over.
    retired: bool,
}

impl Attendant {
    async fn run(mut self, mut wait: Duration) {
        let mut due = Vec::new();
        loop {
            tokio::time::sleep(wait).await;
            let more = self.next(&mut due);
            self.retired = more.is_none();
            // The bucket's lock is not held: each stream calls back with its own lock held.
            due.drain(..).for_each(Waker::wake);
            match more {
                Some(longer) => wait = longer,
                None => return,
            }
        }
    }

    /// Moves streams that may send to `due`. Returns the next delay, if streams still wait.
    fn next(&self, due: &mut Vec<Waker>) -> Option<Duration> {
        let mut state = self.bucket.state();
        match state.grant(self.bucket.start.elapsed()) {
            Err(longer) => Some(longer),
            Ok(mut granted) => {
                while granted > 0
                    && let Some(next) = state.waiting.pop_front()
                {
                    granted = granted.saturating_sub(next.bytes);
                    due.push(next.waker);
                }
                state.attended = !state.waiting.is_empty();
                state.attended.then_some(Duration::from_millis(1))
            }
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        if self.retired {
            return;
        }
        let mut state = self.bucket.state();
        // The runtime ends. Streams of other runtimes ask again, and the first of them starts another task.
        state.attended = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Wakers are called in tasks, because the dropping thread may hold the lock of a stream. Wakers of streams
        // without a runtime are called in a thread.
        let wake = |Waiting { waker, runtime, .. }: Waiting| {
            let again = waker.clone();
            if is_spawned(&runtime, async move { again.wake() }) { None } else { Some(waker) }
        };
        let left: Vec<Waker> = waiting.into_iter().filter_map(wake).collect();
        if !left.is_empty() {
            let thread = thread::Builder::new().name("millstream-pace".to_owned());
            let _ = thread.spawn(move || left.into_iter().for_each(Waker::wake));
        }
    }
}

#[cfg(test)]
mod tests;
