//! End of a connection whose client may still be sending.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::supervise::{aborted, drained};
use crate::server::error::BoxError;
use crate::server::state::{ConnState, ShutdownPhase};

/// Time for a client to read its response and close the connection.
const TIME: Duration = Duration::from_secs(30);
/// Time without a byte after which the client counts as gone.
const QUIET: Duration = Duration::from_secs(5);
/// Bytes discarded at most.
const BYTES: usize = 64 << 20;
const PIECE: usize = 16 << 10;

/// Ends a connection after its last response: shuts the sending side down, and lingers if the client has sent bytes
/// that were not read. `unread` is set if such bytes are known.
pub(in crate::server) async fn close<I>(mut stream: I, unread: bool, conn_state: &ConnState) -> Result<(), BoxError>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let shut = poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx));
    conn_state.unless_raised(ShutdownPhase::TimedOut, shut).await.map_err(|_| aborted())??;
    drained(conn_state).await?;
    if unread || read_one(&mut stream, conn_state).await {
        linger(stream, conn_state).await;
    }
    Ok(())
}

/// Reads a byte if one has arrived. Returns whether bytes have arrived that were not read before.
async fn read_one<I: hyper::rt::Read + Unpin>(stream: &mut I, conn_state: &ConnState) -> bool {
    // The stream may not have been notified of bytes in the kernel. Only the stream knows about bytes that it holds
    // itself.
    if conn_state.handle.unread().is_some_and(|bytes| bytes > 0) {
        return true;
    }
    let mut byte = [0];
    let mut buf = hyper::rt::ReadBuf::new(&mut byte);
    let read = poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_read(cx, buf.unfilled()))).await;
    matches!(read, Poll::Ready(Ok(()))) && !buf.filled().is_empty()
}

/// Discards what the client sends until it ends the connection, within [`TIME`] and [`BYTES`] after the response was
/// sent. The sending side was shut down before. Closing a socket with unread bytes resets it, and a client that is
/// reset loses the unread response ([RFC 9112 §9.6](https://www.rfc-editor.org/rfc/rfc9112#section-9.6)).
pub(super) async fn linger<I: hyper::rt::Read + Unpin>(mut stream: I, conn_state: &ConnState) {
    conn_state.mark_lingering();
    if drained(conn_state).await.is_err() {
        return;
    }
    let discard = pin!(async {
        let end = Instant::now() + TIME;
        let (mut piece, mut left) = (vec![0; PIECE], BYTES);
        loop {
            let received = conn_state.received();
            let mut buf = hyper::rt::ReadBuf::new(&mut piece);
            let read = poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, buf.unfilled()));
            let read = timeout(QUIET.min(end.saturating_duration_since(Instant::now())), read).await;
            match (read, buf.filled().len()) {
                (Ok(Ok(())), got) if got > 0 && got < left => left -= got,
                // A part of a TLS record.
                (Err(_), _) if conn_state.received() > received && Instant::now() < end => {}
                _ => return,
            }
        }
    });
    // An aborted connection was reset, which ends its reads.
    let _ = conn_state.unless_raised(ShutdownPhase::TimedOut, discard).await;
}

#[cfg(test)]
mod tests;
