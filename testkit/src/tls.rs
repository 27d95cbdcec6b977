//! Configurations of rustls, which chooses no cryptography by itself if it is built with several.

use std::sync::Arc;

use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WantsServerCert;
use tokio_rustls::rustls::{
    ALL_VERSIONS, ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion, WantsVerifier,
};

pub fn any_client(versions: &[&'static SupportedProtocolVersion]) -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(default_provider())).with_protocol_versions(versions).unwrap()
}

/// A client that trusts these certificates.
pub fn client(
    roots: impl IntoIterator<Item = CertificateDer<'static>>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut trusted = RootCertStore::empty();
    for root in roots {
        trusted.add(root).unwrap();
    }
    any_client(ALL_VERSIONS).with_root_certificates(trusted)
}

pub fn any_server() -> ConfigBuilder<ServerConfig, WantsVerifier> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    builder.with_protocol_versions(ALL_VERSIONS).unwrap()
}

/// A server that requires no certificate of clients.
pub fn server() -> ConfigBuilder<ServerConfig, WantsServerCert> {
    any_server().with_no_client_auth()
}
