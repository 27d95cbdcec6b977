//! A thread that flushes streams when a flusher is late.
//!
//! A flusher is a task, and a task can be delayed: by a task on the same worker that blocks or computes (a task that it
//! has just woken runs next, and no other worker steals that one), or because a current-thread runtime is not driven
//! after its `block_on` has returned. tokio's streams have sent their bytes by then, so the streams of this crate must
//! do so too.
//!
//! A [late](is_late) flusher is not necessarily stuck: on a busy machine its thread may wait for a CPU, and an early
//! flush would gather less when gathering matters most. A flusher counts as stuck only if, between two checks, all
//! known threads of its runtime sleep, or use enough CPU time to have reached it.
//!
//! ```text
//!            a first stream becomes dirty: unpark             nothing dirty in a whole tick
//!   asleep ────────────────────────────────▶ checks, 1 to 4 ms apart ─────────────▶ asleep
//! ```
//!
//! There is one thread per process, started by the first dirty stream. While it is awake, arming it costs one load. It
//! holds no stream and no runtime, and only tries to lock the lists, so it never delays a running flusher.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::dirty::{DirtyRef, Suspect, Work};
use super::turns::{Shard, Turn};
use crate::counters::{Counter, count};
use crate::sync::guarded;
use crate::sys;

/// Time from arming to the first check, and the minimum delay of a late flusher.
const TICK: Duration = Duration::from_millis(1);
/// Interval between checks while all flushers are in time.
const LONG_TICK: Duration = Duration::from_millis(4);
/// Maximum allowance for long turns.
const SLACK: Duration = Duration::from_millis(8);

const NONE: u8 = 0;
const ASLEEP: u8 = 1;
const LOOKING: u8 = 2;
/// The thread could not be started: flushers run without a backstop.
const REFUSED: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(NONE);
static THREAD: OnceLock<Thread> = OnceLock::new();

/// Must be called without locks when the first stream of a shard becomes dirty.
#[inline]
pub(super) fn arm() {
    match STATE.load(Ordering::SeqCst) {
        LOOKING | REFUSED => {}
        state => wake(state),
    }
}

