//! A tower service, as hyper takes services.
//!
//! Does what hyper-util's `TowerToHyperService` does without moving the request into the future first: a service that is
//! ready when it is asked, as nearly all are, is called at once.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use http::Request;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::serve::BoxError;

/// A tower service that is cloned for each request, and notes that there was one.
pub(super) struct Adapter<'a, S> {
    pub(super) service: S,
    pub(super) requested: &'a AtomicBool,
}

impl<S> hyper::service::Service<Request<Incoming>> for Adapter<'_, S>
where
    S: Service<Request<Incoming>, Error: Into<BoxError>> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Answer<S>;

    fn call(&self, request: Request<Incoming>) -> Answer<S> {
        // Not stored anew for every request: the line may be shared.
        if !self.requested.load(Ordering::Relaxed) {
            self.requested.store(true, Ordering::Relaxed);
        }
        let mut service = self.service.clone();
        // With a waker that wakes nobody: a service that is not ready is asked again by the future.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Answer::Called { future: service.call(request) },
            Poll::Ready(Err(error)) => Answer::Failed { error: Some(error.into()) },
            Poll::Pending => Answer::Waiting { call: Some(Box::new((service, request))) },
        }
    }
}

pin_project! {
    /// The future of one answer.
    #[project = AnswerState]
    pub(super) enum Answer<S: Service<Request<Incoming>>> {
        Called { #[pin] future: S::Future },
        Waiting { call: Option<Box<(S, Request<Incoming>)>> },
        Failed { error: Option<BoxError> },
    }
}

impl<S: Service<Request<Incoming>, Error: Into<BoxError>>> Future for Answer<S> {
    type Output = Result<S::Response, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let called = match self.as_mut().project() {
                AnswerState::Called { future } => return future.poll(cx).map_err(Into::into),
                AnswerState::Failed { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after it was ready")));
                }
                AnswerState::Waiting { call } => {
                    let (service, _) = &mut **call.as_mut().expect("internal: taken only when it is replaced");
                    ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    call.take().map(|call| {
                        let (mut service, request) = *call;
                        service.call(request)
                    })
                }
            };
            if let Some(future) = called {
                self.set(Answer::Called { future });
            }
        }
    }
}
