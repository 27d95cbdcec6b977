//! The body of a request on its way to the upstream. Its first bytes are kept while the request may have to be sent
//! again.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use super::fields::clean_trailers;
use super::head_first::BodyHold;
use millstream::internal::Framing;
use millstream::internal::status_of;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of bytes of a body that are kept.
const KEPT: usize = 64 << 10;
/// The same for all bodies of a proxy.
pub(crate) const ALL_KEPT: usize = 16 << 20;

/// The body of a request, for one attempt to send it; `None` if it has none.
pub(crate) struct OutBody(Option<Attempt>);

struct Attempt {
    upload: Arc<Upload>,
    number: u32,
    /// Bytes that an earlier attempt received.
    again: Option<Bytes>,
    /// Counts the bytes as which hyper sends the body.
    counted: Option<(BodyHold, Framing)>,
}

/// A request body, shared by all attempts to send the request. Reports its progress, so that a slow upload is not
/// mistaken for an upstream that does not answer.
pub(crate) struct Upload {
    frames: AtomicUsize,
    ended: AtomicBool,
    failed: OnceLock<StatusCode>,
    source: Mutex<Source>,
}

struct Source {
    body: UnsyncBoxBody<Bytes, BoxError>,
    held: Option<HeldBody>,
    /// Number of the attempt that reads.
    attempt: u32,
    /// When the last frame was received, if there was one.
    last: Option<Instant>,
    kept: Option<Kept>,
}

/// All bytes that were received. They are copied, because a frame may share a larger buffer with others.
struct Kept {
    data: Vec<u8>,
    /// As many permits as `data` has capacity.
    room: OwnedSemaphorePermit,
}

/// Time that an upstream has to request the body by `100 Continue`; it need not do so (RFC 9110 §10.1.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// A body that is held until the upstream requests it. The client gets `100 Continue` when its body is polled.
struct HeldBody {
    wanted: oneshot::Receiver<()>,
    limit: Pin<Box<Sleep>>,
}

impl HeldBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.wanted).poll(cx) {
            // The sender may also be dropped: then the upstream cannot request the body.
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => self.limit.as_mut().poll(cx),
        }
    }
}

impl Kept {
    /// Adds a frame. Returns whether there is room for it; trailers are not kept.
    fn add(&mut self, frame: &Frame<Bytes>) -> bool {
        let Some(data) = frame.data_ref() else { return false };
        let has_room = self.grow(self.data.len() + data.len());
        if has_room {
            self.data.extend_from_slice(data);
        }
        has_room
    }

    fn grow(&mut self, len: usize) -> bool {
        let room = self.room.num_permits();
        if len <= room {
            return true;
        }
        let capacity = len.next_power_of_two();
        let more = u32::try_from(capacity - room).ok().filter(|_| capacity <= KEPT);
        let Some(Ok(more)) = more.map(|more| Arc::clone(self.room.semaphore()).try_acquire_many_owned(more)) else {
            return false;
        };
        self.room.merge(more);
        self.data.reserve_exact(capacity - self.data.len());
        true
    }
}

