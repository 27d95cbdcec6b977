//! Adds the peer to the extensions of requests, for services of axum and tonic.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tower_service::Service;

use crate::net::Identity;

/// The service of one connection. Small, because each future that it is moved through reserves space for it.
pub(super) struct Introduced<S, I> {
    service: S,
    peer: Arc<I>,
}

impl<S: Clone, I> Clone for Introduced<S, I> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), peer: Arc::clone(&self.peer) }
    }
}

impl<S, I: Identity> Introduced<S, I> {
    pub(super) fn new(service: S, peer: I) -> Self {
        Self { service, peer: Arc::new(peer) }
    }
}

impl<S: Service<Request<B>>, B, I: Identity> Service<Request<B>> for Introduced<S, I> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        self.peer.insert(request.extensions_mut());
        self.service.call(request)
    }
}
