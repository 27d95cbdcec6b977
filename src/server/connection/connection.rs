//! One connection, from accept to end.

use std::future::{poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http::StatusCode;
use hyper::server::conn::http1;
use tokio::io::AsyncRead;

use super::by_hyper::{ByHyper, Outcome};
use super::driver::{BodyEnd, BodyWriter, Rest, next_request};
use super::gated::Gated;
use super::linger::{close, linger};
use super::protocols::Protocols;
use super::supervise::{aborted, drained, until_raised};
use super::version::{Version, version};
use crate::body::ResumedBody;
use crate::counters::{Counter, count};
use crate::net::{Rewind, TakeOver};
use crate::server::error::BoxError;
use crate::server::request::{Adapter, HttpService};
use crate::server::response::{resumed, unparsed};
use crate::server::state::{ConnState, Protocol, ShutdownPhase};

/// A step of a connection. Each step is a separate allocation, so that a connection uses only the memory of its current
/// step. A response that was taken over needs a tenth of the memory of hyper.
pub(in crate::server) type ConnectionStep = Pin<Box<dyn Future<Output = Next> + Send>>;

pub(in crate::server) enum Next {
    Step(ConnectionStep),
    Ended(Result<(), BoxError>),
}

/// Begins a connection whose version was not negotiated.
pub(in crate::server) fn connection<I, S>(
    protocols: Arc<Protocols>,
    mut stream: I,
    adapter: Adapter<S>,
) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + AsyncRead + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    if let Some(events) = adapter.conn_state().handle.take_resumed() {
        return match events.downcast() {
            Ok(events) => resume(protocols, stream, adapter, *events),
            Err(_) => unreachable!("internal: only `ResumedBody::go_on` sets it"),
        };
    }
    Box::pin(async move {
        let conn_state = Arc::clone(adapter.conn_state());
        let first = {
            let version = pin!(version(&mut stream));
            conn_state.unless_raised(ShutdownPhase::Nothing, unless_moved(&conn_state, version)).await
        };
        match first {
            Ok(Some(Ok(version))) => Next::Step(speak(version, protocols, stream, adapter)),
            Ok(Some(Err(error))) => Next::Ended(Err(error.into())),
            Ok(None) if moves(&conn_state, &mut stream).await => Next::Ended(Ok(())),
            Ok(None) => Next::Step(connection(protocols, stream, adapter)),
            Err(phase) => last(end_one(stream, phase, conn_state)),
        }
    })
}

/// Goes on with a response that another process or server has begun.
fn resume<I, S>(protocols: Arc<Protocols>, mut stream: I, adapter: Adapter<S>, events: ResumedBody) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    let conn_state = Arc::clone(adapter.conn_state());
    conn_state.set_protocol(Protocol::One);
    if protocols.takes_over {
        conn_state.handover.enable(&mut stream);
    }
    let reads = conn_state.limits.half_close.is_zero();
    let driver = BodyWriter::new(stream, &[], resumed(&conn_state, events), reads);
    Box::pin(async move {
        // From here on the reaper can wake the task.
        match conn_state.unless_raised(ShutdownPhase::Finish, ready(())).await {
            Ok(()) => Next::Step(drive(protocols, driver, adapter, false)),
            Err(_) => Next::Ended(Err(aborted())),
        }
    })
}

