//! A request body that counts its progress, so that a slow upload is not mistaken for a server that hangs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use millstream::server::{BodyError, RequestBody};

/// Counts the frames of a body as they are read.
#[derive(Debug)]
pub(crate) struct Watched {
    body: RequestBody,
    frames: Arc<AtomicUsize>,
}

impl Watched {
    /// Wraps the body. Returns it with the count of its frames.
    pub(crate) fn new(body: RequestBody) -> (Self, Arc<AtomicUsize>) {
        let frames = Arc::new(AtomicUsize::new(0));
        (Self { body, frames: Arc::clone(&frames) }, frames)
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            self.frames.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
