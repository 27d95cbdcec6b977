//! Event stream of one reader, as the body of a response.

use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::seat::{Attach, SeatState};
use super::shared_events::SharedEvents;
use crate::body::GracefulClose;
use crate::net::Outlet;
use crate::sse::event::Deflater;
use crate::sse::log::Log;
use crate::sse::ring::Permit;

/// The events of a [`Hub`](crate::sse::Hub) for one reader, from [`Hub::subscribe`](crate::sse::Hub::subscribe). Frames
/// are shared with other readers; waiting events are merged into one frame of up to 16 KiB.
///
/// Inside a tokio runtime it sends comments to [keep the connection alive](crate::sse::HubBuilder::keep_alive).
///
/// Dropping it, polled or not, frees its place for another subscriber.
pub struct EventBody(EventBodyInner);

enum EventBodyInner {
    Own(SeatState),
    /// Also known to the server, which may find it inside the bodies of layers.
    Shared(SharedEvents),
}

impl EventBody {
    pub(in crate::sse) fn new(
        permit: Permit,
        log: Option<&Arc<dyn Log>>,
        last: Option<&str>,
        deflater: Option<&Arc<Deflater>>,
    ) -> Self {
        Self(EventBodyInner::Own(SeatState::new(permit, log, last, deflater)))
    }

    pub(in crate::sse) fn none() -> Self {
        Self(EventBodyInner::Own(SeatState::Ended))
    }

    /// Returns a second handle, for a server to which the body comes inside of others.
    pub(in crate::sse) fn share(&mut self) -> SharedEvents {
        let shared = match mem::replace(&mut self.0, EventBodyInner::Own(SeatState::Ended)) {
            EventBodyInner::Own(state) => SharedEvents::new(state),
            EventBodyInner::Shared(shared) => shared,
        };
        self.0 = EventBodyInner::Shared(shared.clone());
        shared
    }

    fn with<T>(&self, look: impl FnOnce(&SeatState) -> T) -> T {
        match &self.0 {
            EventBodyInner::Own(state) => look(state),
            EventBodyInner::Shared(shared) => shared.with(look),
        }
    }

    /// Lets the hub write the events to `outlet` itself. This task then waits in [`poll_returned`](Self::poll_returned).
    /// `chunked` selects the framing of HTTP/1.1. Called after the body was pending.
    pub(crate) fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
        match &mut self.0 {
            EventBodyInner::Own(state) => state.attach(outlet, chunked, cx),
            EventBodyInner::Shared(shared) => shared.attach_own(outlet, chunked, cx),
        }
    }

    /// Ready when the body must be polled again, because the hub does not write it any longer.
    pub(crate) fn poll_returned(&mut self) -> Poll<()> {
        match &mut self.0 {
            EventBodyInner::Own(state) => state.poll_returned(),
            EventBodyInner::Shared(shared) => shared.poll_returned(),
        }
    }

    /// Returns a handle that ends this body; `None` if it has ended.
    pub fn ending(&self) -> Option<GracefulClose> {
        self.with(SeatState::ending)
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.0 {
            EventBodyInner::Own(state) => state.poll_frame(cx),
            EventBodyInner::Shared(shared) => shared.poll_frame(cx),
        };
        frame.map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|state| matches!(state, SeatState::Ended))
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        if let EventBodyInner::Shared(shared) = &self.0 {
            shared.end();
        }
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|state| state.fmt(f))
    }
}
