//! Body of a measured response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::exchange::Exchange;

pin_project! {
    /// A measured body. Frames pass unchanged. Dropped before its end, the response counts as aborted.
    #[derive(Debug)]
    pub struct MeasureBody<B> {
        #[pin]
        inner: B,
        exchange: Exchange,
    }
}

impl<B: Body> MeasureBody<B> {
    pub(super) fn new(inner: B, mut exchange: Exchange) -> Self {
        if inner.is_end_stream() {
            // It is not polled.
            exchange.complete();
        }
        Self { inner, exchange }
    }
}

impl<B: Body> Body for MeasureBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let polled = this.exchange.inside(|| this.inner.as_mut().poll_frame(cx));
        match &polled {
            Poll::Pending => this.exchange.handed_over(),
            Poll::Ready(None) => this.exchange.complete(),
            Poll::Ready(Some(Err(_))) => this.exchange.failed(),
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => this.exchange.data(data.remaining(), this.inner.is_end_stream()),
                // Nothing follows trailers.
                None => this.exchange.complete(),
            },
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
