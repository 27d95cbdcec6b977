//! Spans of connections and requests (feature `tracing`). Without the feature they are empty.

use std::fmt::Debug;

use super::labels::ResponseOutcome;
use super::requests::Ended;

#[cfg(feature = "tracing")]
#[derive(Debug)]
pub(crate) struct Span(tracing::Span);

#[cfg(feature = "tracing")]
impl Span {
    pub(crate) fn request(method: &'static str, version: &'static str) -> Self {
        use tracing::field::Empty;
        Self(tracing::debug_span!(
            target: "millstream",
            "http.request",
            method,
            version,
            request_id = Empty,
            status = Empty,
            bytes = Empty,
            frames = Empty,
            duration = Empty,
            outcome = Empty,
        ))
    }

    #[inline]
    pub(crate) fn inside<R>(&self, run: impl FnOnce() -> R) -> R {
        self.0.in_scope(run)
    }

    /// Calls `request_id` only if the span is enabled.
    #[inline]
    pub(crate) fn identify<I: std::fmt::Display>(&self, request_id: impl FnOnce() -> Option<I>) {
        if !self.0.is_disabled()
            && let Some(id) = request_id()
        {
            self.0.record("request_id", tracing::field::display(id));
        }
    }

    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        self.0.record("status", status);
    }

    #[inline]
    pub(crate) fn ended(&self, ended: Ended, outcome: ResponseOutcome) {
        if !self.0.is_disabled() {
            self.0.record("bytes", ended.bytes);
            self.0.record("frames", ended.frames);
            self.0.record("duration", ended.duration as f64 / 1e9);
            self.0.record("outcome", outcome.as_str());
        }
    }
}

/// Runs a connection's task in a span that is the parent of its requests' spans.
#[cfg(feature = "tracing")]
pub(crate) fn connection<T: Future>(id: u64, peer: &dyn Debug, task: T) -> impl Future<Output = T::Output> + use<T> {
    use tracing::Instrument;
    task.instrument(tracing::debug_span!(target: "millstream", "connection", id, ?peer))
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn connection<T: Future>(_: u64, _: &dyn Debug, task: T) -> T {
    task
}

#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub(crate) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn request(_: &'static str, _: &'static str) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn inside<R>(&self, run: impl FnOnce() -> R) -> R {
        run()
    }

    pub(crate) fn identify<I>(&self, _: impl FnOnce() -> Option<I>) {}

    pub(crate) fn answered(&self, _: u16) {}

    pub(crate) fn ended(&self, _: Ended, _: ResponseOutcome) {}
}
