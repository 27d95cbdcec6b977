//! A rate that many streams share: one bucket, and one task that waits for it.
//!
//! A stream that is told to wait counts as blocked, and stands in line. While anybody stands there a task sleeps until the
//! bucket holds something, and lets the first ones go on, as many as what it holds is enough for. So there is no timer for
//! each stream, and none at all while the bucket is not empty.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::egress::Egress;
use crate::counters::token_bucket::TokenBucket;

/// What a stream that goes on will take at least, for all that is known.
const TAKES: u64 = 4 << 10;

/// A rate that all the streams of a listener share, or of several: what they send together. Cheap to clone; clones are the
/// same rate. Given to [`pace_all`](super::TcpListenerBuilder::pace_all).
///
/// A tenth of a second's bytes may go at once. A call to the kernel is not cut short for the rate: what it sends too much
/// (what has gathered, or up to 2 MiB of a file) is waited for afterwards.
///
/// # Panics
///
/// Waiting needs the runtime's timer. A listener with a rate panics when it is bound on a runtime without one; see
/// [`tokio::runtime::Builder::enable_time`].
#[derive(Clone)]
pub struct SharedPace(Arc<Bucket>);

struct Bucket {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    pace: TokenBucket,
    rate: NonZeroU64,
    /// Sent beyond what the bucket held.
    owed: u64,
    /// With how much they have.
    waiting: VecDeque<(Weak<Egress>, u64)>,
    /// A task waits for them.
    attended: bool,
}

impl State {
    /// What may be sent now, or how long it is until something may.
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
}

impl State {
    fn spend(&mut self, bytes: u64, now: Duration) {
        let paid = self.grant(now).map_or(0, |granted| granted.min(bytes));
        self.pace.spend(paid);
        self.owed += bytes - paid;
    }
}

impl SharedPace {
    /// At most so many bytes per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        let state = State {
            pace: TokenBucket::new(bytes_per_second),
            rate: bytes_per_second,
            owed: 0,
            waiting: VecDeque::new(),
            attended: false,
        };
        Self(Arc::new(Bucket { start: Instant::now(), state: Mutex::new(state) }))
    }

    /// Panics, with tokio's message, on a runtime without timers: the task that waits for the bucket would panic there,
    /// as often as somebody waits.
    #[track_caller]
    pub(super) fn require_timer() {
        drop(tokio::time::sleep(Duration::ZERO));
    }

    /// The rate, in bytes per second.
    pub fn rate(&self) -> NonZeroU64 {
        self.0.state().rate
    }

    /// Changes the rate, for all streams that have it and at once but for those that wait already: they wait for as long as
    /// they were told, a tenth of a second by the old rate or what was sent too much.
    pub fn set(&self, bytes_per_second: NonZeroU64) {
        let mut state = self.0.state();
        let now = self.0.start.elapsed();
        state.rate = bytes_per_second;
        state.pace = TokenBucket::new(bytes_per_second);
        // A new bucket is full; one that is changed again and again would never be empty.
        if let Ok(granted) = state.pace.grant(now) {
            state.pace.spend(granted);
        }
    }

    /// Whether a stream with so many bytes may send now. If not, it stands in line, and is told by [`Egress::go_on`] when it may.
    pub(super) fn may_send(&self, egress: &Egress, bytes: usize) -> bool {
        let mut state = self.0.state();
        let Err(wait) = state.grant(self.0.start.elapsed()) else { return true };
        state.waiting.push_back((egress.weak(), (bytes as u64).max(TAKES)));
        if !std::mem::replace(&mut state.attended, true) {
            drop(state);
            let attendant = Attendant { bucket: Arc::clone(&self.0), retired: false };
            egress.runtime().spawn(async move { attendant.run(wait).await });
        }
        false
    }

    /// Notes what was sent.
    pub(super) fn spend(&self, bytes: usize) {
        self.0.state().spend(bytes as u64, self.0.start.elapsed());
    }
}

impl Bucket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        f.debug_struct("SharedPace").field("rate", &state.rate).field("waiting", &state.waiting.len()).finish()
    }
}

/// The task that waits for the bucket.
struct Attendant {
    bucket: Arc<Bucket>,
    /// Nobody waits, or whoever does has another.
    retired: bool,
}

impl Attendant {
    async fn run(mut self, mut wait: Duration) {
        let mut due = Vec::new();
        loop {
            tokio::time::sleep(wait).await;
            let more = self.next(&mut due);
            self.retired = more.is_none();
            // Not under the bucket's lock: each comes back with its own locked.
            due.drain(..).filter_map(|egress: Weak<Egress>| egress.upgrade()).for_each(|egress| egress.go_on());
            match more {
                Some(longer) => wait = longer,
                None => return,
            }
        }
    }

    /// Those for whom the bucket holds enough now, and when to look again, if anybody waits.
    fn next(&self, due: &mut Vec<Weak<Egress>>) -> Option<Duration> {
        let mut state = self.bucket.state();
        match state.grant(self.bucket.start.elapsed()) {
            Err(longer) => Some(longer),
            Ok(mut granted) => {
                while granted > 0
                    && let Some((egress, bytes)) = state.waiting.pop_front()
                {
                    granted = granted.saturating_sub(bytes);
                    due.push(egress);
                }
                state.attended = !state.waiting.is_empty();
                // They are about to take what there is.
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
        // The runtime ends. Those of others ask again, and the first of them finds another to wait.
        state.attended = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for egress in waiting.iter().filter_map(|(egress, _)| egress.upgrade()) {
            // By a task, because whoever drops this may have one of them locked.
            egress.runtime().clone().spawn(async move { egress.go_on() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_sent_too_much_is_paid_back(
            rate in 1000u64..1 << 30, sends in proptest::collection::vec(0u64..10_000_000, 1..50),
        ) {
            let pace = SharedPace::new(NonZeroU64::new(rate).unwrap());
            let mut state = pace.0.state();
            let (mut now, mut sent) = (Duration::ZERO, 0u128);
            let mut largest = 0;
            for bytes in sends {
                while let Err(wait) = state.grant(now) {
                    prop_assert!(wait > Duration::ZERO);
                    now += wait;
                }
                state.spend(bytes, now);
                sent += u128::from(bytes);
                largest = largest.max(bytes);
                let due = u128::from(rate) * now.as_nanos() / 1_000_000_000;
                prop_assert!(sent <= due + u128::from(rate / 10 + largest) + 1, "{sent} after {now:?}");
            }
        }
    }
}
