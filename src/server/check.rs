//! Decides which limit a connection has exceeded, from previous and current observations.

use std::time::Duration;

use tokio::time::Instant;

use super::conn_state::{Protocol, ShutdownPhase};
use super::limits::Limits;
use crate::net::Pulse;

/// Time for a connection to finish, or to send something, after the instruction to finish.
const GRACE: Duration = Duration::from_millis(400);

/// Bytes of a PING frame sent by the server, with room for the framing of TLS.
const PING: u64 = 64;

/// Observations of a connection at one moment. The fields of [`ConnState`](super::conn_state::ConnState) explain them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) protocol: Protocol,
    pub(super) tunnel: bool,
    pub(super) ended: bool,
    pub(super) phase: ShutdownPhase,
    pub(super) requests: (u32, u32),
    /// Whether a response over HTTP/2 waits for the peer to open a window.
    pub(super) owes: bool,
    /// Wraps around.
    pub(super) asked: u32,
    pub(super) passed: u64,
    pub(super) pulse: Pulse,
    /// Bytes that the kernel took and the peer did not acknowledge.
    pub(super) held: usize,
}

/// Previous observations of a connection.
#[derive(Debug)]
pub(super) struct Seen {
    requests: u32,
    pulse: Pulse,
    asked: u32,
    held: usize,
    /// Bytes that the peer has taken.
    taken: u64,
    /// Bytes that the peer has to take next, if any wait for it. Boxed, because few connections have it.
    due: Option<Box<Due>>,
    /// Instant since which it has had no request, and bytes received by then.
    quiet: (Instant, u64),
    /// Instant since which it has held a part of a head.
    head: Option<Instant>,
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
pub(super) enum Verdict {
    /// Within its limits. `rests`: it is not in a request, and has received no part of one.
    Well { rests: bool },
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
    pub(super) fn new(now: Instant) -> Self {
        Self {
            requests: 0,
            pulse: Pulse::default(),
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

    pub(super) fn received(&self) -> u64 {
        self.pulse.received
    }

    /// Returns whether the peer has taken too few of the waiting bytes for too long. `before` is the previous pulse.
    fn is_stalled(&mut self, now: Instant, facts: &Facts, before: Pulse, limits: &Limits) -> bool {
        let pulse = facts.pulse;
        let held = std::mem::replace(&mut self.held, facts.held) as u64;
        let asked = std::mem::replace(&mut self.asked, facts.asked) != facts.asked;
        // Progress is bytes that leave the kernel, not bytes that enter it: a large send buffer accepts more only now
        // and then. A Unix socket reports memory, which may grow by more than the bytes sent.
        self.taken += (pulse.sent - before.sent + held).saturating_sub(facts.held as u64);
        let waits = facts.held as u64 + pulse.queued as u64 + u64::from(pulse.blocked);
        if pulse.paced || (waits == 0 && !facts.owes) {
            self.due = None;
            return false;
        }
        let (taken, rate) = (self.taken, limits.write_rate);
        if let Some(due) = &self.due {
            let met = match facts.owes {
                false => taken - due.taken >= due.bytes,
                // A peer may keep all windows closed and take pings, and replies of the same length to its own.
                true => {
                    let pings = pulse.received - due.received + PING;
                    asked || facts.passed - due.passed >= rate || taken - due.taken >= rate.saturating_add(pings)
                }
            };
            if !met {
                return now.duration_since(due.since) >= limits.write_stall;
            }
        }
        // If few bytes wait, the peer can take no more than all of them.
        let bytes = waits.clamp(1, rate);
        self.due = Some(Box::new(Due { since: now, bytes, taken, received: pulse.received, passed: facts.passed }));
        false
    }

    pub(super) fn check(&mut self, now: Instant, facts: &Facts, limits: &Limits) -> Verdict {
        let (before, pulse) = (std::mem::replace(&mut self.pulse, facts.pulse), facts.pulse);
        let has_sent = pulse.sent != before.sent;
        if self.is_stalled(now, facts, before, limits) {
            return Verdict::Stalled;
        }

        let (begun, open) = facts.requests;
        let carries = facts.tunnel && (has_sent || pulse.received != before.received);
        if facts.ended || open > 0 || begun != self.requests || pulse.waits() || carries {
            (self.requests, self.quiet, self.head, self.raised) = (begun, (now, pulse.received), None, None);
            return Verdict::Well { rests: false };
        }
        if facts.phase > ShutdownPhase::Nothing {
            let (since, heard) = &mut **self.raised.get_or_insert_with(|| Box::new((now, now)));
            if has_sent {
                *heard = now;
            }
            let unheeded = now.duration_since(*heard) >= GRACE || now.duration_since(*since) >= limits.write_stall;
            return if unheeded { Verdict::Unheeded } else { Verdict::Well { rests: false } };
        }
        let (since, received) = self.quiet;
        let (spoke, first) = (pulse.received != received, begun == 0);
        if first || (spoke && facts.protocol == Protocol::One) {
            let since = if first { since } else { *self.head.get_or_insert(now) };
            if now.duration_since(since) >= limits.head_time {
                return Verdict::HeadLate { begun: spoke };
            }
        } else if now.duration_since(since) >= limits.keep_alive {
            return Verdict::Idle;
        }
        // GOAWAY informs an HTTP/2 client that sends something between requests which requests will be answered.
        Verdict::Well { rests: !spoke || facts.protocol == Protocol::Two }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Verdict = Verdict::Well { rests: false };
    const RESTS: Verdict = Verdict::Well { rests: true };

    struct Case {
        seen: Seen,
        start: Instant,
        facts: Facts,
        limits: Limits,
    }

    impl Case {
        fn new(protocol: Protocol) -> Self {
            let start = Instant::now();
            let facts = Facts {
                protocol,
                tunnel: false,
                ended: false,
                phase: ShutdownPhase::Nothing,
                requests: (0, 0),
                owes: false,
                asked: 0,
                passed: 0,
                pulse: Pulse::default(),
                held: 0,
            };
            let limits = Limits::default().keep_alive(Duration::from_secs(60));
            Self { seen: Seen::new(start), start, facts, limits }
        }

        fn at(&mut self, seconds: f32) -> Verdict {
            self.seen.check(self.start + Duration::from_secs_f32(seconds), &self.facts, &self.limits)
        }
    }

    #[test]
    fn the_first_request_has_its_time_from_connecting() {
        for protocol in [Protocol::Unknown, Protocol::One, Protocol::Two] {
            let mut case = Case::new(protocol);
            assert_eq!(case.at(9.9), RESTS);
            assert_eq!(case.at(10.0), Verdict::HeadLate { begun: false });
        }
        // A byte now and then does not extend the time.
        let mut case = Case::new(Protocol::One);
        for second in 1..10 {
            case.facts.pulse.received += 1;
            assert_eq!(case.at(second as f32), WELL);
        }
        assert_eq!(case.at(10.0), Verdict::HeadLate { begun: true });
    }

    #[test]
    fn later_heads_have_their_time_from_their_first_byte_and_none_at_all_is_idle() {
        let mut case = Case::new(Protocol::One);
        (case.facts.requests, case.facts.pulse.received) = ((1, 1), 100);
        assert_eq!(case.at(500.0), WELL, "a slow answer");
        case.facts.requests = (1, 0);
        assert_eq!(case.at(501.0), RESTS);
        assert_eq!(case.at(559.9), RESTS);
        case.facts.pulse.received += 1;
        assert_eq!(case.at(560.0), WELL);
        assert_eq!(case.at(569.9), WELL);
        assert_eq!(case.at(570.0), Verdict::HeadLate { begun: true });

        let mut case = Case::new(Protocol::One);
        // The request came and went between two checks.
        case.facts.requests = (1, 0);
        assert_eq!(case.at(5.0), WELL);
        assert_eq!(case.at(64.9), RESTS);
        assert_eq!(case.at(65.0), Verdict::Idle);

        let mut case = Case::new(Protocol::Two);
        case.facts.requests = (1, 0);
        assert_eq!(case.at(0.0), WELL);
        for second in 1..60 {
            // Pings, and the replies of the server.
            (case.facts.pulse.received, case.facts.pulse.sent) = (second, second);
            assert_eq!(case.at(second as f32), RESTS);
        }
        assert_eq!(case.at(60.0), Verdict::Idle);
        // Idleness of a tunnel is measured by its bytes.
        case.facts.tunnel = true;
        case.facts.pulse.received += 1;
        assert_eq!(case.at(61.0), WELL);
        assert_eq!(case.at(121.0), Verdict::Idle);
    }

    #[test]
    fn a_peer_that_takes_too_little_is_noticed_and_a_peer_that_has_little_to_take_is_not() {
        let mut case = Case::new(Protocol::One);
        case.facts.requests = (1, 1);
        assert_eq!(case.at(100.0), WELL);
        // The window begins with the first check that sees waiting bytes.
        (case.facts.pulse.sent, case.facts.held, case.facts.pulse.queued) = (50_000, 50_000, 1000);
        assert_eq!(case.at(101.0), WELL);
        assert_eq!(case.at(130.9), WELL);
        // 8 KiB in 30 s are enough, and a byte less is not.
        case.facts.held -= 8 << 10;
        assert_eq!(case.at(130.95), WELL);
        case.facts.held -= (8 << 10) - 1;
        assert_eq!(case.at(160.9), WELL);
        assert_eq!(case.at(161.0), Verdict::Stalled);
        // Also after the stream was handed over.
        case.facts.ended = true;
        assert_eq!(case.at(161.0), Verdict::Stalled);
        // Bytes that the kernel accepts are not yet taken by the peer.
        (case.facts.pulse.sent, case.facts.held) = (case.facts.pulse.sent + 20_000, case.facts.held + 20_000);
        assert_eq!(case.at(161.1), Verdict::Stalled);
        case.facts.held -= 1;
        assert_eq!(case.at(161.2), WELL, "8 KiB in all");
    }

    #[test]
    fn all_of_what_waits_is_enough_however_little_it_is() {
        // An event stream whose events are in flight at every check.
        let mut case = Case::new(Protocol::One);
        case.facts.requests = (1, 1);
        for second in 0..200 {
            (case.facts.pulse.sent, case.facts.held) = (20 * second + 20, 20);
            assert_eq!(case.at(second as f32), WELL);
        }
        // A peer that is gone acknowledges nothing.
        for second in 200..229 {
            assert_eq!(case.at(second as f32), WELL);
        }
        assert_eq!(case.at(229.0), Verdict::Stalled);
        // A quiet stream has no bytes to deliver.
        case.facts.held = 0;
        assert_eq!(case.at(231.0), WELL);
        assert_eq!(case.at(1000.0), WELL);
    }

    #[test]
    fn memory_of_a_unix_socket_is_no_progress_by_itself_and_no_debt() {
        let mut case = Case::new(Protocol::One);
        (case.facts.requests, case.facts.pulse.blocked) = ((1, 1), true);
        // Small writes take more memory than their bytes.
        (case.facts.pulse.sent, case.facts.held) = (20_000, 200_000);
        assert_eq!(case.at(0.0), WELL);
        assert_eq!(case.at(29.9), WELL);
        // The peer reads some, and as much memory is filled again.
        case.facts.pulse.sent += 10_000;
        assert_eq!(case.at(29.95), WELL);
        assert_eq!(case.at(59.9), WELL);
        assert_eq!(case.at(59.95), Verdict::Stalled);
    }

    #[test]
    fn a_peer_that_opens_no_window_is_noticed() {
        let mut case = Case::new(Protocol::Two);
        (case.facts.requests, case.facts.owes) = ((1, 1), true);
        assert_eq!(case.at(0.0), WELL);
        case.facts.asked += 1;
        assert_eq!(case.at(29.9), WELL);
        assert_eq!(case.at(59.8), WELL);
        assert_eq!(case.at(59.9), Verdict::Stalled);
        // A long last frame continues while another request brings more bytes than that.
        case.facts.passed += 8 << 10;
        for second in 60..200 {
            case.facts.passed += 1000;
            case.facts.pulse.received += 100_000;
            assert_eq!(case.at(second as f32), WELL);
        }
    }

    #[test]
    fn pings_take_nothing_of_an_answer() {
        let mut case = Case::new(Protocol::Two);
        (case.facts.requests, case.facts.owes) = ((1, 1), true);
        for second in 0..30 {
            // A second passes before the reply to a ping is acknowledged.
            (case.facts.pulse.received, case.facts.pulse.sent) = (second * 17_000, second * 17_000);
            case.facts.held = 17_000;
            assert_eq!(case.at(second as f32), WELL);
        }
        assert_eq!(case.at(30.0), Verdict::Stalled);
        // More bytes were taken than received.
        (case.facts.pulse.sent, case.facts.held) = (case.facts.pulse.sent + 20_000, 11_000);
        assert_eq!(case.at(30.05), WELL);
    }

    #[test]
    fn who_waits_for_our_own_rate_is_not_to_blame() {
        for owes in [false, true] {
            let mut case = Case::new(Protocol::Two);
            (case.facts.requests, case.facts.owes) = ((1, 1), owes);
            (case.facts.pulse.queued, case.facts.pulse.paced) = (1, true);
            assert_eq!(case.at(0.0), WELL);
            assert_eq!(case.at(1000.0), WELL);
            case.facts.pulse.paced = false;
            assert_eq!(case.at(1000.1), WELL);
            assert_eq!(case.at(1030.0), WELL);
            assert_eq!(case.at(1030.1), Verdict::Stalled);
        }
    }

    #[test]
    fn who_was_told_to_end_has_a_moment_and_as_long_as_it_sends() {
        let mut case = Case::new(Protocol::Two);
        (case.facts.requests, case.facts.phase) = ((1, 0), ShutdownPhase::Finish);
        assert_eq!(case.at(1.0), WELL);
        assert_eq!(case.at(1.1), WELL);
        assert_eq!(case.at(1.4), WELL);
        case.facts.pulse.sent += 1;
        assert_eq!(case.at(1.5), WELL);
        assert_eq!(case.at(1.8), WELL);
        // It has sent a request after all.
        case.facts.requests = (2, 1);
        assert_eq!(case.at(100.0), WELL);
        case.facts.requests = (2, 0);
        assert_eq!(case.at(100.1), WELL);
        assert_eq!(case.at(100.4), WELL);
        assert_eq!(case.at(100.5), Verdict::Unheeded);
        let mut case = Case::new(Protocol::Two);
        case.facts.phase = ShutdownPhase::Finish;
        for tenth in 0..300 {
            case.facts.pulse.sent += 1;
            assert_eq!(case.at(tenth as f32 / 10.0), WELL);
        }
        case.facts.pulse.sent += 1;
        assert_eq!(case.at(30.1), Verdict::Unheeded, "not forever");
    }
}
