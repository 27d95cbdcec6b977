//! Requests that say who has sent them, in their extensions, as services of axum and tonic expect it.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, Request};
use tower_service::Service;

/// A service whose requests carry the extensions of their connection.
#[derive(Clone, Debug)]
pub(super) struct Introduced<S> {
    service: S,
    extensions: Arc<Extensions>,
}

impl<S> Introduced<S> {
    pub(super) fn new(service: S, extensions: Extensions) -> Self {
        Self { service, extensions: Arc::new(extensions) }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Introduced<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if !self.extensions.is_empty() {
            request.extensions_mut().extend((*self.extensions).clone());
        }
        self.service.call(request)
    }
}
