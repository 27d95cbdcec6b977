//! Decides which limit a connection has exceeded, from previous and current observations.

use std::time::Duration;

use tokio::time::Instant;

use crate::net::Pulse;
use crate::server::limits::Limits;
use crate::server::state::{Protocol, ShutdownPhase};

/// Time for a connection to finish, or to send something, after the instruction to finish.
const GRACE: Duration = Duration::from_millis(400);

/// Bytes of a PING frame sent by the server, with room for the framing of TLS.
const PING: u64 = 64;

/// Length of an empty line, and of a TLS record of one in the longest form (AES-GCM of TLS 1.2).
const EMPTY_LINE: u64 = 2;
const SEALED_LINE: u64 = 5 + 8 + EMPTY_LINE + 16;

/// Observations of a connection at one moment. The fields of [`ConnState`](crate::server::state::ConnState) explain
/// them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(in crate::server) protocol: Protocol,
    pub(in crate::server) tunnel: bool,
    /// Bytes of a complete handshake of TLS, or 0.
    pub(in crate::server) handshake: u64,
    pub(in crate::server) ended: bool,
    pub(in crate::server) phase: ShutdownPhase,
    pub(in crate::server) requests: (u32, u32),
    /// Whether a response over HTTP/2 waits for the peer to open a window.
    pub(in crate::server) owes: bool,
    /// Wraps around.
    pub(in crate::server) asked: u32,
    pub(in crate::server) passed: u64,
    pub(in crate::server) pulse: Pulse,
    /// Bytes that the kernel took and the peer did not acknowledge.
    pub(in crate::server) held: usize,
}

/// Previous observations of a connection.
#[derive(Debug)]
pub(in crate::server) struct Seen {
    requests: (u32, u32),
    received: u64,
    sent: u64,
    asked: u32,
    held: usize,
    /// Bytes that the peer has taken.
    taken: u64,
    /// Bytes that the peer has to accept next, if any are waiting. Boxed, because few connections need it.
    due: Option<Box<Due>>,
    /// Start of the time without a request, and the number of bytes received by then.
    quiet: (Instant, u64),
    /// Start of the time with an incomplete head.
    head: Option<Box<Instant>>,
    /// Instant of the instruction to end, and of the last byte sent since.
    raised: Option<Box<(Instant, Instant)>>,
}

/// Bytes that the peer has to take during a window, and the counts at the start of the window.
#[derive(Debug)]
struct Due {
    since: Instant,
    bytes: u64,
    taken: u64,
    received: u64,
    passed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckVerdict {
    /// Within its limits. `between_requests`: it is not in a request, and has received no part of one.
    Well { between_requests: bool },
    /// It had no request for too long.
    Idle,
    /// The head of a request takes too long; `begun`: a part of it was received.
    HeadLate { begun: bool },
    /// The peer takes none or too few of the bytes that wait for it.
    Stalled,
    /// It was instructed to end, and has not ended.
    Unheeded,
}

impl Seen {
    pub(in crate::server) fn new(now: Instant) -> Self {
        Self {
            requests: (0, 0),
            received: 0,
            sent: 0,
            asked: 0,
            held: 0,
            taken: 0,
            due: None,
            quiet: (now, 0),
            head: None,
            raised: None,
        }
    }

    /// Returns how long the connection has had no request.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        now.duration_since(self.quiet.0)
    }

    pub(in crate::server) fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether nothing has moved in a request since the last check, and nothing waits for the peer.
    pub(super) fn is_silent(&self, facts: &Facts) -> bool {
        let waits = facts.pulse.waits() || facts.held > 0 || facts.owes;
        facts.requests.1 > 0 && (self.received, self.sent) == (facts.pulse.received, facts.pulse.sent) && !waits
    }

