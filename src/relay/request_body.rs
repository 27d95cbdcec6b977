//! The body of a request on its way to the upstream.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::server::body_error::status_of;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request; `None` if it has none.
pub(super) struct OutBody(Option<Upload>);

struct Upload {
    body: UnsyncBoxBody<Bytes, BoxError>,
    progress: Arc<Progress>,
    held: Option<Held>,
}

/// Time that an upstream has to say whether it wants the body, because it may not say so (RFC 9110 §10.1.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// Until the upstream wants the body. The client is told to continue when its body is polled.
struct Held {
    wanted: oneshot::Receiver<()>,
    limit: Pin<Box<Sleep>>,
}

impl Held {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.wanted).poll(cx) {
            // Or the upstream cannot say so.
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => self.limit.as_mut().poll(cx),
        }
    }
}

/// How far an upload is, so that a slow one is not mistaken for an upstream that does not answer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    frames: AtomicUsize,
    ended: AtomicBool,
    failed: OnceLock<StatusCode>,
}

impl Progress {
    pub(super) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns whether all of it was received from the client.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the status for the client if its body could not be read. That is no fault of the upstream.
    pub(super) fn failed(&self) -> Option<StatusCode> {
        self.failed.get().copied()
    }
}

impl OutBody {
    /// Wraps a body. Also returns its progress; `None` if the request has no body.
    pub(super) fn new<B>(body: B) -> (Self, Option<Arc<Progress>>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        if body.is_end_stream() {
            return (Self(None), None);
        }
        let progress = Arc::<Progress>::default();
        let body = body.map_err(Into::into).boxed_unsync();
        let upload = Upload { body, progress: Arc::clone(&progress), held: None };
        (Self(Some(upload)), Some(progress))
    }

    /// Holds the body back until what is returned is used or dropped, at most for a second.
    pub(super) fn hold(&mut self) -> oneshot::Sender<()> {
        let (want, wanted) = oneshot::channel();
        if let Some(upload) = &mut self.0 {
            upload.held = Some(Held { wanted, limit: Box::pin(sleep(PATIENCE)) });
        }
        want
    }

    pub(super) fn empty() -> Self {
        Self(None)
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(Upload { body, progress, held }) = &mut self.0 else { return Poll::Ready(None) };
        if let Some(waiting) = held {
            ready!(waiting.poll(cx));
            *held = None;
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        progress.frames.fetch_add(1, Ordering::Relaxed);
        if let Some(Err(error)) = &frame {
            progress.failed.get_or_init(|| status_of(&**error).unwrap_or(StatusCode::BAD_REQUEST));
        }
        progress.ended.store(frame.is_none() || body.is_end_stream(), Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|upload| upload.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |upload| upload.body.size_hint())
    }
}
