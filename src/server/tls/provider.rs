//! The cryptography of rustls.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
#[cfg(feature = "aws-lc-rs")]
use tokio_rustls::rustls::crypto::aws_lc_rs as chosen;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use tokio_rustls::rustls::crypto::ring as chosen;
use tokio_rustls::rustls::server::ProducesTickets;

use super::error::TlsError;

/// Returns the default of the process, or that of the features.
pub(super) fn provider() -> Result<Arc<CryptoProvider>, TlsError> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(Arc::clone(installed));
    }
    #[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
    return Ok(Arc::new(chosen::default_provider()));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Err(TlsError::NoCryptography)
}

/// Returns tickets whose keys are random, stay in this process, and change every six hours. Without a provider of the
/// features there are none, and rustls keeps sessions in memory.
pub(super) fn tickets() -> Result<Option<Arc<dyn ProducesTickets>>, TlsError> {
    #[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
    return Ok(Some(chosen::Ticketer::new()?));
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Ok(None)
}