    /// Returns whether the peer has taken too few of the waiting bytes for too long. `sent` is the number
    /// of bytes at the previous check.
    fn check_stall(&mut self, now: Instant, facts: &Facts, sent: u64, limits: &Limits) -> bool {
        let pulse = facts.pulse;
        let held = std::mem::replace(&mut self.held, facts.held) as u64;
        let asked = std::mem::replace(&mut self.asked, facts.asked) != facts.asked;
        // Progress is measured by bytes that leave the kernel, not by bytes that enter it: a large send buffer accepts
        // bytes only from time to time. A Unix socket reports memory, which may grow by more than the bytes sent.
        self.taken += (pulse.sent - sent + held).saturating_sub(facts.held as u64);
        let waits = facts.held as u64 + pulse.queued as u64 + u64::from(pulse.blocked);
        if pulse.paced || (waits == 0 && !facts.owes) {
            self.due = None;
            return false;
        }
        let (taken, rate) = (self.taken, limits.write_rate);
        if let Some(due) = &self.due {
            let met = match facts.owes {
                false => taken - due.taken >= due.bytes,
                // A peer may keep all windows closed but accept pings, and replies to its own pings.
                true => {
                    let pings = pulse.received - due.received + PING;
                    asked || facts.passed - due.passed >= rate || taken - due.taken >= rate.saturating_add(pings)
                }
            };
            if !met {
                return now.duration_since(due.since) >= limits.write_stall;
            }
        }
        // If few bytes are waiting, the peer cannot accept more than these.
        let bytes = waits.clamp(1, rate);
        self.due = Some(Box::new(Due { since: now, bytes, taken, received: pulse.received, passed: facts.passed }));
        false
    }

    pub(super) fn check(&mut self, now: Instant, facts: &Facts, limits: &Limits) -> CheckVerdict {
        let pulse = facts.pulse;
        let received = std::mem::replace(&mut self.received, pulse.received);
        let sent = std::mem::replace(&mut self.sent, pulse.sent);
        let has_sent = pulse.sent != sent;
        if self.check_stall(now, facts, sent, limits) {
            return CheckVerdict::Stalled;
        }

        let (begun, open) = facts.requests;
        let carries = facts.tunnel && (has_sent || pulse.received != received);
        if facts.ended || open > 0 || begun != self.requests.0 || pulse.waits() || carries {
            (self.requests, self.quiet, self.head, self.raised) = (facts.requests, (now, pulse.received), None, None);
            return CheckVerdict::Well { between_requests: false };
        }
        if std::mem::replace(&mut self.requests, facts.requests) != facts.requests {
            // The last response has ended since the last check. Until then, the end of its request may have arrived.
            self.quiet = (now, pulse.received);
        }
        if facts.phase > ShutdownPhase::Nothing {
            let (since, heard) = &mut **self.raised.get_or_insert_with(|| Box::new((now, now)));
            if has_sent {
                *heard = now;
            }
            let unheeded = now.duration_since(*heard) >= GRACE || now.duration_since(*since) >= limits.write_stall;
            return if unheeded { CheckVerdict::Unheeded } else { CheckVerdict::Well { between_requests: false } };
        }
        let (since, received) = self.quiet;
        let first = begun == 0;
        // A client may send an empty line after a request (RFC 9112 §2.2). It does not begin a head. The start of a
        // head that is no longer than such a line is limited by `keep_alive`.
        let line = if facts.handshake > 0 { SEALED_LINE } else { EMPTY_LINE };
        let spoke = match first {
            true => pulse.received > received.max(facts.handshake),
            false => pulse.received - received > line,
        };
        if first || (spoke && facts.protocol == Protocol::One) {
            let since = if first { since } else { **self.head.get_or_insert_with(|| Box::new(now)) };
            if now.duration_since(since) >= limits.head_time {
                return CheckVerdict::HeadLate { begun: spoke };
            }
        } else if now.duration_since(since) >= limits.keep_alive {
            return CheckVerdict::Idle;
        }
        // An HTTP/2 client may send something between requests: GOAWAY tells it which requests will be answered.
        CheckVerdict::Well { between_requests: !spoke || facts.protocol == Protocol::Two }
    }
}

#[cfg(test)]
mod tests;
