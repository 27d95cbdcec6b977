//! A connection as the reaper sees it: its observations, and the instructions that follow from a check.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::check::{CheckVerdict, Facts, Seen};
use crate::counters::{Counter, count};
use crate::net::Pulse;
use crate::server::drain::Drained;
use crate::server::limits::Limits;
use crate::server::state::{ConnState, Protocol, ShutdownPhase, Unread};

/// Longest interval of the checks. Short limits reduce it.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// Time for the owners of a connection that was reset at the deadline to drop it.
const PATIENCE: Duration = TICK;
/// Time without a request after which an HTTP/1 connection frees hyper's state. Connections under load never wait as
/// long.
const HIBERNATE_AFTER: Duration = Duration::from_secs(1);
/// Ticks from one check of a connection that rests to the next. With a tick more, until the end of a limit is noticed,
/// this is a second.
const REST_TICKS: u8 = 3;
const REST: Duration = TICK.saturating_mul(REST_TICKS as u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) fn has_waited_for(self, entry: &Entry) -> bool {
        let Self::Drains { deadline, .. } = self else { return false };
        entry.drained == Drain::Aborted && Instant::now() >= deadline + PATIENCE
    }
}

pub(super) struct Entry {
    pub(super) conn_state: Arc<ConnState>,
    seen: Seen,
    /// Bytes sent when the peer had last acknowledged all of them.
    acknowledged: u64,
    is_tcp: Option<bool>,
    /// Number of requests when it was asked to hibernate.
    rested: u32,
    /// Number of the last request during which it came to rest. It wraps around.
    streamed: u8,
    /// Ticks without a check that are left.
    skips: u8,
    drained: Drain,
    /// `None` if it has none.
    age: Option<Box<Age>>,
    /// Drain, and after its age: start of the time without a request and without received bytes.
    idle: Option<Box<Instant>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// Not checked since the drain began.
    No,
    /// Left to finish.
    Waits,
    Aborted,
}

/// The longest life of a connection.
#[derive(Clone, Copy, Debug)]
enum Age {
    /// When it ends.
    Ends(Instant),
    /// It has ended. The connection is reset at this instant.
    Ended(Instant),
}

/// Returns the instant `time` after `now`, or decades after it if there is no such instant.
pub(super) fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

impl Entry {
    pub(super) fn new(conn_state: Arc<ConnState>, now: Instant) -> Self {
        let ages = conn_state.limits.age.as_ref().map(|(ages, _)| ages.draw());
        Self {
            conn_state,
            seen: Seen::new(now),
            acknowledged: 0,
            is_tcp: None,
            rested: 0,
            streamed: 0,
            skips: 0,
            drained: Drain::No,
            age: ages.map(|age| Box::new(Age::Ends(after(now, age)))),
            idle: None,
        }
    }