impl Upload {
    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns the time since the last frame, if there was one.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.source().last.map(|last| last.elapsed())
    }

    /// Returns whether all of it was received from the client.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the status for the client if its body could not be read. That is no fault of the upstream.
    pub(crate) fn failed(&self) -> Option<StatusCode> {
        self.failed.get().copied()
    }

    /// Keeps what is received from now on, as long as `room` has a permit for each byte. Does nothing once something
    /// was received.
    pub(crate) fn keep_for_retry(&self, room: &Arc<Semaphore>) {
        let mut source = self.source();
        if self.frames() == 0 {
            let room = Arc::clone(room).try_acquire_many_owned(0);
            source.kept = room.ok().map(|room| Kept { data: Vec::new(), room });
        }
    }

    /// Stops keeping bytes, and drops the kept ones.
    pub(crate) fn settle(&self) {
        self.source().kept = None;
    }

    /// Returns the whole body for another attempt, and ends earlier attempts; `None` if received bytes were not kept.
    pub(crate) fn again(self: &Arc<Self>) -> Option<OutBody> {
        let mut source = self.source();
        let data = match self.frames() {
            0 => &[][..],
            _ if self.failed().is_some() => return None,
            _ => &source.kept.as_ref()?.data,
        };
        let again = Some(Bytes::copy_from_slice(data)).filter(|data| !data.is_empty());
        source.attempt += 1;
        Some(OutBody(Some(Attempt { upload: Arc::clone(self), number: source.attempt, again, counted: None })))
    }

    fn poll_frame(&self, attempt: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut source = self.source();
        let Source { body, held, attempt: current, last, kept } = &mut *source;
        if attempt != *current {
            return Poll::Ready(Some(Err("the request is sent again".into())));
        }
        if let Some(waiting) = held {
            ready!(waiting.poll(cx));
            *held = None;
        }
        let mut frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean_trailers(trailers);
        }
        self.frames.fetch_add(1, Ordering::Relaxed);
        *last = Some(Instant::now());
        match &frame {
            Some(Ok(frame)) => {
                kept.take_if(|kept| !kept.add(frame));
            }
            Some(Err(error)) => {
                self.failed.get_or_init(|| status_of(&**error).unwrap_or(StatusCode::BAD_REQUEST));
            }
            None => {}
        }
        self.ended.store(frame.is_none() || body.is_end_stream(), Ordering::Relaxed);
        Poll::Ready(frame)
    }
}

impl OutBody {
    /// Wraps a body. Also returns what its attempts share; `None` if the request has no body.
    pub(crate) fn new<B>(body: B) -> (Self, Option<Arc<Upload>>)
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        if body.is_end_stream() {
            return (Self(None), None);
        }
        let body = body.map_err(Into::into).boxed_unsync();
        let upload = Arc::new(Upload {
            frames: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            failed: OnceLock::new(),
            source: Mutex::new(Source { body, held: None, attempt: 0, last: None, kept: None }),
        });
        (Self(Some(Attempt { upload: Arc::clone(&upload), number: 0, again: None, counted: None })), Some(upload))
    }

    /// Holds the body back until the returned sender is used or dropped, at most for a second.
    pub(crate) fn hold(&mut self) -> oneshot::Sender<()> {
        let (want, wanted) = oneshot::channel();
        if let Some(attempt) = &mut self.0 {
            attempt.upload.source().held = Some(HeldBody { wanted, limit: Box::pin(sleep(PATIENCE)) });
        }
        want
    }

    /// Counts the bytes as which hyper sends the body over a connection.
    pub(crate) fn count_in(&mut self, hold: &BodyHold, framing: Framing) {
        if let Some(attempt) = &mut self.0 {
            attempt.counted = Some((hold.clone(), framing));
        }
    }

    pub(crate) fn empty() -> Self {
        Self(None)
    }
}

impl Body for OutBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(Attempt { upload, number, again, .. }) = &mut self.0 else { return Poll::Ready(None) };
        let frame = match again.take() {
            Some(data) => Some(Ok(Frame::data(data))),
            None => ready!(upload.poll_frame(*number, cx)),
        };
        let is_last = self.is_end_stream();
        if let Some((hold, framing)) = self.0.as_mut().and_then(|attempt| attempt.counted.as_mut())
            && let Ok(frame) = frame.as_ref().map(Result::as_ref).transpose()
        {
            hold.gave(framing.pass(frame, is_last));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|Attempt { upload, again, .. }| again.is_none() && upload.source().body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(Attempt { upload, again, .. }) = &self.0 else { return SizeHint::with_exact(0) };
        let rest = upload.source().body.size_hint();
        let again = again.as_ref().map_or(0, Bytes::len) as u64;
        let mut hint = SizeHint::new();
        if let Some(most) = rest.upper() {
            hint.set_upper(most.saturating_add(again));
        }
        hint.set_lower(rest.lower().saturating_add(again));
        hint
    }
}

#[cfg(test)]
mod tests;
