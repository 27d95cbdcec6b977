//! Verdicts about connections, from made-up observations.

use super::*;

const WELL: CheckVerdict = CheckVerdict::Well { between_requests: false };
const BETWEEN_REQUESTS: CheckVerdict = CheckVerdict::Well { between_requests: true };

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
            handshake: 0,
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

    fn at(&mut self, seconds: f32) -> CheckVerdict {
        self.seen.check(self.start + Duration::from_secs_f32(seconds), &self.facts, &self.limits)
    }
}

#[test]
fn the_first_request_has_its_time_from_connecting() {
    for protocol in [Protocol::Unknown, Protocol::One, Protocol::Two] {
        let mut case = Case::new(protocol);
        assert_eq!(case.at(9.9), BETWEEN_REQUESTS);
        assert_eq!(case.at(10.0), CheckVerdict::HeadLate { begun: false });
    }
    // A byte now and then does not extend the time.
    let mut case = Case::new(Protocol::One);
    for second in 1..10 {
        case.facts.pulse.received += 1;
        assert_eq!(case.at(second as f32), WELL);
    }
    assert_eq!(case.at(10.0), CheckVerdict::HeadLate { begun: true });
}

#[test]
fn a_handshake_begins_no_request_once_it_has_ended() {
    let mut case = Case::new(Protocol::Unknown);
    case.facts.pulse.received = 300;
    assert_eq!(case.at(1.0), WELL, "a handshake");
    (case.facts.handshake, case.facts.pulse.received) = (400, 400);
    assert_eq!(case.at(2.0), BETWEEN_REQUESTS);
    assert_eq!(case.at(10.0), CheckVerdict::HeadLate { begun: false });
    case.facts.pulse.received += 1;
    assert_eq!(case.at(10.1), CheckVerdict::HeadLate { begun: true });
}

#[test]
fn the_end_of_a_request_that_arrives_with_the_end_of_its_response_begins_no_head() {
    let mut case = Case::new(Protocol::One);
    (case.facts.requests, case.facts.pulse.received) = ((1, 1), 100);
    assert_eq!(case.at(1.0), WELL, "a body that arrives");
    (case.facts.requests, case.facts.pulse.received) = ((1, 0), 150);
    assert_eq!(case.at(1.25), BETWEEN_REQUESTS, "the rest of it has arrived, and the response has ended");
    assert_eq!(case.at(60.0), BETWEEN_REQUESTS, "not a head that is late");
    assert_eq!(case.at(61.25), CheckVerdict::Idle);
    case.facts.pulse.received += 3;
    assert_eq!(case.at(61.3), WELL, "a head");
}

#[test]
fn later_heads_have_their_time_from_their_first_byte_and_none_at_all_is_idle() {
    let mut case = Case::new(Protocol::One);
    (case.facts.requests, case.facts.pulse.received) = ((1, 1), 100);
    assert_eq!(case.at(500.0), WELL, "a slow answer");
    case.facts.requests = (1, 0);
    assert_eq!(case.at(501.0), BETWEEN_REQUESTS);
    assert_eq!(case.at(559.9), BETWEEN_REQUESTS);
    case.facts.pulse.received += 3;
    assert_eq!(case.at(560.0), WELL);
    assert_eq!(case.at(569.9), WELL);
    assert_eq!(case.at(570.0), CheckVerdict::HeadLate { begun: true });

    let mut case = Case::new(Protocol::One);
    // The request came and went between two checks.
    case.facts.requests = (1, 0);
    assert_eq!(case.at(5.0), WELL);
    assert_eq!(case.at(64.9), BETWEEN_REQUESTS);
    assert_eq!(case.at(65.0), CheckVerdict::Idle);

    let mut case = Case::new(Protocol::Two);
    case.facts.requests = (1, 0);
    assert_eq!(case.at(0.0), WELL);
    for second in 1..60 {
        // Pings, and the replies of the server.
        (case.facts.pulse.received, case.facts.pulse.sent) = (second, second);
        assert_eq!(case.at(second as f32), BETWEEN_REQUESTS);
    }
    assert_eq!(case.at(60.0), CheckVerdict::Idle);
    // Idleness of a tunnel is measured by its bytes.
    case.facts.tunnel = true;
    case.facts.pulse.received += 1;
    assert_eq!(case.at(61.0), WELL);
    assert_eq!(case.at(121.0), CheckVerdict::Idle);
}

