//! A certificate chain and its private key, from PEM (RFC 7468).

use std::path::PathBuf;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};

use super::error::TlsError;
use super::pem::Pem;

/// Where an identity comes from.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) certificate: Pem,
    pub(super) key: Pem,
    /// File of a response of OCSP, DER.
    pub(super) ocsp: Option<PathBuf>,
}

impl Identity {
    pub(super) fn new(certificate: Pem, key: Pem) -> Self {
        Self { certificate, key, ocsp: None }
    }

    /// Reads certificate chain, key and OCSP response. Blocks on files.
    pub(super) fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let certificate_place = self.certificate.place("the certificate's PEM text");
        let wrong = |why: String| TlsError::Certificate(certificate_place.clone(), why);
        let mut chain = Vec::new();
        for (index, der) in CertificateDer::pem_slice_iter(&self.certificate.read()?).enumerate() {
            let der = der.map_err(|e| wrong(format!("no PEM: {e}")))?;
            ParsedCertificate::try_from(&der)
                .map_err(|e| wrong(format!("certificate {} does not parse: {e}", index + 1)))?;
            chain.push(der);
        }
        if chain.is_empty() {
            return Err(wrong("no certificate in it (`BEGIN CERTIFICATE`)".to_owned()));
        }

        let key_place = self.key.place("the key's PEM text");
        let wrong = |why: String| TlsError::Key(key_place.clone(), why);
        let key = PrivateKeyDer::from_pem_slice(&self.key.read()?).map_err(|e| match e {
            pem::Error::NoItemsFound => {
                wrong("no private key in it (PKCS #8, PKCS #1 or SEC 1; one with a password cannot be read)".to_owned())
            }
            e => wrong(format!("no PEM: {e}")),
        })?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|e| wrong(format!("the private key cannot be used: {e}")))?;

        let mut identity = CertifiedKey::new(chain, key);
        match identity.keys_match() {
            // Keys of custom providers may not support the check.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(TlsError::Mismatch(certificate_place, key_place)),
        }
        identity.ocsp = self.ocsp.clone().map(|path| Pem::File(path).read()).transpose()?;
        Ok(identity)
    }
}
