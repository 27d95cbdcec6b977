//! One connection, from accept to end.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::server::conn::http1;
use tokio::io::AsyncRead;

use super::adapter::Adapter;
use super::body_error::BoxError;
use super::conn_state::{ConnState, Protocol, ShutdownPhase};
use super::driver::{Driver, next_request};
use super::gated::Gated;
use super::handover::Driven;
use super::http_service::HttpService;
use super::linger::linger;
use super::protocols::Protocols;
use super::supervise::{aborted, until_raised};
use super::version::{Version, version};
use crate::counters::{Counter, count};
use crate::net::{Rewind, TakeOver};

const TIMED_OUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A step of a connection. Each is an allocation of its own, so that a connection needs only the memory of its step: a
/// response that was taken over needs a tenth of what hyper needs.
pub(super) type Step = Pin<Box<dyn Future<Output = Next> + Send>>;

pub(super) enum Next {
    Step(Step),
    Ended(Result<(), BoxError>),
}

/// Runs a connection to its end.
pub(super) async fn run(mut step: Step) -> Result<(), BoxError> {
    loop {
        match step.await {
            Next::Step(next) => step = next,
            Next::Ended(ended) => return ended,
        }
    }
}

/// Begins a connection whose version was not negotiated.
pub(super) fn connection<I, S>(protocols: Arc<Protocols>, mut stream: I, adapter: Adapter<S>) -> Step
where
    I: hyper::rt::Read + hyper::rt::Write + AsyncRead + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    Box::pin(async move {
        let conn_state = &Arc::clone(adapter.conn_state());
        match conn_state.unless_raised(ShutdownPhase::Nothing, version(&mut stream)).await {
            Ok(Ok(version)) => Next::Step(speak(version, protocols, stream, adapter)),
            Ok(Err(error)) => Next::Ended(Err(error.into())),
            Err(phase) => Next::Ended(end_one(stream, phase, conn_state).await),
        }
    })
}

pub(super) fn speak<I, S>(version: Version, protocols: Arc<Protocols>, mut stream: I, adapter: Adapter<S>) -> Step
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    let conn_state = Arc::clone(adapter.conn_state());
    match version {
        Version::One => {
            conn_state.speaks(Protocol::One);
            if protocols.takes_over {
                conn_state.handover.enable(&mut stream);
            }
            one(protocols, stream, adapter)
        }
        Version::Two => {
            conn_state.speaks(Protocol::Two);
            Box::pin(async move {
                let stream = Gated::new(stream, Arc::clone(&conn_state));
                let mut connection = pin!(protocols.two.serve_connection(stream, adapter));
                let ended = until_raised(&conn_state, ShutdownPhase::Abort, &mut connection, |connection| {
                    connection.as_mut().graceful_shutdown()
                });
                let Ok(ended) = ended.await else { return Next::Ended(Err(aborted())) };
                let drained = conn_state.drained().await;
                Next::Ended(ended.map_err(Into::into).and(drained))
            })
        }
    }
}

/// Speaks HTTP/1 by hyper, until the connection ends or its response can be taken over.
fn one<I, S>(protocols: Arc<Protocols>, stream: I, adapter: Adapter<S>) -> Step
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    let conn_state = Arc::clone(adapter.conn_state());
    let connection = protocols.one.serve_connection(stream, adapter).with_upgrades();
    Box::pin(async move {
        let (begun, _) = conn_state.requests.counts();
        let mut by_hyper = ByHyper { connection, conn_state: &conn_state, begun, finishes: false };
        let ended = until_raised(&conn_state, ShutdownPhase::TimedOut, &mut by_hyper, |by_hyper| {
            by_hyper.finishes = true;
            Pin::new(&mut by_hyper.connection).graceful_shutdown()
        })
        .await;
        let parts = by_hyper.connection.into_parts();
        let ended = match (ended, parts) {
            (Ok(Outcome::TakenOver(body)), Some(parts)) => {
                count(Counter::ResponsesTakenOver, 1);
                let reads = conn_state.limits.half_close.is_zero();
                let driver = Driver::new(parts.io, &parts.read_buf, body, reads);
                return Next::Step(drive(protocols, driver, parts.service));
            }
            (Ok(Outcome::Rests), Some(parts)) => {
                count(Counter::ConnectionsHibernated, 1);
                conn_state.rests();
                let mut stream = parts.io;
                stream.unread(&parts.read_buf);
                return Next::Step(rest(protocols, stream, parts.service));
            }
            (Ok(Outcome::Idle), Some(parts)) => end_one(parts.io, ShutdownPhase::Finish, &conn_state).await,
            // hyper has handed the stream over for an upgrade.
            (Ok(_), None) => {
                conn_state.becomes_tunnel();
                Ok(())
            }
            (Ok(Outcome::Ended(ended)), Some(parts)) => {
                drop(conn_state.handover.withdraw());
                let mut drained = Ok(());
                if ended.as_ref().map_or_else(hyper::Error::is_parse, |()| conn_state.requests.has_unread()) {
                    linger(parts.io, &conn_state).await;
                } else {
                    drained = conn_state.drained().await;
                }
                ended.map_err(Into::into).and(drained)
            }
            (Err(phase), Some(parts)) => {
                drop(conn_state.handover.withdraw());
                cut(&conn_state);
                end_one(parts.io, phase, &conn_state).await
            }
            (Err(_), None) => Ok(()),
        };
        Next::Ended(ended)
    })
}

