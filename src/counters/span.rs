//! Spans of connections and requests (feature `tracing`). Without the feature they are empty.

use std::fmt::Debug;

use super::labels::ResponseOutcome;
use super::requests::Ended;

#[cfg(feature = "tracing")]
#[derive(Debug)]
pub(crate) struct Span(Option<Box<tracing::Span>>);

#[cfg(feature = "tracing")]
impl Span {
    /// Returns the span of a connection, the parent of its requests' spans.
    pub(crate) fn connection(id: u64, peer: &dyn Debug) -> Self {
        let span = tracing::debug_span!(target: "millstream", "connection", id, ?peer);
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    pub(crate) fn request(method: &'static str, version: &'static str) -> Self {
        use tracing::field::Empty;
        let span = tracing::debug_span!(
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
        );
        // Few are enabled, and every request moves this several times.
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    #[inline]
    pub(crate) fn inside<R>(&self, run: impl FnOnce() -> R) -> R {
        let _entered = self.0.as_ref().map(|span| span.enter());
        run()
    }

    /// Calls `request_id` only if the span is enabled.
    #[inline]
    pub(crate) fn identify<I: std::fmt::Display>(&self, request_id: impl FnOnce() -> Option<I>) {
        if let Some(span) = &self.0
            && let Some(id) = request_id()
        {
            span.record("request_id", tracing::field::display(id));
        }
    }

    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        if let Some(span) = &self.0 {
            span.record("status", status);
        }
    }

    #[inline]
    pub(crate) fn ended(&self, ended: Ended, outcome: ResponseOutcome) {
        if let Some(span) = &self.0 {
            span.record("bytes", ended.bytes);
            span.record("frames", ended.frames);
            span.record("duration", ended.duration as f64 / 1e9);
            span.record("outcome", outcome.as_str());
        }
    }
}

#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub(crate) struct Span;

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn request(_: &'static str, _: &'static str) -> Self {
        Self
    }

    pub(crate) fn connection(_: u64, _: &dyn Debug) -> Self {
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
