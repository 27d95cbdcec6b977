//! A request body that says whether it gets on, so that an upload that takes its time is not taken for a server that hangs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use millstream::server::{BodyError, RequestBody};

/// Counts the frames of a body as they are taken.
#[derive(Debug)]
pub(crate) struct Watched {
    body: RequestBody,
    frames: Arc<AtomicUsize>,
}

impl Watched {
    /// The body, and the count of its frames.
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
