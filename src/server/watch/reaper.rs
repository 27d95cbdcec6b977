//! A task that checks all connections of a server against the limits, and drains them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::entry::{Entry, Stage, TICK, after};
use super::trim::Trim;
use super::waves::Waves;
use crate::counters::{Gauge, Present};
use crate::server::connection::Protocols;
use crate::server::drain::Drained;
use crate::server::limits::Limits;
use crate::server::state::{ConnLimiter, ConnState, Successor};
use crate::sync::{Mutex, lock};
use crate::sys::heap;

/// Shortest interval of the checks.
const TICK_MIN: Duration = Duration::from_millis(10);
/// Connections checked before other tasks may run.
const AT_ONCE: usize = 512;

#[derive(Debug)]
pub(in crate::server) struct ServerShared {
    pub(in crate::server) limits: Arc<Limits>,
    pub(in crate::server) protocols: Arc<Protocols>,
    pub(in crate::server) limiter: Arc<ConnLimiter>,
    /// Takes the idle connections of the server that can move, when it drains.
    successor: Option<Successor>,
    state: Mutex<ReaperState>,
    running: AtomicUsize,
    /// Whether the drain has begun.
    drains: AtomicBool,
    changed: Notify,
}

#[derive(Debug)]
struct ReaperState {
    stage: Stage,
    /// Connections that the reaper has not seen yet, by the numbers of their streams: in the order in which they came.
    new: BTreeMap<u64, Arc<ConnState>>,
    /// Connections that ended before the reaper saw them, since its last check.
    ended: usize,
    /// Connections that ended during the drain before the reaper saw them.
    drained: Drained,
    /// Whether the reaper waits for a connection.
    sleeps: bool,
}

impl ServerShared {
    pub(in crate::server) fn new(
        limits: Limits,
        protocols: Arc<Protocols>,
        limiter: Arc<ConnLimiter>,
        successor: Option<Successor>,
    ) -> Arc<Self> {
        let state = Mutex::new(ReaperState {
            stage: Stage::Serves,
            new: BTreeMap::new(),
            ended: 0,
            drained: Drained::default(),
            sleeps: false,
        });
        let (running, drains, changed) = (AtomicUsize::new(0), AtomicBool::new(false), Notify::new());
        Arc::new(Self { limits: Arc::new(limits), protocols, limiter, successor, state, running, drains, changed })
    }

    /// Adds a connection, to be checked until it is over. Its task holds the returned value.
    pub(in crate::server) fn enter(self: &Arc<Self>, conn_state: &Arc<ConnState>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.new.insert(conn_state.handle.id(), Arc::clone(conn_state));
        if std::mem::take(&mut state.sleeps) {
            self.changed.notify_one();
        }
        Running {
            shared: Arc::clone(self),
            conn_state: Arc::clone(conn_state),
            _open: Present::in_(Gauge::OpenConnections),
        }
    }

    /// Ends all connections within `patience`.
    pub(in crate::server) fn drain(&self, patience: Duration) {
        let since = Instant::now();
        self.drains.store(true, Ordering::Release);
        lock(&self.state).stage = Stage::Drains { since, deadline: after(since, patience) };
        self.changed.notify_one();
    }

