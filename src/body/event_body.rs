//! The body of a stream of events.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::GracefulClose;
use super::attach::{Attach, AttachOutcome};
use crate::net::Outlet;

/// The events of a [`Hub`](crate::sse::Hub) for one reader, from [`Hub::subscribe`](crate::sse::Hub::subscribe). Frames
/// are shared with other readers; waiting events are merged into one frame of up to 16 KiB.
///
/// Inside a tokio runtime it sends comments to [keep the connection alive](crate::sse::HubBuilder::keep_alive).
///
/// Dropping it frees its place for another subscriber, even if it was never polled.
pub struct EventBody(Box<dyn EventStream>);

/// Events for one reader.
pub(crate) trait EventStream: Attach + fmt::Debug {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    fn is_ended(&self) -> bool;

    /// Returns a handle that ends the stream; `None` if it has ended.
    fn ending(&self) -> Option<GracefulClose>;
}

impl EventBody {
    pub(crate) fn new(events: impl EventStream + 'static) -> Self {
        Self(Box::new(events))
    }

    pub(crate) fn attach(&mut self) -> &mut dyn Attach {
        &mut *self.0
    }

    /// Polls for the next frame. While there is none, the hub writes the events to the outlet, as far as there is one,
    /// so that the caller sends nothing else without it. Only for the task of the stream.
    pub(crate) fn poll_direct(
        &mut self,
        outlet: &dyn Fn() -> Option<Outlet>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        loop {
            ready!(self.0.poll_returned());
            if let Poll::Ready(frame) = self.0.poll_events(cx) {
                return Poll::Ready(frame);
            }
            let Some(outlet) = outlet() else { return Poll::Pending };
            if self.0.attach(outlet, false, cx) != AttachOutcome::News {
                return Poll::Pending;
            }
        }
    }

    /// Returns a handle that ends this body; `None` if it has ended.
    pub fn ending(&self) -> Option<GracefulClose> {
        self.0.ending()
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_events(cx).map(|events| events.map(|events| Ok(Frame::data(events))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_ended()
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