    /// Returns whether the connection is not checked at this tick.
    pub(super) fn skips(&mut self) -> bool {
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

    /// Returns when the connection is reset, if it has reached its age. It drains until then.
    fn check_age(&mut self, now: Instant, limits: &Limits) -> Option<Instant> {
        let age = &mut **self.age.as_mut()?;
        if let Age::Ends(at) = *age
            && let Some((_, grace)) = limits.age.as_ref().filter(|_| at <= now)
        {
            count(Counter::ConnectionsAged, 1);
            self.conn_state.begin_drain();
            *age = Age::Ended(after(now, *grace));
        }
        let Age::Ended(until) = *age else { return None };
        self.conn_state.end_answers(usize::MAX);
        Some(until)
    }

    /// Returns whether neither the limit of the time without a request nor the age ends soon.
    fn rests(&self, now: Instant, limits: &Limits) -> bool {
        let age = match self.age.as_deref() {
            None => Duration::MAX,
            Some(Age::Ends(at)) => at.saturating_duration_since(now),
            Some(Age::Ended(_)) => Duration::ZERO,
        };
        limits.keep_alive.saturating_sub(self.seen.quiet(now)).min(age) > REST
    }

    /// For HTTP/2, hyper holds `window` bytes of request bodies at most.
    ///
    /// Returns whether the connection was asked to hibernate, or has come to rest during a response, which the server has
    /// taken over from hyper then.
    pub(super) fn check_limits(&mut self, limits: &Limits, window: usize, stage: Stage, tick: Duration) -> bool {
        let now = Instant::now();
        // Read before the bytes, so that these include all bytes of the requests. Otherwise the bytes of a request that
        // begins and ends meanwhile would begin a further head.
        let requests = self.conn_state.requests.counts();
        let Some(pulse) = self.conn_state.handle.pulse() else { return false };
        let mut frees = false;
        let (held, aged) = (self.held(&pulse), self.check_age(now, limits));
        let deadline = match stage {
            Stage::Drains { deadline, .. } => Some(deadline),
            Stage::Serves | Stage::Left => None,
        };
        // When a connection that drains is reset.
        let until = deadline.into_iter().chain(aged).min();
        let conn_state = &*self.conn_state;
        // Without a read since the last check, bytes in the kernel wait for the server, not for the client.
        let reads_late = pulse.received == self.seen.received();
        let unread = conn_state.unread();
        let facts = Facts {
            protocol: conn_state.protocol(),
            tunnel: conn_state.is_tunnel(),
            handshake: conn_state.handshake(),
            ended: conn_state.has_ended(),
            phase: conn_state.phase(),
            requests,
            owes: conn_state.requests.owes(),
            asked: conn_state.requests.asked(),
            passed: conn_state.requests.passed(),
            pulse,
            held,
        };
        if let Some(unread) = unread {
            unread.bound(pulse.received, window, limits.budget, facts.owes);
        }
        // Unread bytes in the kernel mean that the client is not silent: under load the task of the connection may read
        // late. This is checked only for a verdict that would end the connection, because it costs a system call. It is
        // not checked for tunnels: their service may leave bytes unread forever.
        let arrives = || reads_late && !facts.tunnel && conn_state.handle.unread().is_some_and(|bytes| bytes > 0);
        let is_silent = self.seen.is_silent(&facts);
        let verdict = match self.seen.check(now, &facts, limits) {
            CheckVerdict::HeadLate { .. } | CheckVerdict::Idle if arrives() => {
                CheckVerdict::Well { between_requests: false }
            }
            CheckVerdict::Well { between_requests: true } if until.is_some() && arrives() => {
                CheckVerdict::Well { between_requests: false }
            }
            verdict => verdict,
        };
        // Not under the lock: a woken task may drop the body.
        let waits = conn_state.waits().clone();
        // Bytes of uploads are counted at each check.
        let receives = !waits.is_empty() || unread.is_some_and(Unread::has_bodies);
        for wait in waits {
            wait.check_window(now, limits.body_progress, arrives);
        }
        let mut rests = false;
        match verdict {
            CheckVerdict::Stalled => {
                if facts.phase < ShutdownPhase::Abort {
                    count(Counter::WritesStalled, 1);
                }
                conn_state.abort();
            }
            // During a drain, and after its age, a slow connection has until the deadline.
            CheckVerdict::Unheeded if until.is_none() || facts.phase > ShutdownPhase::Finish => conn_state.abort(),
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
                frees = std::mem::replace(&mut self.rested, facts.requests.0) != facts.requests.0;
                if frees {
                    conn_state.request_hibernation(facts.requests.0);
                }
                rests = true;
            }
            // A stream without events, or a service that takes its time.
            CheckVerdict::Well { between_requests: false } => {
                rests = is_silent && !receives;
                frees =
                    rests && std::mem::replace(&mut self.streamed, facts.requests.0 as u8) != facts.requests.0 as u8;
            }
            CheckVerdict::Well { .. } | CheckVerdict::Unheeded => {}
        }
        // With short limits, a tick is short too.
        if rests && self.rests(now, limits) && tick == TICK {
            self.skips = REST_TICKS - 1;
        }
        if let Some(until) = until {
            let is_between = verdict == CheckVerdict::Well { between_requests: true };
            self.idle = is_between.then(|| self.idle.take().unwrap_or_else(|| Box::new(now)));
            // Waits a tick for requests that are on their way, and for heads that have begun.
            let is_idle = self.idle.as_ref().is_some_and(|since| now.duration_since(**since) >= tick);
            let drained = self.drain(now >= until, is_idle);
            if deadline.is_some() && self.drained != Drain::Aborted {
                self.drained = drained;
            }
        }
        frees
    }

    fn drain(&self, is_late: bool, is_idle: bool) -> Drain {
        let conn_state = &*self.conn_state;
        // A connection that is between two requests at the deadline ends in order, unless it was already told to
        // finish.
        if is_late && self.idle.is_none() {
            conn_state.abort();
            return Drain::Aborted;
        }
        // It moves now if it is idle, or else by itself after a response.
        if conn_state.moves() && !is_late {
            conn_state.wake();
            return Drain::Waits;
        }
        // GOAWAY tells an HTTP/2 client which requests are answered. `Connection: close` in the next response tells an
        // HTTP/1 client. If the head of the current response was already sent, that is the response to a further
        // request.
        let goes_away = conn_state.protocol() == Protocol::Two && conn_state.requests.counts().1 > 0;
        if goes_away || is_idle || is_late {
            conn_state.raise(ShutdownPhase::Finish);
        }
        Drain::Waits
    }

    /// Ends the checks of a connection that is over, and adds its outcome.
    pub(super) fn end(&self, drained: &mut Drained) {
        // Services may keep the state of the connection.
        if let Some(unread) = self.conn_state.unread() {
            unread.release();
        }
        match self.drained {
            // It ended before the drain.
            Drain::No if !self.conn_state.is_drained() => {}
            Drain::No | Drain::Waits => drained.add(&self.conn_state),
            Drain::Aborted => drained.add_aborted(&self.conn_state),
        }
    }
}