    /// Records that no further connection is accepted. The reaper ends with the last one.
    pub(in crate::server) fn leave(&self) {
        let mut state = lock(&self.state);
        if state.stage == Stage::Serves {
            state.stage = Stage::Left;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Moves the connections that the reaper has not seen yet to `entries`.
    fn take_new(&self, entries: &mut Vec<Entry>, trim: &mut Trim) -> Stage {
        let mut state = lock(&self.state);
        let now = Instant::now();
        // At most once a tick. Doubling would leave up to a half unused.
        entries.reserve_exact(state.new.len());
        entries.extend(std::mem::take(&mut state.new).into_values().map(|conn_state| Entry::new(conn_state, now)));
        trim.rested(std::mem::take(&mut state.ended));
        state.sleeps = entries.is_empty();
        state.stage
    }

    fn tick(&self) -> Duration {
        let Limits { head_time, body_progress, write_stall, keep_alive, .. } = *self.limits;
        let shortest = head_time.min(body_progress).min(write_stall).min(keep_alive);
        (shortest / 4).clamp(TICK_MIN, TICK)
    }
}

#[derive(Debug)]
pub(in crate::server) struct Running {
    shared: Arc<ServerShared>,
    conn_state: Arc<ConnState>,
    _open: Present,
}

impl Drop for Running {
    fn drop(&mut self) {
        let drains = self.shared.drains.load(Ordering::Acquire);
        if drains {
            self.conn_state.mark_drained();
        }
        // Between two checks, thousands of short connections may end.
        if self.conn_state.end() {
            let mut state = lock(&self.shared.state);
            if state.new.remove(&self.conn_state.handle.id()).is_some() {
                state.ended += 1;
                if drains {
                    state.drained.add(&self.conn_state);
                }
            }
        }
        // A server that drains does not wait for the next check.
        if self.shared.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_one();
        }
    }
}

/// Checks the connections of a server until the server is gone and all of them are over.
pub(in crate::server) async fn reaper(shared: Arc<ServerShared>) -> Drained {
    let tick = shared.tick();
    let mut entries: Vec<Entry> = Vec::new();
    let mut drained = Drained::default();
    let mut trim = Trim::new(shared.limits.trim_heap);
    let mut waves: Option<Waves> = None;
    loop {
        let stage = shared.take_new(&mut entries, &mut trim);
        if entries.is_empty() && !(stage == Stage::Serves && trim.is_pending()) {
            match stage {
                Stage::Serves => shared.changed.notified().await,
                Stage::Left => return drained,
                Stage::Drains { since, .. } => {
                    drained = drained.and(lock(&shared.state).drained);
                    drained.duration = since.elapsed();
                    return drained;
                }
            }
            continue;
        }
        if let Stage::Drains { deadline, .. } = stage {
            let begin = || {
                if let Some(successor) = &shared.successor {
                    entries.iter().for_each(|entry| entry.conn_state.begin_move(successor));
                }
                let connections = entries.iter().map(|entry| &entry.conn_state);
                Waves::begin(connections, shared.limiter.open(), shared.limits.drain_spread, deadline)
            };
            waves.get_or_insert_with(begin).end_due();
        }
        let mut at = 0;
        while at < entries.len() {
            let entry = &mut entries[at];
            if stage == Stage::Serves && entry.skips() {
                at += 1;
                continue;
            }
            if entry.conn_state.is_over() || stage.has_waited_for(entry) {
                entry.end(&mut drained);
                entries.swap_remove(at);
                trim.rested(1);
                continue;
            }
            if entry.check_limits(&shared.limits, shared.protocols.window, stage, tick) {
                trim.rested(1);
            }
            at += 1;
            if at % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        if entries.is_empty() && stage != Stage::Serves {
            continue;
        }
        if stage == Stage::Serves && trim.is_due(Instant::now()) {
            // Takes milliseconds.
            tokio::task::spawn_blocking(heap::trim);
        }
        // Wakes at the deadline, not at the next tick after it.
        let wait = match stage {
            Stage::Drains { deadline, .. } => {
                tick.min(deadline.saturating_duration_since(Instant::now())).max(TICK_MIN)
            }
            _ => tick,
        };
        let next_check = Instant::now() + wait;
        loop {
            let next = waves.as_ref().and_then(Waves::next).map_or(next_check, |next| next.min(next_check));
            if timeout_at(next, shared.changed.notified()).await.is_ok() || next >= next_check {
                break;
            }
            waves.as_mut().map(Waves::end_due);
        }
    }
}

#[cfg(test)]
mod tests;
