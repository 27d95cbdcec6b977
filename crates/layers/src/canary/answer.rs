//! The response to a request, watched until the end of its body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::request_guard::RequestGuard;
use super::shared::REPORT;
use millstream::body::GracefulClose;
use millstream::internal::is_events;

/// Maximum known length of a body that counts as part of the latency: hyper reads such bodies without waiting for the
/// client.
const SMALL: u64 = 64 << 10;

pin_project! {
    /// Response future of a [`Canary`](super::Canary).
    pub struct CanaryFuture<F> {
        #[pin]
        inner: F,
        request_guard: Option<RequestGuard>,
        bodiless: bool,
    }
}

impl<F> CanaryFuture<F> {
    pub(super) fn new(inner: F, request_guard: RequestGuard, bodiless: bool) -> Self {
        Self { inner, request_guard: Some(request_guard), bodiless }
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
        let request_guard = this.request_guard.take().expect("polled after it was ready");
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                request_guard.failed();
                return Poll::Ready(Err(error));
            }
        };
        if let Some(path) = request_guard.chosen().report() {
            response.headers_mut().insert(REPORT, path);
        }
        let watched = watched(request_guard, &response, *this.bodiless);
        Poll::Ready(Ok(response.map(|inner| CanaryBody { inner, watched })))
    }
}

/// Returns how to watch the body, or `None` if the outcome is known.
fn watched<R: Body>(mut request_guard: RequestGuard, response: &Response<R>, bodiless: bool) -> Option<Watched> {
    let status = response.status();
    if status.is_server_error() {
        request_guard.failed();
        return None;
    }
    let no_body = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless || no_body || response.body().is_end_stream() {
        request_guard.ended();
        return None;
    }
    let left = response.body().size_hint().exact().or_else(|| declared(response.headers()));
    if left.is_none_or(|left| left > SMALL) {
        request_guard.answered();
    }
    if left.is_none() && (response.extensions().get::<GracefulClose>().is_some() || is_events(response.headers())) {
        return Some(Watched { request_guard: Some(request_guard), left, endless: true });
    }
    Some(Watched { request_guard: Some(request_guard), left, endless: false })
}

/// Returns the `Content-Length` that a service set for a body of unknown length.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

struct Watched {
    /// `None` after the end of the body.
    request_guard: Option<RequestGuard>,
    /// Bytes left, if known. hyper does not poll for the end of a body of known length.
    left: Option<u64>,
    endless: bool,
}

impl Watched {
    fn ended(&mut self) {
        if let Some(request_guard) = self.request_guard.take() {
            request_guard.ended();
        }
    }

    fn failed(&mut self) {
        if let Some(request_guard) = self.request_guard.take() {
            request_guard.failed();
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
    /// Response body of a [`Canary`](super::Canary). Frames pass unchanged.
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
        f.debug_struct("CanaryFuture").field("request_guard", &self.request_guard).finish_non_exhaustive()
    }
}

impl<B: fmt::Debug> fmt::Debug for CanaryBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CanaryBody").field("inner", &self.inner).finish_non_exhaustive()
    }
}
