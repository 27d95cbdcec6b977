//! A body that fails if it is too slow.
//!
//! A window counts the bytes of the body, and the time in which the consumer waits for it: from a `Pending` of the body
//! until the body wakes the consumer, or until the consumer polls again. Time in which the consumer does
//! something else does not count.
//!
//! Invariants:
//! 1. A window ends when it has its bytes, and the next one begins. So a body without an error has the rate on average.
//! 2. The body fails only when it has just returned `Pending`: bytes that are ready are never too late.
//! 3. There is no timer, and the clock is not read, while the body has frames ready.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::silence::Timer;

type BoxError = Box<dyn Error + Send + Sync>;

/// Limits how slow `body` may be: it fails with a [`MinRateError`] if it yields fewer than `rate` bytes a second in
/// `time`, while its consumer waits for it.
///
/// `body` is the body of a request that a service reads, or of a response that a client reads. With reqwest, pass
/// `http::Response::<reqwest::Body>::from(response).into_body()`.
///
/// The time begins with the first poll. It runs only while the body has nothing ready and the consumer waits, not while
/// the consumer does something else. When `rate` times `time` bytes have come, the next period begins. So a body that
/// stops fails after a wait of `time`. One that ends without an error had at least `rate` on average while it was
/// waited for, except in its last period. A `time` of some seconds permits pauses. With a `rate` or a `time` of 0 there
/// is no limit.
///
/// Trailers, the end and other errors pass unchanged.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
///
/// use bytes::Bytes;
/// use http_body_util::{BodyExt, StreamBody};
/// use hyper::body::Frame;
/// use millstream::body::{MinRateError, min_rate};
///
/// // Stands for the response of a server that sends five bytes and stops.
/// let (sender, receiver) = tokio::sync::mpsc::channel::<std::io::Result<Frame<Bytes>>>(1);
/// sender.send(Ok(Frame::data("first".into()))).await.unwrap();
/// # let mut receiver = receiver;
/// let body = StreamBody::new(futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx)));
///
/// // At least 1 KiB a second, measured over 100 ms.
/// let error = min_rate(body, 1024, Duration::from_millis(100)).collect().await.unwrap_err();
/// assert!(error.is::<MinRateError>(), "{error}");
/// # }
/// ```
///
/// # Errors
///
/// Fails with a boxed `MinRateError`, or with the error of `body`. Once too slow, the body fails at every poll.
///
/// # Panics
///
/// [`poll_frame`](Body::poll_frame) panics outside of a tokio runtime whose time is enabled, when it has to wait.
pub fn min_rate<B: Body>(body: B, rate: u64, time: Duration) -> MinRate<B> {
    MinRate { body, window: Window::new(rate, time) }
}

pin_project! {
    /// The body of [`min_rate`].
    #[derive(Debug)]
    pub struct MinRate<B> {
        #[pin]
        body: B,
        window: Window,
    }
}

impl<B> Body for MinRate<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let me = self.project();
        me.window.end_wait(cx.waker());
        if !me.window.has_failed
            && let Poll::Ready(frame) = me.body.poll_frame(&mut Context::from_waker(&me.window.waker))
        {
            let frame = frame.transpose().map_err(Into::into)?;
            me.window.add(frame.as_ref().and_then(Frame::data_ref).map_or(0, Buf::remaining));
            return Poll::Ready(Ok(frame).transpose());
        }
        me.window.poll_late(cx).map(|error| Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug)]
struct Window {
    rate: u64,
    time: Duration,
    /// Bytes that must come in `time`.
    need: u64,
    bytes: u64,
    waited: Duration,
    /// When the body returned `Pending`, until the next poll.
    since: Option<Instant>,
    has_failed: bool,
    timer: Timer,
    wakes: Arc<Wakes>,
    /// Wakes `wakes`.
    waker: Waker,
}

impl Window {
    fn new(rate: u64, time: Duration) -> Self {
        let need = u128::from(rate).saturating_mul(time.as_nanos()).div_ceil(1_000_000_000);
        let need = u64::try_from(need).unwrap_or(u64::MAX);
        let time = if need == 0 { Duration::MAX } else { time };
        let wakes = Arc::new(Wakes(Mutex::new((Waker::noop().clone(), None))));
        let waker = Arc::clone(&wakes).into();
        let (bytes, waited) = (0, Duration::ZERO);
        Self { rate, time, need, bytes, waited, since: None, has_failed: false, timer: Timer::default(), wakes, waker }
    }

    /// The consumer, which has `waker`, polls.
    fn end_wait(&mut self, waker: &Waker) {
        let woken = self.wakes.set(waker);
        if let Some(since) = self.since.take() {
            self.waited += woken.unwrap_or_else(Instant::now).saturating_duration_since(since);
        }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes >= self.need {
            (self.bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    /// The body has nothing ready. Ready if it is too slow.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<MinRateError> {
        if self.waited < self.time {
            let now = Instant::now();
            self.since = Some(now);
            let Some(until) = now.checked_add(self.time - self.waited) else { return Poll::Pending };
            ready!(self.timer.poll(cx, until));
            (self.since, self.waited) = (None, self.time);
        }
        self.has_failed = true;
        Poll::Ready(MinRateError { bytes: self.bytes, waited: self.waited, rate: self.rate, time: self.time })
    }
}

/// The waker of the body: it wakes the consumer and keeps the time.
#[derive(Debug)]
struct Wakes(Mutex<(Waker, Option<Instant>)>);

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, (Waker, Option<Instant>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the waker of the consumer. Returns when the body first woke the last one.
    fn set(&self, waker: &Waker) -> Option<Instant> {
        let mut wakes = self.lock();
        wakes.0.clone_from(waker);
        wakes.1.take()
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let mut wakes = self.lock();
        wakes.1.get_or_insert_with(Instant::now);
        let consumer = wakes.0.clone();
        drop(wakes);
        consumer.wake();
    }
}

/// Error of a body that is slower than its [`min_rate`].
///
/// It is the error of the body, boxed. To find it under the error of a framework, follow [`source`](Error::source) and
/// downcast. [`io::Error`] is made of it with [`io::ErrorKind::TimedOut`].
#[derive(Debug)]
pub struct MinRateError {
    bytes: u64,
    waited: Duration,
    rate: u64,
    time: Duration,
}

impl fmt::Display for MinRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, waited, rate, time } = self;
        write!(f, "the body yielded {bytes} bytes in {waited:?}; the limit is {rate} bytes a second over {time:?}")
    }
}

impl Error for MinRateError {}

/// `TimedOut`.
impl From<MinRateError> for io::Error {
    fn from(error: MinRateError) -> Self {
        Self::new(io::ErrorKind::TimedOut, error)
    }
}
