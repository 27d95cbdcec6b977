//! HTTP/1 by hyper, up to the point at which the connection is taken from it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::server::conn::http1;

use crate::server::request::{Adapter, HttpService};
use crate::server::state::{ConnState, Driven};

/// hyper's connection, until it ends or its response can be taken over.
pub(super) struct ByHyper<I, S>
where
    S: HttpService,
{
    connection: http1::Connection<I, Adapter<S>>,
    conn_state: Arc<ConnState>,
    /// Number of requests when this hyper began.
    begun: u32,
    /// Whether hyper was told to finish.
    finishes: bool,
    /// Whether it was told before the head of a response.
    is_last: bool,
}

pub(super) enum Outcome {
    Ended(hyper::Result<()>),
    TakenOver(Box<dyn Driven>),
    /// The connection has no request, and the reaper has requested hibernation, or it moves.
    Hibernates,
    /// A response waits for the connection to become a tunnel.
    Switches,
}

impl<I, S> ByHyper<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService,
{
    pub(super) fn new(connection: http1::Connection<I, Adapter<S>>, conn_state: Arc<ConnState>) -> Self {
        let (begun, _) = conn_state.requests.counts();
        Self { connection, conn_state, begun, finishes: false, is_last: false }
    }

    /// Tells hyper to finish.
    pub(super) fn finish(&mut self) {
        self.finishes = true;
        // hyper writes `Connection: close` in a head that is to come.
        self.is_last = self.conn_state.handover.awaits_head();
        Pin::new(&mut self.connection).graceful_shutdown();
    }

    /// Returns hyper's connection, and whether its response is the last one.
    pub(super) fn into_parts(self) -> (http1::Connection<I, Adapter<S>>, bool) {
        (self.connection, self.is_last)
    }

    /// Returns whether the connection should finish and has no request, and hyper does not end it: a hyper that was started
    /// after a request waits until its own first one has ended.
    fn is_done(&self) -> bool {
        self.finishes && self.begun > 0 && self.begun == self.conn_state.requests.counts().0
    }

    /// Returns whether all requests of this hyper were answered, of which there was one.
    fn has_answered(&self) -> bool {
        // A hyper without a request has read the start of a head.
        let (begun, open) = self.conn_state.requests.counts();
        begun != self.begun && open == 0
    }

    /// Returns whether hyper is not needed until the next request. `hibernates`: it was not, before hyper has read.
    fn rests(&self, hibernates: bool, cx: &mut Context<'_>) -> bool {
        // Also right after a response, which is sent now: a client may leave no time between two requests.
        match self.conn_state.moves() && self.has_answered() {
            true => matches!(self.conn_state.handle.poll_drained(cx), Poll::Ready(Ok(()))),
            false => hibernates && self.conn_state.should_hibernate(),
        }
    }
}

impl<I, S> Future for ByHyper<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService,
{
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let hibernates = self.conn_state.should_hibernate();
        let polled = Pin::new(&mut self.connection).poll(cx);
        let conn_state = &self.conn_state;
        match polled {
            Poll::Ready(ended) => Poll::Ready(Outcome::Ended(ended)),
            Poll::Pending if conn_state.is_switching() => Poll::Ready(Outcome::Switches),
            Poll::Pending => match conn_state.handover.take_over() {
                Some(body) => Poll::Ready(Outcome::TakenOver(body)),
                None if self.is_done() => Poll::Ready(Outcome::Ended(Ok(()))),
                None if self.rests(hibernates, cx) && conn_state.can_leave_hyper() => Poll::Ready(Outcome::Hibernates),
                None => {
                    if conn_state.moves() && self.has_answered() && conn_state.stays_with_hyper() {
                        conn_state.moving.stay();
                    }
                    Poll::Pending
                }
            },
        }
    }
}
