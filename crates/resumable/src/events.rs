//! Events for operators, in `tracing` under the target `millstream`. Without the feature `tracing` there are none.

use std::fmt;

/// A producer of a stream has failed. Its readers do not get the error.
pub(crate) fn producer_failed(error: &dyn fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", %error, "the producer of a stream of events has failed");
    let _ = error;
}

/// A stream ends at this instance, because its log cannot be used.
pub(crate) fn stream_lost(error: &dyn fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", %error, "the log of a stream of events has failed");
    let _ = error;
}
