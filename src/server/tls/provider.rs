//! The cryptography of rustls.

use std::sync::Arc;

use tokio_rustls::rustls::CipherSuite;
use tokio_rustls::rustls::crypto::CryptoProvider;
#[cfg(feature = "tls-aws-lc-rs")]
use tokio_rustls::rustls::crypto::aws_lc_rs as chosen;
#[cfg(not(feature = "tls-aws-lc-rs"))]
use tokio_rustls::rustls::crypto::ring as chosen;
use tokio_rustls::rustls::server::ProducesTickets;

use super::error::TlsError;

/// Returns the default provider of the process, or that of the enabled features. It prefers AES-128-GCM with SHA-256 to
/// AES-256-GCM with SHA-384: records take 10 to 15 % less CPU time, and a handshake 15 % less where the CPU has no
/// instructions for SHA-384 and the provider no vector code.
pub(super) fn provider() -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = match CryptoProvider::get_default() {
        Some(installed) => CryptoProvider::clone(installed),
        None => chosen::default_provider(),
    };
    provider.cipher_suites.sort_by_key(|suite| (suite.tls13().is_none(), preference(suite.suite())));
    Ok(Arc::new(provider))
}

const OTHERS: usize = 2;

/// Returns the position of a cipher suite in the order of preference.
fn preference(suite: CipherSuite) -> usize {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => 1,
        _ => OTHERS,
    }
}

/// Returns whether a client prefers ChaCha20 to AES, as clients without AES instructions do.
pub(super) fn prefers_chacha(offered: &[CipherSuite]) -> bool {
    let known = offered.iter().find_map(|&suite| match suite {
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(true),
        _ => (preference(suite) < OTHERS).then_some(false),
    });
    known == Some(true)
}

/// Returns tickets whose keys are random, stay in this process, and change every six hours. Without a provider of the
/// features there are none, and rustls keeps sessions in memory.
pub(super) fn tickets() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    Ok(chosen::Ticketer::new()?)
}
