//! Which limit a connection has passed, by what was seen of it before and is seen now.

use std::time::Duration;

use tokio::time::Instant;

use super::limits::Limits;
use super::watch::{Protocol, Told};
use crate::net::Pulse;

/// Time for a connection that was told to finish, to do so or at least to be sending something.
const FAREWELL: Duration = Duration::from_millis(400);

/// What is known of a connection at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) protocol: Protocol,
    /// It carries something else than requests.
    pub(super) tunnel: bool,
    /// HTTP is done with it: it was handed over, or is being closed.
    pub(super) ended: bool,
    pub(super) told: Told,
    /// Requests so far, and those of them that are not answered to the end.
    pub(super) requests: (u32, u32),
    /// An answer waits for the peer to open a window.
    pub(super) owes: bool,
    /// Frames that answers were asked for because they may send, as far as `u32` counts them.
    pub(super) asked: u32,
    pub(super) pulse: Pulse,
    /// Of what the kernel took, what the peer has not taken from it. Asked for where more waits.
    pub(super) unacknowledged: Option<usize>,
}

/// What was seen of a connection.
#[derive(Debug)]
pub(super) struct Seen {
    requests: u32,
    pulse: Pulse,
    asked: u32,
    unacknowledged: Option<usize>,
    /// Since when it has no request, and what it had received by then.
    quiet: (Instant, u64),
    /// Since when it has a part of a head.
    head: Option<Instant>,
    /// When something was sent, or nothing was there to be sent.
    moved: Instant,
    /// Since when it was told to end, and when it last sent something since.
    told: Option<(Instant, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Within its limits. `rests`: it is not in a request, and has received nothing of one.
    Well { rests: bool },
    /// No request for too long.
    Idle,
    /// The head of a request takes too long; `begun`: something has come of it.
    HeadLate { begun: bool },
    /// The peer takes nothing.
    Stalled,
    /// It was told to end, and has not.
    Unheeded,
}

impl Seen {
    /// A connection that was just accepted.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            requests: 0,
            pulse: Pulse::default(),
            asked: 0,
            unacknowledged: None,
            quiet: (now, 0),
            head: None,
            moved: now,
            told: None,
        }
    }

    pub(super) fn judge(&mut self, now: Instant, facts: &Facts, limits: &Limits) -> Verdict {
        let (before, pulse) = (std::mem::replace(&mut self.pulse, facts.pulse), facts.pulse);
        let has_sent = pulse.sent != before.sent;
        // The kernel may hold so much that it asks for no more for long, while the peer takes some of it.
        let held = std::mem::replace(&mut self.unacknowledged, facts.unacknowledged);
        let taken = held != facts.unacknowledged;
        let asked = std::mem::replace(&mut self.asked, facts.asked) != facts.asked;
        let moves = match (pulse.paced, pulse.waits, facts.owes) {
            (true, ..) | (_, false, false) => true,
            (_, true, false) => has_sent || taken,
            // What the peer opens no window for is no further for the answers to its pings, which are as long as those
            // and may be what waits at this moment.
            (.., true) => {
                let echoed = pulse.sent - before.sent <= pulse.received - before.received;
                let drained = taken && !has_sent && held.is_some() && facts.unacknowledged.is_some();
                asked || !echoed || drained
            }
        };
        if moves {
            self.moved = now;
        } else if now.duration_since(self.moved) >= limits.write_stall {
            return Verdict::Stalled;
        }

        let (begun, open) = facts.requests;
        let carries = facts.tunnel && (has_sent || pulse.received != before.received);
        if facts.ended || open > 0 || begun != self.requests || pulse.waits || carries {
            (self.requests, self.quiet, self.head, self.told) = (begun, (now, pulse.received), None, None);
            return Verdict::Well { rests: false };
        }
        if facts.told > Told::Nothing {
            let (since, heard) = self.told.get_or_insert((now, now));
            if has_sent {
                *heard = now;
            }
            let unheeded = now.duration_since(*heard) >= FAREWELL || now.duration_since(*since) >= limits.write_stall;
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
        // Whatever a client of HTTP/2 sends between requests, it can be told which of them will be answered.
        Verdict::Well { rests: !spoke || facts.protocol == Protocol::Two }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Verdict = Verdict::Well { rests: false };
    const RESTS: Verdict = Verdict::Well { rests: true };

    /// A connection, and the time in seconds.
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
                told: Told::Nothing,
                requests: (0, 0),
                owes: false,
                asked: 0,
                pulse: Pulse::default(),
                unacknowledged: None,
            };
            Self { seen: Seen::new(start), start, facts, limits: Limits::default() }
        }

        fn at(&mut self, seconds: f32) -> Verdict {
            self.seen.judge(self.start + Duration::from_secs_f32(seconds), &self.facts, &self.limits)
        }
    }

    #[test]
    fn the_first_request_has_its_time_from_connecting() {
        for protocol in [Protocol::Unknown, Protocol::One, Protocol::Two] {
            let mut case = Case::new(protocol);
            assert_eq!(case.at(9.9), RESTS);
            assert_eq!(case.at(10.0), Verdict::HeadLate { begun: false });
        }
        // A byte now and then does not prolong it.
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
        // Come and gone between two looks.
        case.facts.requests = (1, 0);
        assert_eq!(case.at(5.0), WELL);
        assert_eq!(case.at(64.9), RESTS);
        assert_eq!(case.at(65.0), Verdict::Idle);

        let mut case = Case::new(Protocol::Two);
        case.facts.requests = (1, 0);
        assert_eq!(case.at(0.0), WELL);
        for second in 1..60 {
            // Pings, and our answers.
            (case.facts.pulse.received, case.facts.pulse.sent) = (second, second);
            assert_eq!(case.at(second as f32), RESTS);
        }
        assert_eq!(case.at(60.0), Verdict::Idle);
        // A tunnel is idle by its bytes.
        case.facts.tunnel = true;
        case.facts.pulse.received += 1;
        assert_eq!(case.at(61.0), WELL);
        assert_eq!(case.at(121.0), Verdict::Idle);
    }

    #[test]
    fn a_peer_that_takes_nothing_is_noticed_and_one_that_has_nothing_to_take_is_not() {
        for stall in 0..2 {
            let mut case = Case::new(Protocol::Two);
            case.facts.requests = (1, 1);
            assert_eq!(case.at(100.0), WELL);
            match stall {
                0 => case.facts.pulse.waits = true,
                _ => case.facts.owes = true,
            }
            assert_eq!(case.at(101.0), WELL);
            assert_eq!(case.at(129.9), WELL);
            case.facts.pulse.sent += 1;
            assert_eq!(case.at(120.0), WELL);
            match stall {
                0 => case.facts.unacknowledged = Some(1),
                _ => case.facts.asked += 1,
            }
            assert_eq!(case.at(129.95), WELL, "{stall}");
            assert_eq!(case.at(159.9), WELL);
            assert_eq!(case.at(159.95), Verdict::Stalled);
            // Also when somebody else has the stream.
            case.facts.ended = true;
            assert_eq!(case.at(160.0), Verdict::Stalled);
        }
    }

    #[test]
    fn pings_take_nothing_of_an_answer() {
        let mut case = Case::new(Protocol::Two);
        (case.facts.requests, case.facts.owes) = ((1, 1), true);
        for second in 0..30 {
            (case.facts.pulse.received, case.facts.pulse.sent) = (second * 17, second * 17);
            // An answer to one may just wait to be sent.
            case.facts.pulse.waits = second % 3 == 2;
            case.facts.unacknowledged = case.facts.pulse.waits.then_some(second as usize);
            assert_eq!(case.at(second as f32), WELL);
        }
        assert_eq!(case.at(30.0), Verdict::Stalled);
        // What the kernel holds is taken while nothing is sent.
        case.facts.pulse.waits = true;
        for held in [5000, 4000] {
            case.facts.unacknowledged = Some(held);
            case.at(30.05);
        }
        assert_eq!(case.at(60.0), WELL);
        assert_eq!(case.at(60.05), Verdict::Stalled);
        // A frame of an answer that goes on is more than what asked for it.
        (case.facts.pulse.received, case.facts.pulse.sent) = (1000, 1100);
        assert_eq!(case.at(60.1), WELL);
    }

    #[test]
    fn who_waits_for_our_own_rate_is_not_to_blame() {
        for owes in [false, true] {
            let mut case = Case::new(Protocol::Two);
            (case.facts.requests, case.facts.owes) = ((1, 1), owes);
            (case.facts.pulse.waits, case.facts.pulse.paced) = (true, true);
            assert_eq!(case.at(0.0), WELL);
            assert_eq!(case.at(1000.0), WELL);
            case.facts.pulse.paced = false;
            assert_eq!(case.at(1029.9), WELL);
            assert_eq!(case.at(1030.0), Verdict::Stalled);
        }
    }

    #[test]
    fn who_was_told_to_end_has_a_moment_and_as_long_as_it_sends() {
        let mut case = Case::new(Protocol::Two);
        (case.facts.requests, case.facts.told) = ((1, 0), Told::Finish);
        assert_eq!(case.at(1.0), WELL);
        assert_eq!(case.at(1.1), WELL);
        assert_eq!(case.at(1.4), WELL);
        case.facts.pulse.sent += 1;
        assert_eq!(case.at(1.5), WELL);
        assert_eq!(case.at(1.8), WELL);
        // It has brought a request after all.
        case.facts.requests = (2, 1);
        assert_eq!(case.at(100.0), WELL);
        case.facts.requests = (2, 0);
        assert_eq!(case.at(100.1), WELL);
        assert_eq!(case.at(100.4), WELL);
        assert_eq!(case.at(100.5), Verdict::Unheeded);
        let mut case = Case::new(Protocol::Two);
        case.facts.told = Told::Finish;
        for tenth in 0..300 {
            case.facts.pulse.sent += 1;
            assert_eq!(case.at(tenth as f32 / 10.0), WELL);
        }
        case.facts.pulse.sent += 1;
        assert_eq!(case.at(30.1), Verdict::Unheeded, "not forever");
    }
}
