//! The certificate of the servers over TLS, which they get in their environment.

use std::env::{VarError, var};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio_rustls::rustls::ClientConfig;

/// The name in the certificate.
pub(crate) const NAME: &str = "bench";
const CERTIFICATE: &str = "BENCH_CERTIFICATE";
const KEY: &str = "BENCH_KEY";

static MADE: LazyLock<CertifiedKey<KeyPair>> =
    LazyLock::new(|| generate_simple_self_signed([NAME.to_owned()]).expect("a name"));

/// Gives a server its certificate and its key.
pub(crate) fn give(command: &mut Command) {
    command.env(CERTIFICATE, MADE.cert.pem()).env(KEY, MADE.signing_key.serialize_pem());
}

/// Returns a client that trusts the certificate.
pub(crate) fn client() -> Arc<ClientConfig> {
    Arc::new(testkit::tls::client([MADE.cert.der().clone()]).with_no_client_auth())
}

/// Returns the certificate and the key of this server, as PEM.
pub(crate) fn own() -> Result<(String, String), VarError> {
    Ok((var(CERTIFICATE)?, var(KEY)?))
}
