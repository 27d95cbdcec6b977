//! Bodies of requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::body_error::{BodyError, Cause};
use crate::counters::{Counter, count};
use crate::server::state::{ConnState, Part, Unread, Wait};

/// The body of a request to a [server](crate::server::serve()), within its [limits](crate::server::Limits). Frames pass
/// unchanged.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    bounds: Bounds,
    /// Set once the body has failed permanently.
    failed: Option<Failed>,
    /// `None` if the body is empty, or was read to its end.
    conn_state: Option<Arc<ConnState>>,
    /// Number of the request.
    number: u32,
    wait: Option<Arc<Wait>>,
    /// Present over HTTP/2.
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Bounds {
    /// Bytes that may still arrive.
    pub(in crate::server) left: u64,
    /// Bytes that must arrive in a period.
    pub(in crate::server) rate: u64,
    pub(in crate::server) grpc: bool,
}

#[derive(Clone, Copy, Debug)]
enum Failed {
    TooLarge,
    TooSlow,
}

impl RequestBody {
    pub(in crate::server) fn new(incoming: Incoming, bounds: Bounds, conn_state: &Arc<ConnState>) -> Self {
        let conn_state = (!incoming.is_end_stream()).then(|| Arc::clone(conn_state));
        let number = conn_state.as_ref().map_or(0, |conn_state| conn_state.requests.arrives());
        let part = conn_state.as_ref().and_then(|conn_state| conn_state.unread()).map(Unread::begin);
        Self { incoming, bounds, failed: None, conn_state, number, wait: None, part }
    }

    /// Fails permanently. A failed body was not read to its end, so it still counts as unread.
    fn fail(&mut self, how: Failed) -> BodyError {
        if self.failed.replace(how).is_none() {
            count(
                match how {
                    Failed::TooLarge => Counter::BodiesTooLarge,
                    Failed::TooSlow => Counter::BodiesTooSlow,
                },
                1,
            );
        }
        let limits = self.conn_state.as_ref().map(|conn_state| &*conn_state.limits);
        let cause = match how {
            Failed::TooLarge => Cause::TooLarge(limits.map_or(0, |limits| limits.body)),
            Failed::TooSlow => Cause::TooSlow(limits.map_or(std::time::Duration::ZERO, |limits| limits.body_progress)),
        };
        BodyError::new(cause, self.bounds.grpc)
    }

    /// Records that the service waits for the body. Returns `true` if it has waited too long.
    fn pends(&mut self, cx: &Context<'_>) -> bool {
        let Some(conn_state) = &self.conn_state else { return false };
        let wait = self.wait.get_or_insert_with(|| {
            let wait = Arc::new(Wait::new(self.bounds.rate));
            conn_state.waits().push(Arc::clone(&wait));
            wait
        });
        wait.pends(cx.waker())
    }

    fn arrived(&self) {
        if let Some(conn_state) = &self.conn_state {
            conn_state.requests.arrived(self.number);
        }
    }

    /// The part of the body in what the connection holds.
    fn held(&mut self) -> Option<(&ConnState, &Unread, &mut Part)> {
        let conn_state = self.conn_state.as_deref()?;
        Some((conn_state, conn_state.unread()?, self.part.as_mut()?))
    }

    fn end(&mut self) {
        let Some(conn_state) = self.conn_state.take() else { return };
        if let (Some(unread), Some(part)) = (conn_state.unread(), self.part.take()) {
            unread.end(part, || conn_state.received());
        }
        if let Some(wait) = self.wait.take() {
            let mut waits = conn_state.waits();
            if let Some(at) = waits.iter().position(|other| Arc::ptr_eq(other, &wait)) {
                waits.swap_remove(at);
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let me = &mut *self;
        if let Some(how) = me.failed {
            return Poll::Ready(Some(Err(me.fail(how))));
        }
        // Before a byte is read: a client that waits for `100 Continue` sends none.
        if me.incoming.size_hint().lower() > me.bounds.left {
            return Poll::Ready(Some(Err(me.fail(Failed::TooLarge))));
        }
        let frame = match Pin::new(&mut me.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                return Poll::Ready(Some(Err(BodyError::new(Cause::Broken(error), me.bounds.grpc))));
            }
            Poll::Ready(None) => {
                me.arrived();
                me.end();
                return Poll::Ready(None);
            }
            Poll::Pending if me.pends(cx) => return Poll::Ready(Some(Err(me.fail(Failed::TooSlow)))),
            Poll::Pending => {
                if let Some((conn_state, unread, part)) = me.held() {
                    unread.catch_up(part, || conn_state.received());
                }
                return Poll::Pending;
            }
        };
        if me.incoming.is_end_stream() {
            me.arrived();
        }
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some((_, unread, part)) = me.held() {
            unread.read(part, bytes);
        }
        if bytes > me.bounds.left {
            return Poll::Ready(Some(Err(me.fail(Failed::TooLarge))));
        }
        if me.wait.as_ref().is_some_and(|wait| wait.came(bytes)) && !me.incoming.is_end_stream() {
            return Poll::Ready(Some(Err(me.fail(Failed::TooSlow))));
        }
        // `u64::MAX` means no limit.
        if me.bounds.left != u64::MAX {
            me.bounds.left -= bytes;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(conn_state) = &self.conn_state
            && !self.incoming.is_end_stream()
        {
            conn_state.requests.leaves_unread(self.number);
        }
        self.end();
    }
}
