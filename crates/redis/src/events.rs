//! Events for operators, in `tracing` under the target `millstream`; without the feature `tracing`, empty functions.

use std::error::Error;

pub(crate) fn away(address: &str, error: &dyn Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", address, error = %error, "connection to Redis lost; events wait for a retry");
    let _ = (address, error);
}

pub(crate) fn back(address: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", address, "connection to Redis restored");
    let _ = address;
}
