//! The bodies of requests.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::watch::{Wait, Watch};
use crate::observe::counters::{Counter, count};

/// The body of a request to a [server](super::serve()), within its [limits](super::Limits). Frames are passed on as
/// they come.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    /// Bytes that may still come.
    left: u64,
    /// More than that came.
    too_large: bool,
    rate: u64,
    /// `None` if the body is empty.
    watch: Option<Arc<Watch>>,
    /// Since the body had to be waited for.
    wait: Option<Arc<Wait>>,
}

/// Why a request body cannot be read on. A service that fails with this, or with an error that has it as a
/// [source](Error::source), has the request answered for it: 413 or 408.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// It is larger than [`Limits::body`](super::Limits::body), in bytes.
    #[non_exhaustive]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// It made no progress for [`Limits::body_progress`](super::Limits::body_progress).
    #[non_exhaustive]
    TooSlow {
        /// The limit.
        limit: Duration,
    },
    /// The client did not send it to the end, or not as HTTP wants it.
    Broken(hyper::Error),
}

impl RequestBody {
    /// `left`: bytes it may have; `rate`: bytes that have to come at a time.
    pub(super) fn new(incoming: Incoming, left: u64, rate: u64, watch: &Arc<Watch>) -> Self {
        let watch = (!incoming.is_end_stream()).then(|| Arc::clone(watch));
        Self { incoming, left, too_large: false, rate, watch, wait: None }
    }

    fn too_large(&self) -> BodyError {
        BodyError::TooLarge { limit: self.watch.as_ref().map_or(0, |watch| watch.limits.body) }
    }

    fn too_slow(&self) -> BodyError {
        BodyError::TooSlow { limit: self.watch.as_ref().map_or(Duration::ZERO, |watch| watch.limits.body_progress) }
    }

    /// Notes that the body has to be waited for; `true`: for too long already.
    fn pends(&mut self, cx: &Context<'_>) -> bool {
        let Some(watch) = &self.watch else { return false };
        let wait = self.wait.get_or_insert_with(|| {
            let wait = Arc::new(Wait::new(self.rate));
            watch.waits().push(Arc::clone(&wait));
            wait
        });
        wait.pends(cx.waker())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let me = &mut *self;
        if me.too_large {
            return Poll::Ready(Some(Err(me.too_large())));
        }
        let polled = Pin::new(&mut me.incoming).poll_frame(cx);
        if polled.is_pending() && me.pends(cx) {
            return Poll::Ready(Some(Err(me.too_slow())));
        }
        let frame = ready!(polled);
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        if me.wait.as_ref().is_some_and(|wait| wait.came(bytes)) {
            return Poll::Ready(Some(Err(me.too_slow())));
        }
        if bytes > me.left {
            me.too_large = true;
            count(Counter::BodiesTooLarge, 1);
            return Poll::Ready(Some(Err(me.too_large())));
        }
        // `u64::MAX` is no limit.
        if me.left != u64::MAX {
            me.left -= bytes;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
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
        if let (Some(watch), Some(wait)) = (&self.watch, &self.wait) {
            let mut waits = watch.waits();
            if let Some(at) = waits.iter().position(|other| Arc::ptr_eq(other, wait)) {
                waits.swap_remove(at);
            }
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the request body is larger than {limit} bytes"),
            Self::TooSlow { limit } => write!(f, "the request body made no progress for {limit:?}"),
            Self::Broken(_) => f.write_str("the request body was not received to its end"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}
