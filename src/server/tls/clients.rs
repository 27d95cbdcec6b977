//! Certificates of clients (mutual TLS).

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, SupportedCipherSuite};
use webpki::EndEntityCert;

use super::error::TlsError;
use super::pem::Pem;

/// Certificate chain of a client, in the [extensions](http::Extensions) of its requests. It was verified in the
/// handshake of this connection. If the connection resumes a session, it was verified in the first handshake of that
/// session, at most 12 hours before.
///
/// ```
/// use millstream::server::tls::ClientCertificate;
///
/// fn user<B>(request: &http::Request<B>) -> Option<String> {
///     let certificate = request.extensions().get::<ClientCertificate>()?;
///     certificate.dns_names().into_iter().next()
/// }
/// ```
#[derive(Clone)]
pub struct ClientCertificate {
    chain: Arc<[CertificateDer<'static>]>,
}

impl ClientCertificate {
    pub(in crate::server) fn new(chain: &[CertificateDer<'static>]) -> Self {
        Self { chain: chain.into() }
    }

    /// Returns the chain as DER, the client's own certificate first, as it was sent.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Returns the DNS names of the client's certificate (subject alternative names, RFC 5280 §4.2.1.6).
    pub fn dns_names(&self) -> Vec<String> {
        self.parsed().map_or_else(Vec::new, |certificate| certificate.valid_dns_names().map(str::to_owned).collect())
    }

    /// Returns the URIs of the client's certificate, for instance a SPIFFE id.
    pub fn uris(&self) -> Vec<String> {
        self.parsed().map_or_else(Vec::new, |certificate| certificate.valid_uri_names().map(str::to_owned).collect())
    }

    /// A chain that does not parse is refused in the handshake.
    fn parsed(&self) -> Option<EndEntityCert<'_>> {
        self.chain.first().and_then(|certificate| EndEntityCert::try_from(certificate).ok())
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("dns_names", &self.dns_names())
            .field("uris", &self.uris())
            .finish_non_exhaustive()
    }
}

/// Requirements for client certificates.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    pub(super) roots: Pem,
    pub(super) revoked: Option<Pem>,
    pub(super) optional: bool,
}

/// Returns a hash of `bytes`, or themselves if the provider has no suite of TLS 1.3.
fn digest(provider: &CryptoProvider, bytes: &[u8]) -> Vec<u8> {
    let suite = provider.cipher_suites.iter().find_map(SupportedCipherSuite::tls13);
    suite.map_or_else(|| bytes.to_vec(), |suite| suite.common.hash_provider.hash(bytes).as_ref().to_vec())
}

/// A verifier, and a digest of the roots and lists it was built from.
pub(super) struct Verifier {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) digest: Vec<u8>,
}

impl Clients {
    /// Reads roots and revocation lists. Blocks.
    pub(super) fn read(&self, provider: &Arc<CryptoProvider>) -> Result<Verifier, TlsError> {
        let place = self.roots.place("the PEM text of client roots");
        let wrong = |why: String| TlsError::ClientRoots(place.clone(), why);
        let mut parts = vec![u8::from(self.optional)];
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&self.roots.read()?) {
            let root = root.map_err(|e| wrong(format!("no PEM: {e}")))?;
            parts.extend_from_slice(&root);
            roots.add(root).map_err(|e| wrong(format!("certificate {} is not a root: {e}", roots.len() + 1)))?;
        }
        if roots.is_empty() {
            return Err(wrong("no certificate in it (`BEGIN CERTIFICATE`)".to_owned()));
        }

        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let mut revoked_place = None;
        if let Some(revoked) = &self.revoked {
            let place = revoked.place("the PEM text of revocation lists");
            let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&revoked.read()?).collect();
            let lists = lists.map_err(|e| TlsError::Revocations(place.clone(), format!("no PEM: {e}")))?;
            if lists.is_empty() {
                let why = "no revocation list in it (`BEGIN X509 CRL`)".to_owned();
                return Err(TlsError::Revocations(place, why));
            }
            parts.extend(lists.iter().flat_map(|list| list.iter()));
            // An authority without a list revokes nothing.
            builder = builder.with_crls(lists).allow_unknown_revocation_status();
            revoked_place = Some(place);
        }
        if self.optional {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|e| match revoked_place {
            Some(place) => TlsError::Revocations(place, e.to_string()),
            None => wrong(e.to_string()),
        })?;
        Ok(Verifier { verifier, digest: digest(provider, &parts) })
    }
}