/// Waits for the first bytes of a connection. Returns `None` if it moves before any has arrived.
fn unless_moved<T>(
    conn_state: &ConnState,
    mut first: impl Future<Output = T> + Unpin,
) -> impl Future<Output = Option<T>> + Unpin {
    poll_fn(move |cx| match Pin::new(&mut first).poll(cx) {
        Poll::Ready(first) => Poll::Ready(Some(first)),
        Poll::Pending if conn_state.moves() && conn_state.received() == 0 => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
}

/// Gives a connection without a request to the successor of the server. Returns `false` if it stays.
async fn moves(conn_state: &ConnState, stream: &mut impl TakeOver) -> bool {
    let socket = poll_fn(|cx| conn_state.moving.poll_socket(cx, stream)).await;
    socket.map(|socket| conn_state.moving.give(socket, None)).is_some()
}

pub(in crate::server) fn speak<I, S>(
    version: Version,
    protocols: Arc<Protocols>,
    mut stream: I,
    mut adapter: Adapter<S>,
) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    let conn_state = Arc::clone(adapter.conn_state());
    match version {
        Version::One => {
            conn_state.set_protocol(Protocol::One);
            if protocols.takes_over {
                conn_state.handover.enable(&mut stream);
            }
            one(protocols, stream, adapter)
        }
        Version::Two => {
            conn_state.set_protocol(Protocol::Two);
            adapter.make_extensions();
            Box::pin(async move {
                let ended = {
                    let gated = Gated::new(&mut stream, Arc::clone(&conn_state));
                    let mut connection = pin!(protocols.two.serve_connection(gated, adapter));
                    let ended = until_raised(&conn_state, ShutdownPhase::Abort, &mut connection, |connection| {
                        connection.as_mut().graceful_shutdown()
                    });
                    ended.await
                };
                let Ok(ended) = ended else { return Next::Ended(Err(aborted())) };
                let sent = drained(&conn_state).await;
                // The client may still send frames, such as updates of windows. One that has sent wrong ones loses its end.
                if ended.is_ok() {
                    linger(stream, &conn_state).await;
                }
                Next::Ended(ended.map_err(Into::into).and(sent))
            })
        }
    }
}

/// Runs HTTP/1 by hyper until the connection ends, a response switches protocols, or a response can be taken over.
fn one<I, S>(protocols: Arc<Protocols>, stream: I, mut adapter: Adapter<S>) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    let conn_state = Arc::clone(adapter.conn_state());
    conn_state.handover.begin();
    adapter.make_extensions();
    // Not with upgrades: after any request with `Upgrade`, hyper would give the stream away at the end of the
    // connection.
    let connection = protocols.one.serve_connection(stream, adapter);
    // Built here, because the future would hold what is moved inside of it twice.
    let mut by_hyper = ByHyper::new(connection, Arc::clone(&conn_state));
    Box::pin(async move {
        let ended = until_raised(&conn_state, ShutdownPhase::TimedOut, &mut by_hyper, |by_hyper| {
            by_hyper.finish();
        })
        .await;
        let (connection, is_last) = by_hyper.into_parts();
        match ended {
            Ok(Outcome::Switches) => Next::Step(switch(connection.with_upgrades(), conn_state)),
            Ok(Outcome::TakenOver(body)) => {
                let parts = connection.into_parts();
                count(Counter::ResponsesTakenOver, 1);
                let reads = conn_state.limits.half_close.is_zero();
                let driver = BodyWriter::new(parts.io, &parts.read_buf, body, reads);
                Next::Step(drive(protocols, driver, parts.service, is_last))
            }
            Ok(Outcome::Hibernates) => {
                let parts = connection.into_parts();
                count(Counter::ConnectionsHibernated, 1);
                conn_state.mark_hibernating();
                let mut stream = parts.io;
                stream.unread(&parts.read_buf);
                Next::Step(hibernate(protocols, stream, parts.service))
            }
            Ok(Outcome::Ended(Err(error))) if !error.is_parse() => {
                drop(conn_state.handover.withdraw());
                Next::Ended(Err(error.into()))
            }
            Ok(Outcome::Ended(ended)) => {
                let parts = connection.into_parts();
                drop(conn_state.handover.withdraw());
                // hyper has not shut the sending side down if it expected an upgrade, nor after some errors.
                let unread = ended.is_err() || conn_state.requests.has_unread() || !parts.read_buf.is_empty();
                last(async move {
                    let closed = close(parts.io, unread, &conn_state).await;
                    ended.map_err(Into::into).and(closed)
                })
            }
            Err(phase) => {
                let parts = connection.into_parts();
                drop(conn_state.handover.withdraw());
                cut(&conn_state);
                last(end_one(parts.io, phase, conn_state))
            }
        }
    })
}

