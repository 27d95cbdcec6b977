//! Unit tests of `driver`.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt};

use super::*;
use crate::net::CountedIo;
use crate::server::limits::Limits;
use crate::server::state::ConnLimiter;

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