/// Writes the body of a response.
fn drive<I, S>(protocols: Arc<Protocols>, mut driver: Driver<I>, adapter: Adapter<S>) -> Step
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    Box::pin(async move {
        match driver.run(adapter.conn_state()).await {
            Ok(true) => Next::Step(rest(protocols, driver.into_stream(), adapter)),
            Ok(false) => Next::Ended(Ok(())),
            Err(error) => {
                cut(adapter.conn_state());
                Next::Ended(Err(error))
            }
        }
    })
}

/// Resets an aborted connection if its client would take the response for complete.
fn cut(conn_state: &ConnState) {
    if conn_state.phase() == ShutdownPhase::Abort && conn_state.requests.ends_by_close() {
        conn_state.handle.reset();
    }
}

/// Waits for the next request without hyper.
fn rest<I, S>(protocols: Arc<Protocols>, mut stream: I, adapter: Adapter<S>) -> Step
where
    I: hyper::rt::Read + hyper::rt::Write + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    Box::pin(async move {
        match next_request(&mut stream, adapter.conn_state()).await {
            Ok(true) => Next::Step(one(protocols, stream, adapter)),
            Ok(false) => Next::Ended(Ok(())),
            Err(error) => Next::Ended(Err(error)),
        }
    })
}

/// hyper's connection, until it ends or its response can be taken over.
struct ByHyper<'a, I, S>
where
    S: HttpService,
{
    connection: http1::UpgradeableConnection<I, Adapter<S>>,
    conn_state: &'a ConnState,
    /// Requests by the time at which hyper began.
    begun: u32,
    /// Whether hyper was told to finish.
    finishes: bool,
}

enum Outcome {
    Ended(hyper::Result<()>),
    /// The connection is to finish, and is idle. A hyper that was begun behind a request waits for the next one to end,
    /// because it takes it for the first one.
    Idle,
    TakenOver(Box<dyn Driven>),
    /// The connection has no request, and the reaper wants its memory.
    Rests,
}

impl<I, S: HttpService> ByHyper<'_, I, S> {
    /// Returns whether this hyper has had no request, but the connection has.
    fn is_idle(&self) -> bool {
        self.begun > 0 && self.begun == self.conn_state.requests.counts().0
    }
}

impl<I, S> Future for ByHyper<'_, I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService,
{
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let conn_state = self.conn_state;
        let rests = conn_state.is_to_rest();
        if rests {
            // hyper flushes in each poll in which it holds nothing.
            conn_state.handover.holds_bytes();
        }
        match Pin::new(&mut self.connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Outcome::Ended(ended)),
            Poll::Pending => match conn_state.handover.take_over() {
                Some(body) => Poll::Ready(Outcome::TakenOver(body)),
                None if self.finishes && self.is_idle() => Poll::Ready(Outcome::Idle),
                None if rests && conn_state.is_at_rest() => Poll::Ready(Outcome::Rests),
                None => Poll::Pending,
            },
        }
    }
}

/// Ends an HTTP/1 connection that is not in a request.
async fn end_one<I: hyper::rt::Read + hyper::rt::Write + Unpin>(
    mut stream: I,
    phase: ShutdownPhase,
    conn_state: &ConnState,
) -> Result<(), BoxError> {
    let answer = match phase {
        ShutdownPhase::Nothing | ShutdownPhase::Finish => &[][..],
        ShutdownPhase::TimedOut => TIMED_OUT,
        ShutdownPhase::Abort => return Err(aborted()),
    };
    let end = async {
        let mut rest = answer;
        while !rest.is_empty() {
            match poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => rest = &rest[n..],
            }
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await
    };
    conn_state.unless_raised(ShutdownPhase::TimedOut, end).await.map_err(|_| aborted())??;
    if answer.is_empty() {
        return conn_state.drained().await;
    }
    linger(stream, conn_state).await;
    Err(io::Error::new(io::ErrorKind::TimedOut, "the head of the request took too long").into())
}
