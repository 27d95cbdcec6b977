//! Unit tests of `driver`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::body::MovedBody;
use crate::body::moved::MovedFraming;
use crate::net::{CountedIo, Handle, Outlet, Sent, TcpListener};
use crate::server::limits::Limits;
use crate::server::state::{ConnLimiter, Output, Peer, Successor};
#[cfg(feature = "sse")]
use crate::{
    body::ResumedBody,
    server::response::resumed,
    server::state::Protocol,
    sse::{Event, Hub},
};

#[tokio::test]
async fn a_request_that_has_arrived_is_answered_by_a_server_that_drains() {
    let (stream, mut client) = tokio::io::duplex(100);
    let mut stream = CountedIo::new(stream);
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    conn_state.raise(ShutdownPhase::Finish);
    client.write_all(b"\r\n\r\nGET").await.expect("room");
    assert_eq!(next_request(&mut stream, &conn_state).await.expect("no failure"), Rest::Request);
    // The stream begins with the request again.
    assert_eq!(poll_fn(|cx| poll_some(&mut stream, cx)).await.expect("bytes")[..], *b"GET");
    client.write_all(b"\r\n").await.expect("room");
    assert_eq!(
        next_request(&mut stream, &conn_state).await.expect("no failure"),
        Rest::Ended,
        "only a line end has arrived"
    );
}

/// Sends empty lines, as fast as they are read.
struct Flood;

impl AsyncRead for Flood {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(b"\r\n");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_flood_of_empty_lines_lets_other_tasks_run_and_ends_with_the_time_for_a_head() {
    let mut stream = CountedIo::new(tokio::io::join(Flood, tokio::io::sink()));
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    let reaper = Arc::clone(&conn_state);
    tokio::spawn(async move { reaper.raise(ShutdownPhase::TimedOut) });
    let next = tokio::time::timeout(Duration::from_secs(60), next_request(&mut stream, &conn_state));
    assert_eq!(next.await.expect("an end").expect("no failure"), Rest::Ended);
}

/// A reader, to which its hub sends until it leaves.
struct Late {
    handle: Handle,
    outlet: Option<Outlet>,
    late: Option<Bytes>,
}

impl Driven for Late {
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>> {
        self.outlet = io.outlet();
        // Wakes the task when the socket has taken all bytes.
        let _ = self.handle.poll_drained(cx)?;
        Poll::Pending
    }

    fn leave(&mut self) -> Option<MovedBody> {
        if let Some((outlet, late)) = self.outlet.take().zip(self.late.take()) {
            assert_eq!(outlet.send(&late), Sent::Waits, "more than the socket takes");
        }
        Some(MovedBody { reader: Box::new(()), framing: MovedFraming { is_chunked: true, keeps_alive: true } })
    }

    fn keeps_alive(&self) -> bool {
        true
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_reader_that_gets_events_while_it_leaves_moves_once_they_are_sent() {
    const LATE: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let mut client =
        tokio::net::TcpStream::connect(listener.local_addr().expect("its address")).await.expect("a client");
    let (stream, _) = listener.accept().await.expect("a stream");
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    let (give, mut given) = tokio::sync::mpsc::channel(1);
    conn_state.begin_move(&Successor(Arc::new(move |socket, _| give.try_send(socket).expect("once"))));
    conn_state.requests.set_events();
    let late = Late { handle: stream.handle(), outlet: None, late: Some(Bytes::from(vec![0; LATE])) };
    let mut writer = BodyWriter::new(stream, &[], Box::new(late), false);
    let running = tokio::spawn(async move { writer.run(&conn_state).await.expect("no failure") });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(given.try_recv().is_err(), "bytes wait for room in the socket");
    let mut got = vec![0; LATE];
    client.read_exact(&mut got).await.expect("all bytes");
    assert_eq!(running.await.expect("no panic"), BodyEnd::Moved);
    given.try_recv().expect("its socket");
}

#[cfg(feature = "sse")]
#[tokio::test]
async fn a_reader_that_cannot_leave_gets_further_events() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = tokio::net::TcpStream::connect(listener.local_addr().expect("bound"));
    let (accepted, client) = tokio::join!(listener.accept(), client);
    let (stream, mut client) = (accepted.expect("a connection").0, client.expect("a connection"));
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    conn_state.set_protocol(Protocol::One);
    let hub = Hub::new();
    let body = hub.subscribe_from(None).expect("room");
    let body =
        resumed(&conn_state, ResumedBody { body, framing: MovedFraming { is_chunked: false, keeps_alive: false } });
    let mut writer = BodyWriter::new(stream, &[], body, false);
    let writing = Arc::clone(&conn_state);
    let written = tokio::spawn(async move {
        // From here on the reaper can wake the task.
        assert_eq!(writing.unless_raised(ShutdownPhase::Finish, std::future::ready(())).await, Ok(()));
        writer.run(&writing).await.expect("no failure")
    });
    let mut expect = async |data: &str| {
        let mut text = String::new();
        while !text.contains(data) {
            let mut bytes = [0; 100];
            let read = tokio::time::timeout(Duration::from_secs(60), client.read(&mut bytes));
            let len = read.await.expect("an event").expect("open");
            text.push_str(str::from_utf8(&bytes[..len]).expect("text"));
        }
    };
    hub.send(Event::new().data("before")).expect("open");
    expect("before").await;
    assert_eq!(hub.stats().direct, 1, "the hub writes");
    // The hub is not handed over.
    conn_state.begin_move(&Successor(Arc::new(|_, _| panic!("it cannot move"))));
    conn_state.wake();
    // The task runs.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    hub.send(Event::new().data("after")).expect("open");
    expect("after").await;
    hub.close();
    assert_eq!(written.await.expect("no panic"), BodyEnd::Last);
}
