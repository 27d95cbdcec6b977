//! The span of a request (feature `tracing`). Without the feature it is nothing.

use super::labels::Outcome;
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

    /// `request_id` is asked for if anybody listens.
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
    pub(crate) fn ended(&self, ended: Ended, outcome: Outcome) {
        if !self.0.is_disabled() {
            self.0.record("bytes", ended.bytes);
            self.0.record("frames", ended.frames);
            self.0.record("duration", ended.duration as f64 / 1e9);
            self.0.record("outcome", outcome.as_str());
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

    #[inline]
    pub(crate) fn inside<R>(&self, run: impl FnOnce() -> R) -> R {
        run()
    }

    pub(crate) fn identify<I>(&self, _: impl FnOnce() -> Option<I>) {}

    pub(crate) fn answered(&self, _: u16) {}

    pub(crate) fn ended(&self, _: Ended, _: Outcome) {}
}
