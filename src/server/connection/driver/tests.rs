//! Unit tests of `driver`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt};

use super::*;
use crate::net::CountedIo;
use crate::server::limits::Limits;
use crate::server::state::ConnLimiter;
#[cfg(feature = "sse")]
use crate::{
    body::ResumedBody,
    body::moved::MovedFraming,
    net::{Outlet, Owed, TcpListener, TcpStream},
    server::response::resumed,
    server::state::{Protocol, Successor},
    sse::{Event, HandedEvent, Hub},
};

#[tokio::test]
async fn a_request_that_has_arrived_is_answered_by_a_server_that_drains() {
    let (stream, mut client) = tokio::io::duplex(100);
    let mut stream = CountedIo::new(stream);
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), permit);
    conn_state.raise(ShutdownPhase::Finish);
    client.write_all(b"\r\n\r\nGET").await.expect("room");
    assert_eq!(next_request(&mut stream, &conn_state).await.expect("no failure"), Rest::Request);
    // The stream begins with the request again.
    assert_eq!(poll_fn(|cx| poll_some(&mut stream, cx)).await.expect("bytes"), "GET");
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
    let conn_state = ConnState::new(limits, stream.handle(), permit);
    let reaper = Arc::clone(&conn_state);
    tokio::spawn(async move { reaper.raise(ShutdownPhase::TimedOut) });
    let next = tokio::time::timeout(Duration::from_secs(60), next_request(&mut stream, &conn_state));
    assert_eq!(next.await.expect("an end").expect("no failure"), Rest::Ended);
}

/// A stream whose socket cannot be given away, although others write to it: as with TLS.
#[cfg(feature = "sse")]
struct Fixed(TcpStream);

#[cfg(feature = "sse")]
impl TakeOver for Fixed {
    fn count_writes(&mut self, owed: Arc<Owed>) {
        self.0.count_writes(owed);
    }

    fn outlet(&self) -> Option<Outlet> {
        self.0.outlet()
    }
}

#[cfg(feature = "sse")]
impl Rewind for Fixed {
    fn unread(&mut self, bytes: &[u8]) {
        self.0.unread(bytes);
    }
}

#[cfg(feature = "sse")]
impl Read for Fixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

#[cfg(feature = "sse")]
impl Write for Fixed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

#[cfg(feature = "sse")]
#[tokio::test]
async fn a_reader_whose_connection_cannot_move_gets_further_events() {
    use tokio::io::AsyncReadExt;

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = tokio::net::TcpStream::connect(listener.local_addr().expect("bound"));
    let (accepted, client) = tokio::join!(listener.accept(), client);
    let (stream, mut client) = (accepted.expect("a connection").0, client.expect("a connection"));
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), permit);
    conn_state.set_protocol(Protocol::One);
    let hub = Hub::new();
    let body = hub.subscribe_from(None).expect("room");
    let body =
        resumed(&conn_state, ResumedBody { body, framing: MovedFraming { is_chunked: false, keeps_alive: false } });
    let mut writer = BodyWriter::new(Fixed(stream), &[], body, false);
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
    let handover = hub.hand_over().expect("the first time");
    conn_state.moving.begin(&Successor(Arc::new(|_, _| panic!("it cannot move"))));
    conn_state.request_move(1);
    // The task runs.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let bytes = Bytes::from_static(b"data: after\n\n");
    handover.deliver(HandedEvent { id: "1".to_owned(), bytes, age: Duration::ZERO }).expect("a valid id");
    expect("after").await;
    hub.close();
    assert_eq!(written.await.expect("no panic"), BodyEnd::Last);
}
