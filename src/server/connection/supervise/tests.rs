//! Unit tests of `supervise`.

use std::sync::Arc;
use std::task::Context;

use super::*;
use crate::net::TcpListener;
use crate::server::limits::Limits;
use crate::server::state::{ConnLimiter, Open, Peer};

/// The state of the late head when the connection is told of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Late,
    Requested,
    Answered,
}

/// Tells a connection once that its head is late.
async fn told_late(head: Head) -> (Result<(), ShutdownPhase>, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let (client, accepted) =
        tokio::join!(tokio::net::TcpStream::connect(listener.local_addr().expect("its address")), listener.accept());
    let (_client, (stream, _)) = (client.expect("connected"), accepted.expect("accepted"));
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    conn_state.time_out(0);
    let mut open = (head != Head::Late).then(|| Open::begin(&conn_state));
    if head == Head::Answered {
        open.take();
    }
    // The response ends when it is polled for the second time, and the connection with it.
    let mut left = 2;
    let mut connection = poll_fn(move |cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        if left == 0 {
            open.take();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    let finished = std::cell::Cell::new(false);
    let ended = until_raised(&conn_state, ShutdownPhase::TimedOut, &mut connection, |_| finished.set(true)).await;
    (ended, finished.get())
}

#[tokio::test]
async fn a_request_that_arrives_in_the_meantime_is_answered() {
    assert_eq!(told_late(Head::Late).await, (Err(ShutdownPhase::TimedOut), false));
    assert_eq!(told_late(Head::Requested).await, (Ok(()), true));
    assert_eq!(told_late(Head::Answered).await, (Ok(()), true));
}