#[test]
fn the_time_without_a_request_begins_at_the_end_of_a_response_and_never_before() {
    for protocol in [Protocol::One, Protocol::Two] {
        let mut case = Case::new(protocol);
        case.facts.requests = (1, 1);
        assert_eq!(case.at(100.0), WELL);
        // It ended just before this check.
        case.facts.requests = (1, 0);
        assert_eq!(case.at(100.75), BETWEEN_REQUESTS);
        assert_eq!(case.at(160.7), BETWEEN_REQUESTS);
        assert_eq!(case.at(160.75), CheckVerdict::Idle);
    }
}

#[test]
fn a_response_is_silent_if_nothing_moves_and_nothing_waits_for_the_peer() {
    let mut case = Case::new(Protocol::One);
    (case.facts.requests, case.facts.pulse.sent) = ((1, 1), 100);
    assert!(!case.seen.is_silent(&case.facts), "it has sent its head");
    assert_eq!(case.at(1.0), WELL);
    assert!(case.seen.is_silent(&case.facts));
    let moves: [fn(&mut Facts); 6] = [
        |facts| facts.pulse.sent += 1,
        |facts| facts.pulse.received += 1,
        |facts| facts.pulse.queued += 1,
        |facts| facts.held += 1,
        |facts| facts.owes = true,
        |facts| facts.requests.1 = 0,
    ];
    for change in moves {
        let mut facts = case.facts;
        change(&mut facts);
        assert!(!case.seen.is_silent(&facts), "{facts:?}");
    }
}

#[test]
fn an_empty_line_between_requests_is_no_head() {
    for (handshake, line) in [(0, 2), (50, 24), (50, 31)] {
        let mut case = Case::new(Protocol::One);
        (case.facts.requests, case.facts.pulse.received, case.facts.handshake) = ((1, 0), 100, handshake);
        assert_eq!(case.at(0.0), WELL);
        case.facts.pulse.received += line;
        assert_eq!(case.at(1.0), BETWEEN_REQUESTS);
        assert_eq!(case.at(59.9), BETWEEN_REQUESTS);
        assert_eq!(case.at(60.0), CheckVerdict::Idle);
    }
    for (handshake, head) in [(0, 3), (50, 32)] {
        let mut case = Case::new(Protocol::One);
        (case.facts.requests, case.facts.pulse.received, case.facts.handshake) = ((1, 0), 100, handshake);
        assert_eq!(case.at(0.0), WELL);
        case.facts.pulse.received += head;
        assert_eq!(case.at(1.0), WELL);
        assert_eq!(case.at(11.0), CheckVerdict::HeadLate { begun: true });
    }
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
    assert_eq!(case.at(161.0), CheckVerdict::Stalled);
    // Also after the stream was handed over.
    case.facts.ended = true;
    assert_eq!(case.at(161.0), CheckVerdict::Stalled);
    // Bytes that the kernel accepts are not yet taken by the peer.
    (case.facts.pulse.sent, case.facts.held) = (case.facts.pulse.sent + 20_000, case.facts.held + 20_000);
    assert_eq!(case.at(161.1), CheckVerdict::Stalled);
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
    assert_eq!(case.at(229.0), CheckVerdict::Stalled);
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
    assert_eq!(case.at(59.95), CheckVerdict::Stalled);
}

#[test]
fn a_peer_that_opens_no_window_is_noticed() {
    let mut case = Case::new(Protocol::Two);
    (case.facts.requests, case.facts.owes) = ((1, 1), true);
    assert_eq!(case.at(0.0), WELL);
    case.facts.asked += 1;
    assert_eq!(case.at(29.9), WELL);
    assert_eq!(case.at(59.8), WELL);
    assert_eq!(case.at(59.9), CheckVerdict::Stalled);
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
    assert_eq!(case.at(30.0), CheckVerdict::Stalled);
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
        assert_eq!(case.at(1030.1), CheckVerdict::Stalled);
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
    assert_eq!(case.at(100.5), CheckVerdict::Unheeded);
    let mut case = Case::new(Protocol::Two);
    case.facts.phase = ShutdownPhase::Finish;
    for tenth in 0..300 {
        case.facts.pulse.sent += 1;
        assert_eq!(case.at(tenth as f32 / 10.0), WELL);
    }
    case.facts.pulse.sent += 1;
    assert_eq!(case.at(30.1), CheckVerdict::Unheeded, "not forever");
}
