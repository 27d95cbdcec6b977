//! The answer to a request, watched until its body has ended.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::shared::REPORT;
use super::watch::Watch;
use crate::body::Ending;

/// Bodies of known length up to this are part of the latency: hyper takes them as fast as they come.
const SMALL: u64 = 64 << 10;

pin_project! {
    /// The future of an answer that a canary watches.
    pub struct CanaryFuture<F> {
        #[pin]
        inner: F,
        watch: Option<Watch>,
        bodiless: bool,
    }
}

impl<F> CanaryFuture<F> {
    pub(super) fn new(inner: F, watch: Watch, bodiless: bool) -> Self {
        Self { inner, watch: Some(watch), bodiless }
    }
}

impl<F, R, E> Future for CanaryFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<CanaryBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        let watch = this.watch.take().expect("polled after it was ready");
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                watch.failed();
                return Poll::Ready(Err(error));
            }
        };
        if let Some(path) = watch.chosen().report() {
            response.headers_mut().insert(REPORT, path);
        }
        let watched = watched(watch, &response, *this.bodiless);
        Poll::Ready(Ok(response.map(|inner| CanaryBody { inner, watched })))
    }
}

/// What has to be watched of a body, if anything.
fn watched<R: Body>(mut watch: Watch, response: &Response<R>, bodiless: bool) -> Option<Watched> {
    let status = response.status();
    if status.is_server_error() {
        watch.failed();
        return None;
    }
    let no_body = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless || no_body || response.body().is_end_stream() {
        watch.ended();
        return None;
    }
    let left = response.body().size_hint().exact().or_else(|| declared(response.headers()));
    if left.is_none_or(|left| left > SMALL) {
        watch.answered();
    }
    if left.is_none() && (response.extensions().get::<Ending>().is_some() || is_events(response.headers())) {
        return Some(Watched { watch: Some(watch), left, endless: true });
    }
    Some(Watched { watch: Some(watch), left, endless: false })
}

/// The length that a service has given a body which does not know it.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether it is a stream of server-sent events, which clients leave when they like.
fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.and_then(|kind| kind.get(..17)).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
}

/// A body that has not ended.
struct Watched {
    /// `None` when it has.
    watch: Option<Watch>,
    /// Bytes that are missing, where that is known: hyper does not ask for an end that it knows.
    left: Option<u64>,
    endless: bool,
}

impl Watched {
    fn ended(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.ended();
        }
    }

    fn failed(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.failed();
        }
    }

    fn came(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
            if *left == 0 {
                self.ended();
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.endless && !std::thread::panicking() {
            self.ended();
        }
    }
}

pin_project! {
    /// A body that a canary watches: its frames, unchanged.
    pub struct CanaryBody<B> {
        #[pin]
        inner: B,
        watched: Option<Watched>,
    }
}

impl<B: Body> Body for CanaryBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(watched) = this.watched {
            match &frame {
                Some(Ok(frame)) => {
                    watched.came(frame.data_ref().map_or(0, |data| data.remaining()));
                    if this.inner.is_end_stream() {
                        watched.ended();
                    }
                }
                Some(Err(_)) => watched.failed(),
                None => watched.ended(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<F> fmt::Debug for CanaryFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanaryFuture").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl<B: fmt::Debug> fmt::Debug for CanaryBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanaryBody").field("inner", &self.inner).finish_non_exhaustive()
    }
}
