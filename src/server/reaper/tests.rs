//! When connections are told to finish by a server that drains.

use super::*;
use crate::net::CountedIo;

struct Case {
    _stream: CountedIo<tokio::io::Empty>,
    limits: Arc<Limits>,
    conn_state: Arc<ConnState>,
    entry: Entry,
    stage: Stage,
}

impl Case {
    /// A connection with a request, of a server that drains.
    fn new(protocol: Protocol) -> Self {
        let limits = Arc::new(Limits::default());
        let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
        let stream = CountedIo::new(tokio::io::empty());
        let conn_state = ConnState::new(Arc::clone(&limits), stream.handle(), permit);
        conn_state.speaks(protocol);
        conn_state.requests.begin();
        let now = Instant::now();
        let stage = Stage::Drains { since: now, deadline: now + Duration::from_secs(10) };
        let entry = Entry::new(Arc::clone(&conn_state), now);
        Self { _stream: stream, limits, conn_state, entry, stage }
    }

    /// Returns the phase after a check, `after` the one before.
    async fn phase(&mut self, after: Duration) -> ShutdownPhase {
        tokio::time::advance(after).await;
        self.entry.look(&self.limits, self.stage, TICK);
        self.conn_state.phase()
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_drains_waits_for_a_request_after_its_last_response() {
    let mut case = Case::new(Protocol::One);
    assert_eq!(case.phase(Duration::ZERO).await, ShutdownPhase::Nothing, "a response in progress");
    case.conn_state.requests.end();
    assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing, "it may have ended just now");
    // A further request comes, and is answered.
    case.conn_state.requests.begin();
    case.conn_state.requests.end();
    assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
    assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
    assert_eq!(case.phase(TICK).await, ShutdownPhase::Finish);
    // An HTTP/2 client is told at once.
    assert_eq!(Case::new(Protocol::Two).phase(Duration::ZERO).await, ShutdownPhase::Finish);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_rests_at_the_deadline_ends_in_order() {
    let mut case = Case::new(Protocol::One);
    assert_eq!(case.phase(Duration::ZERO).await, ShutdownPhase::Nothing);
    case.conn_state.requests.end();
    assert_eq!(case.phase(Duration::from_secs(10)).await, ShutdownPhase::Finish);
    assert_eq!(case.phase(TICK_MIN).await, ShutdownPhase::Abort, "it has not ended");
    let mut case = Case::new(Protocol::One);
    assert_eq!(case.phase(Duration::from_secs(10)).await, ShutdownPhase::Abort, "a response in progress");
}
