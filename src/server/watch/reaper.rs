//! A task that checks all connections of a server against the limits, and drains them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::check::{CheckVerdict, Facts, Seen};
use super::trim::Trim;
use crate::counters::{Counter, Gauge, Present, count};
use crate::net::Pulse;
use crate::server::connection::Protocols;
use crate::server::drain::Drained;
use crate::server::limits::Limits;
use crate::server::lock::lock;
use crate::server::state::{ConnLimiter, ConnState, Protocol, ShutdownPhase};
use crate::sys::heap;

/// Longest interval of the checks. Short limits reduce it.
const TICK: Duration = Duration::from_millis(250);
const TICK_MIN: Duration = Duration::from_millis(10);
/// Time for the owners of a connection that was reset at the deadline to drop it.
const PATIENCE: Duration = TICK;
/// Time without a request after which an HTTP/1 connection frees hyper's state. Connections under load never wait as
/// long.
const HIBERNATE_AFTER: Duration = Duration::from_secs(1);
/// Ticks from one check of a connection that rests to the next. With a tick more, until the end of a limit is noticed,
/// this is a second.
const REST_TICKS: u8 = 3;
const REST: Duration = TICK.saturating_mul(REST_TICKS as u32);
/// Connections checked before other tasks may run.
const AT_ONCE: usize = 512;

#[derive(Debug)]
pub(in crate::server) struct ServerShared {
    pub(in crate::server) limits: Arc<Limits>,
    pub(in crate::server) protocols: Arc<Protocols>,
    pub(in crate::server) limiter: Arc<ConnLimiter>,
    state: Mutex<ReaperState>,
    running: AtomicUsize,
    changed: Notify,
}

#[derive(Debug)]
struct ReaperState {
    stage: Stage,
    /// Connections that the reaper has not seen yet, by their addresses in memory.
    new: HashMap<usize, Arc<ConnState>>,
    /// Connections that ended before the reaper saw them, since its last check.
    ended: usize,
    /// Whether the reaper waits for a connection.
    sleeps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serves,
    Drains {
        since: Instant,
        deadline: Instant,
    },
    /// No further connection is accepted.
    Left,
}

impl Stage {
    /// Returns whether the drain no longer waits for a connection that was reset: its owner neither reads nor writes.
    fn has_waited_for(self, entry: &Entry) -> bool {
        let Self::Drains { deadline, .. } = self else { return false };
        entry.drained == Drain::Aborted && Instant::now() >= deadline + PATIENCE
    }
}

impl ServerShared {
    pub(in crate::server) fn new(limits: Limits, protocols: Arc<Protocols>, limiter: Arc<ConnLimiter>) -> Arc<Self> {
        let state = Mutex::new(ReaperState { stage: Stage::Serves, new: HashMap::new(), ended: 0, sleeps: false });
        let (running, changed) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { limits: Arc::new(limits), protocols, limiter, state, running, changed })
    }

    /// Adds a connection, to be checked until it is over. Its task holds the returned value.
    pub(in crate::server) fn enter(self: &Arc<Self>, conn_state: &Arc<ConnState>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.new.insert(Arc::as_ptr(conn_state).addr(), Arc::clone(conn_state));
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
        // Decades are enough, and can be added to any `Instant`.
        let deadline = since.checked_add(patience).unwrap_or_else(|| since + Duration::from_secs(1 << 30));
        lock(&self.state).stage = Stage::Drains { since, deadline };
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
        entries.extend(state.new.drain().map(|(_, conn_state)| Entry::new(conn_state, now)));
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
        // Between two checks, thousands of short connections may end.
        if self.conn_state.end() {
            let mut state = lock(&self.shared.state);
            let forgotten = state.new.remove(&Arc::as_ptr(&self.conn_state).addr());
            state.ended += usize::from(forgotten.is_some());
        }
        // A server that drains does not wait for the next check.
        if self.shared.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_one();
        }
    }
}

