//! The task of a connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::connection::{ConnectionStep, Next};
use crate::counters::log;
use crate::counters::span::Span;
use crate::server::error::BoxError;

/// Runs a connection in its span to its end, which it logs, and holds `R` until then. A task of this size needs 128 bytes,
/// and a larger one needs 256.
pub(in crate::server) struct Run<R> {
    pub(in crate::server) step: ConnectionStep,
    pub(in crate::server) held: Box<(Span, R)>,
}

const _: () = assert!(size_of::<Run<()>>() <= 24);

impl<R> Future for Run<R> {
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { step, held } = &mut *self;
        loop {
            match ready!(held.0.inside(|| step.as_mut().poll(cx))) {
                Next::Step(next) => *step = next,
                Next::Ended(ended) => return Poll::Ready(ended.inspect_err(|error| log::connection_failed(&**error))),
            }
        }
    }
}
