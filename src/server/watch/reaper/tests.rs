//! When connections are told to finish by a server that drains.

use std::fmt;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::super::trim::TRIM_AFTER;
use super::*;
use crate::net::stream::SocketFacts;
use crate::net::{CountedIo, Handle, Leaving, TcpListener};
use crate::server::connection::Hooks;
use crate::server::state::{Peer, Protocol, ShutdownPhase, Wait};

mod drains;

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

impl Case {
    fn with(stream: CountedIo<tokio::io::Empty>, limits: Limits) -> Self {
        let handle = stream.handle();
        Self::limited(stream, handle, limits)
    }
}

impl<S> Case<S> {
    fn of(stream: S, handle: Handle) -> Self {
        Self::limited(stream, handle, Limits::default())
    }

    fn limited(stream: S, handle: Handle, limits: Limits) -> Self {
        let limits = Arc::new(limits);
        let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
        let conn_state = ConnState::new(Arc::clone(&limits), handle, Peer::default(), permit);
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
        self.entry.check_limits(&self.limits, usize::MAX, self.stage, TICK);
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

/// Bytes of a client begin a head even before the server has read them.
#[tokio::test(start_paused = true)]
#[cfg_attr(portable, ignore = "the length of the receive queue is not known")]
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

fn shared(limits: Limits) -> Arc<ServerShared> {
    let protocols = Arc::new(Protocols::new(&limits, &Hooks::default(), true));
    ServerShared::new(limits, protocols, Arc::default(), None)
}

fn empty_case() -> Case {
    let stream = CountedIo::new(tokio::io::empty());
    let handle = stream.handle();
    Case::of(stream, handle)
}

/// Short connections do not wait for the next check to be forgotten, except for those whose bytes are still to be sent.
#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_its_first_check_is_forgotten() {
    let shared = shared(Limits::default());
    let (first, second) = (empty_case(), empty_case());
    let (ends, runs) = (shared.enter(&first.conn_state), shared.enter(&second.conn_state));
    drop(ends);
    let new = lock(&shared.state).new.values().cloned().collect::<Vec<_>>();
    assert!(matches!(&new[..], [left] if Arc::ptr_eq(left, &second.conn_state)), "{new:?}");
    // A tunnel is open until its socket is closed.
    second.conn_state.mark_tunnel();
    drop(runs);
    assert_eq!(lock(&shared.state).new.len(), 1);
}

/// A burst of short connections leaves memory to return, as one of connections that rest.
#[tokio::test(start_paused = true)]
async fn connections_that_end_before_their_first_check_count_as_a_burst() {
    let shared = shared(Limits::default());
    let (mut entries, mut trim) = (Vec::new(), Trim::new(true));
    for _ in 1..TRIM_AFTER {
        drop(shared.enter(&empty_case().conn_state));
    }
    shared.take_new(&mut entries, &mut trim);
    assert!(!trim.is_pending());
    drop(shared.enter(&empty_case().conn_state));
    shared.take_new(&mut entries, &mut trim);
    assert!(trim.is_pending());
    assert!(entries.is_empty());
}

/// Thousands of connections that rest cost little, and a limit is late by a second at most.
#[tokio::test(start_paused = true)]
async fn a_connection_that_rests_is_checked_less_often() {
    let mut case = empty_case();
    case.conn_state.requests.begin();
    case.conn_state.requests.end();
    for _ in 0..4 {
        assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
        assert!(!case.entry.skips(), "it rests only now");
    }
    case.phase(TICK).await;
    assert!(case.entry.skips() && case.entry.skips() && !case.entry.skips());

    // So is a response without bytes, but not one whose client may still send.
    case.conn_state.requests.begin();
    case.phase(TICK).await;
    assert!(case.entry.skips() && case.entry.skips() && !case.entry.skips());
    case.conn_state.requests.begin();
    case.conn_state.waits().push(Arc::new(Wait::new(1)));
    case.phase(TICK).await;
    assert!(!case.entry.skips());

    // A further request comes at any time between two checks, and its limit ends at any.
    for at in 0..40 {
        let keep_alive = Duration::from_secs(5) + TICK / 10 * at;
        let shared = shared(Limits::default().keep_alive(keep_alive));
        let reaper = tokio::spawn(reaper(Arc::clone(&shared)));
        let case = empty_case();
        let running = shared.enter(&case.conn_state);
        for rests in [Duration::from_secs(3) + TICK / 7 * at, keep_alive] {
            case.conn_state.requests.begin();
            tokio::time::sleep(Duration::from_secs(2) + TICK / 9 * at).await;
            case.conn_state.requests.end();
            tokio::time::sleep(rests).await;
            assert_eq!(case.conn_state.phase(), ShutdownPhase::Nothing);
        }
        // Timers have a resolution of a millisecond.
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert_ne!(case.conn_state.phase(), ShutdownPhase::Nothing);
        drop(running);
        shared.drain(Duration::ZERO);
        reaper.await.unwrap();
    }
}

type Call = Box<dyn FnOnce() + Send>;

/// A socket that calls a function when the reaper first asks about it.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Option<Call>>>);

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asked")
    }
}

impl SocketFacts for Asked {
    fn unacknowledged(&self) -> usize {
        let call = lock(&self.0).take();
        call.into_iter().for_each(|call| call());
        0
    }

    fn unread(&self) -> usize {
        0
    }

    fn poll_leaving(&self, _: &mut Context<'_>) -> Poll<Leaving> {
        Poll::Pending
    }

    fn reset(&self) {}
}

/// The task of the connection runs on another thread.
#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_request_that_ends_during_a_check_begin_no_further_head() {
    for drains in [false, true] {
        let (asked, (mut client, server)) = (Asked::default(), duplex(64));
        let mut stream = CountedIo::with(server, Some(Box::new(asked.clone())));
        let handle = stream.handle();
        // The reaper asks whether the peer has them.
        stream.write_all(b"sent").await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut case = Case::of(Arc::new(Mutex::new(stream)), handle);
        let (stream, conn_state) = (Arc::clone(&case.stream), Arc::clone(&case.conn_state));
        *lock(&asked.0) = Some(Box::new(move || {
            let received = lock(&stream).read(&mut [0; 64]).now_or_never().expect("bytes").unwrap();
            assert!(received > 4, "more than an empty line");
            conn_state.requests.begin();
            conn_state.requests.end();
        }));
        assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
        assert!(lock(&asked.0).is_none(), "the request has ended");
        if drains {
            case.drain();
        }
        for _ in 0..2 {
            assert_eq!(case.phase(TICK).await, ShutdownPhase::Nothing);
        }
        let (time, expected) = match drains {
            true => (TICK, ShutdownPhase::Finish),
            false => (case.limits.head_time, ShutdownPhase::Nothing),
        };
        assert_eq!(case.phase(time).await, expected);
        drop(client);
    }
}
