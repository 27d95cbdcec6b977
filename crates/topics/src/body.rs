//! The body of a response.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use millstream::sse::KeepAlive;

use crate::merged::Merged;

/// The body of a response of [`Topics`](crate::Topics): events, or the text of a refusal.
///
/// Dropping it frees the places of the reader in all topics, even if it was never polled.
pub struct TopicsBody(Content);

enum Content {
    Events(Box<KeepAlive<Merged>>),
    Text(Bytes),
}

impl TopicsBody {
    pub(crate) fn events(events: Merged, keep_alive: Duration) -> Self {
        Self(Content::Events(Box::new(KeepAlive::new(events, keep_alive))))
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self(Content::Text(text.into()))
    }
}

impl Body for TopicsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Content::Events(events) => Pin::new(&mut **events).poll_frame(cx),
            Content::Text(text) if text.is_empty() => Poll::Ready(None),
            Content::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Events(events) => events.is_end_stream(),
            Content::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Events(_) => SizeHint::default(),
            Content::Text(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}

impl fmt::Debug for TopicsBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Events(events) => f.debug_tuple("TopicsBody").field(events).finish(),
            Content::Text(text) => f.debug_tuple("TopicsBody").field(text).finish(),
        }
    }
}
