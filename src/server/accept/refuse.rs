//! Connections over a limit: answered if that costs little, and closed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::timeout;

use crate::net::{Handle, Rewind};
use crate::server::connection::{Version, version, write_last};
use crate::server::limits::Limits;
use crate::server::response::unparsed;
use crate::server::state::{RefusalPlace, Refused};

/// Time for the request to begin, the answer to be sent and the client to close.
const PATIENCE: Duration = Duration::from_secs(1);

/// An empty SETTINGS frame, and GOAWAY with ENHANCE_YOUR_CALM after stream 0: no request was processed ([RFC 9113
/// §6.8](https://www.rfc-editor.org/rfc/rfc9113#section-6.8)).
const GOAWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

pub(in crate::server) fn refuse<I>(refused: &Arc<Refused>, limits: &Arc<Limits>, stream: I, handle: Handle)
where
    I: hyper::rt::Write + AsyncRead + Rewind + Unpin + Send + 'static,
{
    match refused.place() {
        Some(place) => drop(tokio::spawn(refuse_in(place, Arc::clone(limits), stream, handle))),
        None => handle.reset(),
    }
}

/// Answers the first request of a connection. Waits for the request, because clients treat an earlier answer as an
/// error. Reads the socket to its end: closing it with unread bytes would reset the connection, which may lose the
/// answer.
async fn refuse_in<I>(_place: RefusalPlace, limits: Arc<Limits>, mut stream: I, handle: Handle)
where
    I: hyper::rt::Write + AsyncRead + Rewind + Unpin,
{
    if !matches!(timeout(PATIENCE, answer_and_close(&mut stream, &limits)).await, Ok(Ok(()))) {
        handle.reset();
    }
}

async fn answer_and_close<I>(stream: &mut I, limits: &Limits) -> io::Result<()>
where
    I: hyper::rt::Write + AsyncRead + Rewind + Unpin,
{
    let answer = match version(stream).await? {
        Version::One => unparsed(limits, StatusCode::SERVICE_UNAVAILABLE),
        Version::Two => GOAWAY.to_vec(),
    };
    write_last(stream, &answer).await?;
    let mut bytes = [0; 512];
    loop {
        let mut unused = ReadBuf::new(&mut bytes);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut unused)).await?;
        if unused.filled().is_empty() {
            return Ok(());
        }
    }
}