/// Writes the head of the response that switches protocols, and gives the stream to the service.
fn switch<I, S>(
    mut connection: http1::UpgradeableConnection<I, Adapter<S>>,
    conn_state: Arc<ConnState>,
) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService,
{
    conn_state.handover.leave_to_hyper();
    // A response waits until this is set.
    conn_state.mark_tunnel();
    Box::pin(async move {
        let ended = until_raised(&conn_state, ShutdownPhase::Abort, &mut connection, |_| ()).await;
        Next::Ended(ended.map_or_else(|_| Err(aborted()), |ended| ended.map_err(Into::into)))
    })
}

/// Writes the body of a response, after which the connection closes if it `is_last`.
fn drive<I, S>(
    protocols: Arc<Protocols>,
    mut driver: BodyWriter<I>,
    mut adapter: Adapter<S>,
    is_last: bool,
) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    adapter.rest();
    Box::pin(async move {
        match driver.run(adapter.conn_state()).await {
            Ok(BodyEnd::Moved) => Next::Ended(Ok(())),
            Ok(end) => match driver.into_stream() {
                Ok(stream) if end == BodyEnd::KeepsAlive && !is_last => {
                    Next::Step(hibernate(protocols, stream, adapter))
                }
                Ok(stream) => last(async move { close(stream, false, adapter.conn_state()).await }),
                Err(error) => Next::Ended(Err(error.into())),
            },
            Err(error) => {
                cut(adapter.conn_state());
                Next::Ended(Err(error))
            }
        }
    })
}

/// Resets an aborted connection if its client would otherwise regard the response as complete.
fn cut(conn_state: &ConnState) {
    if conn_state.phase() == ShutdownPhase::Abort && conn_state.requests.ends_by_close() {
        conn_state.handle.reset();
    }
}

/// Waits for the next request without hyper.
fn hibernate<I, S>(protocols: Arc<Protocols>, mut stream: I, mut adapter: Adapter<S>) -> ConnectionStep
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    adapter.rest();
    Box::pin(async move {
        match next_request(&mut stream, adapter.conn_state()).await {
            Ok(Rest::Request) => Next::Step(one(protocols, stream, adapter)),
            Ok(Rest::Moves) if moves(adapter.conn_state(), &mut stream).await => Next::Ended(Ok(())),
            Ok(Rest::Moves) => Next::Step(hibernate(protocols, stream, adapter)),
            Ok(Rest::Ended) => Next::Ended(Ok(())),
            Err(error) => Next::Ended(Err(error)),
        }
    })
}

/// Writes `bytes`, and ends the sending side.
pub(in crate::server) async fn write_last<I>(stream: &mut I, mut bytes: &[u8]) -> io::Result<()>
where
    I: hyper::rt::Write + Unpin,
{
    while !bytes.is_empty() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await
}

/// Ends a connection in a step of its own, so that no other step has room for it.
fn last(end: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Next {
    Next::Step(Box::pin(async move { Next::Ended(end.await) }))
}

/// Ends an HTTP/1 connection that is not in a request.
async fn end_one<I: hyper::rt::Read + hyper::rt::Write + Unpin>(
    mut stream: I,
    phase: ShutdownPhase,
    conn_state: Arc<ConnState>,
) -> Result<(), BoxError> {
    match phase {
        ShutdownPhase::Nothing | ShutdownPhase::Finish => return close(stream, false, &conn_state).await,
        ShutdownPhase::TimedOut => {}
        ShutdownPhase::Abort => return Err(aborted()),
    }
    {
        let answer = unparsed(&conn_state.limits, StatusCode::REQUEST_TIMEOUT);
        let answer = pin!(write_last(&mut stream, &answer));
        conn_state.unless_raised(ShutdownPhase::TimedOut, answer).await.map_err(|_| aborted())??;
    }
    linger(stream, &conn_state).await;
    Err(io::Error::new(io::ErrorKind::TimedOut, "the head of the request took too long").into())
}

#[cfg(test)]
mod tests;