struct Entry {
    conn_state: Arc<ConnState>,
    seen: Seen,
    /// Bytes sent when the peer had last acknowledged all of them.
    acknowledged: u64,
    is_tcp: Option<bool>,
    /// Number of requests when it was asked to hibernate.
    rested: u32,
    /// Ticks without a check that are left.
    skips: u8,
    drained: Drain,
    /// Drain: start of the time without a request and without received bytes.
    idle: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// Not checked since the drain began.
    No,
    /// Left to finish.
    Waits,
    /// Endless responses were notified.
    Notified,
    Aborted,
}

/// Checks the connections of a server until the server is gone and all of them are over.
pub(in crate::server) async fn reaper(shared: Arc<ServerShared>) -> Drained {
    let tick = shared.tick();
    let mut entries: Vec<Entry> = Vec::new();
    let mut drained = Drained::default();
    let mut trim = Trim::new(shared.limits.trim_heap);
    loop {
        let stage = shared.take_new(&mut entries, &mut trim);
        if entries.is_empty() && !(stage == Stage::Serves && trim.is_pending()) {
            match stage {
                Stage::Serves => shared.changed.notified().await,
                Stage::Left => return drained,
                Stage::Drains { since, .. } => {
                    drained.duration = since.elapsed();
                    return drained;
                }
            }
            continue;
        }
        let mut at = 0;
        while at < entries.len() {
            let entry = &mut entries[at];
            if stage == Stage::Serves && entry.skips() {
                at += 1;
                continue;
            }
            if entry.conn_state.is_over() || stage.has_waited_for(entry) {
                drained.add(entry.drained);
                entries.swap_remove(at);
                trim.rested(1);
                continue;
            }
            if entry.check_limits(&shared.limits, stage, tick) {
                trim.rested(1);
            }
            at += 1;
            if at % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
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
        let _ = timeout(wait, shared.changed.notified()).await;
    }
}

impl Entry {
    fn new(conn_state: Arc<ConnState>, now: Instant) -> Self {
        Self {
            conn_state,
            seen: Seen::new(now),
            acknowledged: 0,
            is_tcp: None,
            rested: 0,
            skips: 0,
            drained: Drain::No,
            idle: None,
        }
    }

    /// Returns whether the connection is not checked at this tick.
    fn skips(&mut self) -> bool {
        let skips = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        skips
    }

    /// Returns the bytes that the kernel took and the peer did not acknowledge. A Unix socket has no acknowledgements,
    /// and is asked only while more waits than it holds.
    fn held(&mut self, pulse: &Pulse) -> usize {
        let handle = &self.conn_state.handle;
        if pulse.sent == self.acknowledged || !(pulse.waits() || *self.is_tcp.get_or_insert_with(|| handle.is_tcp())) {
            return 0;
        }
        let held = handle.unacknowledged().unwrap_or(0);
        if held == 0 {
            self.acknowledged = pulse.sent;
        }
        held
    }

    /// Returns whether the connection was asked to hibernate.
    fn check_limits(&mut self, limits: &Limits, stage: Stage, tick: Duration) -> bool {
        let now = Instant::now();
        let Some(pulse) = self.conn_state.handle.pulse() else { return false };
        let mut hibernates = false;
        let held = self.held(&pulse);
        let conn_state = &*self.conn_state;
        // Without a read since the last check, bytes in the kernel wait for the server, not for the client.
        let reads_late = pulse.received == self.seen.received();
        let facts = Facts {
            protocol: conn_state.protocol(),
            tunnel: conn_state.is_tunnel(),
            sealed: conn_state.is_sealed(),
            ended: conn_state.has_ended(),
            phase: conn_state.phase(),
            requests: conn_state.requests.counts(),
            owes: conn_state.requests.owes(),
            asked: conn_state.requests.asked(),
            passed: conn_state.requests.passed(),
            pulse,
            held,
        };
        if let Some(unread) = conn_state.unread() {
            unread.bound(pulse.received, limits.budget);
        }
        // Unread bytes in the kernel mean that the client is not silent: under load the task of the connection may read
        // late. This is checked only for a verdict that would end the connection, because it costs a system call. It is
        // not checked for tunnels: their service may leave bytes unread forever.
        let arrives = || reads_late && !facts.tunnel && conn_state.handle.unread().is_some_and(|bytes| bytes > 0);
        let is_draining = matches!(stage, Stage::Drains { .. });
        let verdict = match self.seen.check(now, &facts, limits) {
            CheckVerdict::HeadLate { .. } | CheckVerdict::Idle if arrives() => {
                CheckVerdict::Well { between_requests: false }
            }
            CheckVerdict::Well { between_requests: true } if is_draining && arrives() => {
                CheckVerdict::Well { between_requests: false }
            }
            verdict => verdict,
        };
        // Not under the lock: a woken task may drop the body.
        let waits = conn_state.waits().clone();
        for wait in waits {
            wait.check_window(now, limits.body_progress, arrives);
        }
        match verdict {
            CheckVerdict::Stalled => {
                if facts.phase < ShutdownPhase::Abort {
                    count(Counter::WritesStalled, 1);
                }
                conn_state.abort();
            }
            // During a drain a slow connection has until the deadline.
            CheckVerdict::Unheeded if !is_draining || facts.phase > ShutdownPhase::Finish => conn_state.abort(),
            CheckVerdict::HeadLate { begun } => {
                count(Counter::HeadsTooSlow, 1);
                match begun {
                    true => conn_state.time_out(facts.requests.0),
                    false => conn_state.raise(ShutdownPhase::Finish),
                }
            }
            CheckVerdict::Idle => {
                count(Counter::IdleEnded, 1);
                conn_state.raise(ShutdownPhase::Finish);
            }
            CheckVerdict::Well { between_requests: true }
                if facts.protocol == Protocol::One && self.seen.quiet(now) >= HIBERNATE_AFTER =>
            {
                hibernates = std::mem::replace(&mut self.rested, facts.requests.0) != facts.requests.0;
                if hibernates {
                    conn_state.request_hibernation(facts.requests.0);
                }
                // With short limits, a tick is short too.
                let is_far = limits.keep_alive.saturating_sub(self.seen.quiet(now)) > REST;
                if is_far && tick == TICK {
                    self.skips = REST_TICKS - 1;
                }
            }
            CheckVerdict::Well { .. } | CheckVerdict::Unheeded => {}
        }
        if let Stage::Drains { deadline, .. } = stage {
            self.idle = (verdict == CheckVerdict::Well { between_requests: true }).then(|| self.idle.unwrap_or(now));
            // Waits a tick for requests that are on their way, and for heads that have begun.
            let is_idle = self.idle.is_some_and(|since| now.duration_since(since) >= tick);
            self.drain(now >= deadline, is_idle);
        }
        hibernates
    }

    fn drain(&mut self, is_late: bool, is_idle: bool) {
        let conn_state = &*self.conn_state;
        // A connection that is between two requests at the deadline ends in order, unless it was already told to
        // finish.
        if is_late && self.idle.is_none() {
            self.drained = Drain::Aborted;
            return conn_state.abort();
        }
        if self.drained == Drain::No {
            self.drained = if conn_state.end_answers() > 0 { Drain::Notified } else { Drain::Waits };
        }
        // GOAWAY tells an HTTP/2 client which requests are answered. `Connection: close` in the next response tells an
        // HTTP/1 client. If the head of the current response was already sent, that is the response to a further
        // request.
        let goes_away = conn_state.protocol() == Protocol::Two && conn_state.requests.counts().1 > 0;
        if goes_away || is_idle || is_late {
            conn_state.raise(ShutdownPhase::Finish);
        }
    }
}

impl Drained {
    fn add(&mut self, drain: Drain) {
        match drain {
            // It ended before the drain.
            Drain::No => return,
            Drain::Waits => self.finished += 1,
            Drain::Notified => self.notified += 1,
            Drain::Aborted => self.aborted += 1,
        }
        self.connections += 1;
    }
}

#[cfg(test)]
mod tests;
