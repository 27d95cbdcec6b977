//! A body as a stream of its pieces, within a limit. The trailers are kept aside.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use http::HeaderMap;
use http_body::Body;
use pin_project_lite::pin_project;

use super::error::BoxError;

pin_project! {
    #[derive(Debug)]
    pub(super) struct Pieces<B> {
        #[pin]
        body: B,
        // Bytes that may still arrive.
        left: u64,
        trailers: HeaderMap,
    }
}

#[derive(Debug)]
pub(super) enum Failed {
    TooLarge,
    Body(BoxError),
}

impl<B> Pieces<B> {
    pub(super) fn new(body: B, left: u64) -> Self {
        Self { body, left, trailers: HeaderMap::new() }
    }

    pub(super) fn take_trailers(self: Pin<&mut Self>) -> HeaderMap {
        std::mem::take(self.project().trailers)
    }
}

impl<B: Body<Error: Into<BoxError>>> Stream for Pieces<B> {
    type Item = Result<Bytes, Failed>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut me = self.project();
        loop {
            let frame = match ready!(me.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(e)) => return Poll::Ready(Some(Err(Failed::Body(e.into())))),
                None => return Poll::Ready(None),
            };
            let frame = match frame.into_data() {
                Ok(mut data) => {
                    let Some(left) = me.left.checked_sub(data.remaining() as u64) else {
                        return Poll::Ready(Some(Err(Failed::TooLarge)));
                    };
                    *me.left = left;
                    return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining()))));
                }
                Err(other) => other,
            };
            if let Ok(trailers) = frame.into_trailers() {
                me.trailers.extend(trailers);
            }
        }
    }
}
