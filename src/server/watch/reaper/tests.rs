//! When connections are told to finish by a server that drains.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::net::{CountedIo, Handle, TcpListener};
use crate::server::connection::Hooks;

struct Case<S = CountedIo<tokio::io::Empty>> {
    stream: S,
    limits: Arc<Limits>,
    conn_state: Arc<ConnState>,
    entry: Entry,
    stage: Stage,
}

impl Case {
    /// A connection with a request, of a server that drains.
    fn new(protocol: Protocol) -> Self {
        let stream = CountedIo::new(tokio::io::empty());
        let handle = stream.handle();
        let mut case = Self::of(stream, handle);
        case.conn_state.set_protocol(protocol);
        case.conn_state.requests.begin();
        case.drain();
        case
    }
}

impl<S> Case<S> {
    fn of(stream: S, handle: Handle) -> Self {
        let limits = Arc::new(Limits::default());
        let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
        let conn_state = ConnState::new(Arc::clone(&limits), handle, permit);
        conn_state.set_protocol(Protocol::One);
        let entry = Entry::new(Arc::clone(&conn_state), Instant::now());
        Self { stream, limits, conn_state, entry, stage: Stage::Serves }
    }

    fn drain(&mut self) {
        let now = Instant::now();
        self.stage = Stage::Drains { since: now, deadline: now + Duration::from_secs(10) };
    }

    /// Returns the phase after a check, `after` the one before.
    async fn phase(&mut self, after: Duration) -> ShutdownPhase {
        tokio::time::advance(after).await;
        self.entry.check_limits(&self.limits, self.stage, TICK);
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

/// What a client has sent begins a head even before the server has read it.
#[tokio::test(start_paused = true)]
async fn bytes_that_the_server_has_not_read_are_no_silence_of_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for drains in [false, true] {
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let handle = stream.handle();
        let mut case = Case::of(stream, handle);
        client.write_all(b"G").await.unwrap();
        let head_time = case.limits.head_time;
        if drains {
            case.drain();
        } else {
            assert_eq!(case.phase(head_time).await, ShutdownPhase::Nothing);
        }
        for _ in 0..10 {
            assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
        }
        case.stream.read_exact(&mut [0]).await.unwrap();
        // With a part of a head a client gets an answer, without one its connection is closed.
        let expected = if drains { ShutdownPhase::Nothing } else { ShutdownPhase::TimedOut };
        assert_eq!(case.phase(TICK).await, expected);
    }
}

/// A tunnel is idle without a byte that its service takes: one that never reads is not kept for what its client has
/// sent.
#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_service_reads_nothing_is_idle() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let handle = stream.handle();
    let mut case = Case::of(stream, handle);
    case.conn_state.set_protocol(Protocol::Two);
    case.conn_state.requests.begin();
    case.conn_state.requests.end();
    case.conn_state.mark_tunnel();
    client.write_all(b"unread").await.unwrap();
    assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
    let keep_alive = case.limits.keep_alive;
    assert_eq!(case.phase(keep_alive).await, ShutdownPhase::Finish);
}

/// Short connections do not wait for the next check to be forgotten, except for those whose bytes are still to be sent.
#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_its_first_check_is_forgotten() {
    let limits = Limits::default();
    let protocols = Arc::new(Protocols::new(&limits, &Hooks::default(), true));
    let shared = ServerShared::new(limits, protocols, Arc::default());
    let cases = [0, 1].map(|_| {
        let stream = CountedIo::new(tokio::io::empty());
        let handle = stream.handle();
        Case::of(stream, handle)
    });
    let [first, second] = &cases;
    let (ends, runs) = (shared.enter(&first.conn_state), shared.enter(&second.conn_state));
    drop(ends);
    let new = lock(&shared.state).new.values().cloned().collect::<Vec<_>>();
    assert!(matches!(&new[..], [left] if Arc::ptr_eq(left, &second.conn_state)), "{new:?}");
    // A tunnel is open until its socket is closed.
    second.conn_state.mark_tunnel();
    drop(runs);
    assert_eq!(lock(&shared.state).new.len(), 1);
}
