//! Events for operators, in `tracing` under the target `millstream`; without the feature `tracing`, empty functions.

use std::error::Error;

pub(crate) fn upstream_failed(error: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error, "the server behind the proxy has failed");
    let _ = error;
}