#[cold]
fn wake(state: u8) {
    if STATE.compare_exchange(state, LOOKING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    if state == ASLEEP {
        if let Some(thread) = THREAD.get() {
            thread.unpark();
        }
        return;
    }
    let thread = thread::Builder::new().name("millstream-late".to_owned()).spawn(run);
    match thread {
        Ok(thread) => drop(THREAD.set(thread.thread().clone())),
        Err(_) => STATE.store(REFUSED, Ordering::SeqCst),
    }
}

#[derive(Default)]
struct LateWork {
    pending: bool,
    /// Changes when a stream becomes dirty after the last check.
    rounds: u32,
    suspects: bool,
    late: Vec<DirtyRef>,
}

fn run() {
    // A waker may arm this thread before its creator has stored the handle.
    let _ = THREAD.set(thread::current());
    let (mut tick, mut rounds) = (TICK, 0);
    loop {
        thread::park_timeout(tick);
        let found = find_late();
        let active = found.pending || found.rounds != rounds;
        rounds = found.rounds;
        if found.suspects || !found.late.is_empty() {
            found.late.into_iter().for_each(flush);
            tick = TICK;
        } else if active {
            tick = (tick * 2).min(LONG_TICK);
        } else {
            tick = TICK;
            sleep(rounds);
        }
    }
}

/// Sleeps until armed, unless a stream has become dirty since the check that saw `rounds`.
fn sleep(rounds: u32) {
    STATE.store(ASLEEP, Ordering::SeqCst);
    // The locks of the shards order this: a thread that makes a stream dirty after this check sees the state above.
    let again = find_late();
    if again.pending || again.rounds != rounds {
        STATE.store(LOOKING, Ordering::SeqCst);
        again.late.into_iter().for_each(flush);
        return;
    }
    while STATE.load(Ordering::SeqCst) == ASLEEP {
        thread::park();
    }
}

fn flush(stream: DirtyRef) {
    count(Counter::LateFlushes, 1);
    guarded(|| stream.flush());
}

fn find_late() -> LateWork {
    count(Counter::LateLooks, 1);
    let mut turns: Vec<Arc<Turn>> = Vec::new();
    Turn::all(&mut turns);
    let (mut found, now) = (LateWork::default(), Instant::now());
    for turn in &turns {
        // Computed only if a flusher is late, and once per runtime.
        let activity = OnceCell::new();
        for shard in &turn.shards {
            check_shard(shard, now, || *activity.get_or_init(|| Activity::of(turn)), &mut found);
        }
    }
    found
}

#[derive(Clone, Copy, Default)]
struct Activity {
    runnable: bool,
    ran: Duration,
}

impl Activity {
    fn of(turn: &Turn) -> Self {
        let mut threads = Vec::new();
        for shard in &turn.shards {
            threads.extend(shard.state().thread);
            threads.extend(try_work(shard).and_then(|work| work.thread));
        }
        threads.sort_unstable();
        threads.dedup();
        let all = threads.into_iter().filter_map(sys::thread::activity);
        all.fold(Self::default(), |sum, one| Self { runnable: sum.runnable || one.runnable, ran: sum.ran + one.ran })
    }
}

/// Streams that the flusher has taken. `None` while the flusher is running.
fn try_work(shard: &Shard) -> Option<MutexGuard<'_, Work>> {
    match shard.work.try_lock() {
        Ok(work) => Some(work),
        Err(TryLockError::Poisoned(work)) => Some(work.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn check_shard(shard: &Shard, now: Instant, activity: impl Fn() -> Activity, found: &mut LateWork) {
    let Some(work) = try_work(shard) else {
        found.pending = true;
        return;
    };
    let slack = (work.lag * 2).min(SLACK);
    let late = |since: Instant, limit: Duration| is_late(now.saturating_duration_since(since), limit, slack);
    let state = shard.state();
    found.rounds = found.rounds.wrapping_add(state.rounds);
    let dirty = state.dirty.iter().map(|(stream, limit)| (stream, state.since, *limit));
    let waiting = work.waiting.iter().map(|dirty| (&dirty.stream, Some(dirty.since), dirty.limit));
    let due = work.due.iter().map(|stream| (stream, work.looked, Duration::ZERO));
    let (mut any, mut any_late) = (false, false);
    for (_, since, limit) in dirty.chain(waiting).chain(due).filter(|(stream, ..)| stream.is_ours()) {
        any = true;
        any_late |= since.is_some_and(|since| late(since, limit));
    }
    found.pending |= any;
    if !any_late {
        return;
    }
    drop(state);
    drop(work);
    let activity = activity();
    let Some(mut work) = try_work(shard) else { return };
    if !work.suspect.as_ref().is_some_and(|suspect| suspect.is_stuck(activity.runnable, activity.ran, TICK + slack)) {
        let since = work.suspect.take().map_or(activity.ran, |suspect| suspect.since);
        work.suspect = Some(Suspect { since, last: activity.ran });
        found.suspects = true;
        return;
    }
    work.suspect = None;
    let mut state = shard.state();
    if let Some(since) = state.since {
        let taken = state.dirty.extract_if(.., |(stream, limit)| stream.is_ours() && late(since, *limit));
        found.late.extend(taken.map(|(stream, _)| stream));
        state.since = state.since.filter(|_| state.dirty.iter().any(|(stream, _)| stream.is_ours()));
    }
    drop(state);
    let taken = work.waiting.extract_if(.., |dirty| dirty.stream.is_ours() && late(dirty.since, dirty.limit));
    found.late.extend(taken.map(|dirty| dirty.stream));
    if work.looked.is_some_and(|looked| late(looked, Duration::ZERO)) {
        let (ours, others): (Vec<_>, _) = std::mem::take(&mut work.due).into_iter().partition(DirtyRef::is_ours);
        work.due = others.into();
        found.late.extend(ours);
    }
}

/// Returns whether a stream is late: its gather limit and the flusher's interval have passed.
fn is_late(waited: Duration, limit: Duration, slack: Duration) -> bool {
    waited >= limit.max(TICK).saturating_add(slack)
}

#[cfg(test)]
mod tests;
