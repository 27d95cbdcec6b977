//! Chooses the path of a request, and calls the inner service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, Version};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use super::answer::{CanaryBody, CanaryFuture};
use super::request_guard::RequestGuard;
use super::shared::{CanaryShared, Chosen, take};
use super::strategies::Strategies;
use millstream::internal::identity::{connection, peer};

/// A service whose responses take the path that a canary chooses; see [`CanaryLayer`](super::CanaryLayer).
#[derive(Clone)]
pub struct Canary<S> {
    inner: S,
    shared: Arc<CanaryShared>,
}

impl<S> Canary<S> {
    pub(super) fn new(inner: S, shared: Arc<CanaryShared>) -> Self {
        Self { inner, shared }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S, B, R> Service<Request<B>> for Canary<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<CanaryBody<R>>;
    type Error = S::Error;
    type Future = CanaryFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> CanaryFuture<S::Future> {
        let shared = &self.shared;
        let start = Instant::now();
        let known = connection(request.extensions()).cloned();
        let peer = match &known {
            Some(known) => known.peer(),
            None => peer(request.extensions()),
        };
        let asked = shared.asked(request.headers_mut(), peer);
        let multiplexed = request.version() >= Version::HTTP_2;
        let chosen = match &known {
            Some(known) => {
                let wanted = shared.wanted(known, asked, multiplexed);
                let chosen = shared.choose(wanted, Strategies::of(known).base, peer, start);
                take(known, chosen.path);
                Chosen { reported: shared.reported(known), ..chosen }
            }
            None => shared.unchanged(),
        };
        let request_guard = RequestGuard::new(Arc::clone(shared), chosen, peer, start);
        // Their responses have no body, or none of the service.
        let bodiless = matches!(*request.method(), Method::HEAD | Method::CONNECT);
        CanaryFuture::new(self.inner.call(request), request_guard, bodiless)
    }
}

impl<S: fmt::Debug> fmt::Debug for Canary<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canary").field("inner", &self.inner).finish_non_exhaustive()
    }
}
