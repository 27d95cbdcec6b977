//! Builder of a TLS configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::CryptoProvider;

use super::clients::Clients;
use super::config::Tls;
use super::error::TlsError;
use super::identity::Identity;
use super::pem::Pem;
use super::provider;
use super::sources::Sources;
use super::tickets::TicketFile;

/// Default interval at which a server with rotating ticket keys checks its files.
const EVERY: Duration = Duration::from_secs(60);

/// Builder of [`Tls`], from [`Tls::builder`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use millstream::server::tls::Tls;
///
/// let tls = Tls::builder()
///     .certificate_files("example.org.pem", "example.org.key")
///     .certificate_files("example.com.pem", "example.com.key")
///     .ticket_keys("tickets.key")
///     .rotate_ticket_keys(Duration::from_secs(6 * 60 * 60))
///     .client_roots_file("staff-ca.pem")
///     .optional_client_certificate()
///     .reload_every(Duration::from_secs(60))
///     .build()?;
/// # Ok::<(), millstream::server::tls::TlsError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct TlsBuilder {
    provider: Option<Arc<CryptoProvider>>,
    identities: Vec<Identity>,
    roots: Option<Pem>,
    revoked: Option<Pem>,
    optional: bool,
    tickets: Option<PathBuf>,
    rotate_every: Option<Duration>,
    every: Option<Duration>,
    /// OCSP response without a certificate, which is an error of `build`.
    stray_ocsp: Option<PathBuf>,
}

impl Tls {
    /// Returns a builder without a certificate.
    pub fn builder() -> TlsBuilder {
        TlsBuilder::new()
    }

    /// Reads a PEM certificate chain, the server's certificate first, and its key (PKCS #8, PKCS #1 or SEC 1). Blocks.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or used, or the key belongs to another certificate. The error names the file.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        Self::builder().certificate_files(certificate, key).build()
    }

    /// Reads a certificate chain and its key, as [`from_files`](Self::from_files), from PEM texts.
    ///
    /// # Errors
    ///
    /// If a text has nothing usable, or the key belongs to another certificate.
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        Self::builder().certificate_pem(certificate, key).build()
    }
}

impl TlsBuilder {
    fn new() -> Self {
        Self {
            provider: None,
            identities: Vec::new(),
            roots: None,
            revoked: None,
            optional: false,
            tickets: None,
            rotate_every: None,
            every: None,
            stray_ocsp: None,
        }
    }

    /// Adds a PEM certificate chain, the server's certificate first, and its key (PKCS #8, PKCS #1 or SEC 1).
    ///
    /// If there are several certificates, one is selected by the server name that the client requests (SNI): a
    /// certificate with this DNS name, or else one with a wildcard for its first label, or else the certificate that
    /// was added first. If several match, the first one whose key the client supports is used. So a certificate with an
    /// RSA key can be added after one with an ECDSA key.
    pub fn certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identities.push(Identity::new(Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// Adds a certificate chain and its key, as [`certificate_files`](Self::certificate_files), from PEM texts.
    pub fn certificate_pem(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        let text = |text: &[u8]| Pem::Text(text.to_vec());
        self.identities.push(Identity::new(text(certificate.as_ref()), text(key.as_ref())));
        self
    }

    /// Sends the OCSP response in a file (DER, RFC 6960) with the certificate added last, to clients that ask for it.
    /// Its contents and age are not checked: another program keeps it up to date, for instance `openssl ocsp`.
    pub fn ocsp_file(mut self, response: impl Into<PathBuf>) -> Self {
        let response = Some(response.into());
        match self.identities.last_mut() {
            Some(identity) => identity.ocsp = response,
            None => self.stray_ocsp = response,
        }
        self
    }

    /// Requires client certificates (mutual TLS) that are issued under a root certificate in this PEM file. Requests
    /// have the certificate as [`ClientCertificate`](super::ClientCertificate) in their extensions. A handshake without
    /// a valid one fails.
    pub fn client_roots_file(mut self, roots: impl Into<PathBuf>) -> Self {
        self.roots = Some(Pem::File(roots.into()));
        self
    }

    /// Requires certificates of clients as [`client_roots_file`](Self::client_roots_file), with roots in a PEM text.
    pub fn client_roots_pem(mut self, roots: impl AsRef<[u8]>) -> Self {
        self.roots = Some(Pem::Text(roots.as_ref().to_vec()));
        self
    }

    /// Sets certificate revocation lists (CRL, RFC 5280) from a PEM file. A client is refused if a list revokes its
    /// certificate, or an intermediate certificate of its chain. If an issuer has no list, its certificates are
    /// accepted. A list is also used after its next update was due: certificates that it does not revoke are accepted.
    ///
    /// Sessions are not resumed if their certificates were verified with other roots or lists.
    pub fn client_revocations_file(mut self, lists: impl Into<PathBuf>) -> Self {
        self.revoked = Some(Pem::File(lists.into()));
        self
    }

    /// Accepts clients without a certificate as well. If a client sends a certificate, it must be valid.
    pub fn optional_client_certificate(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Reads the keys of session tickets from a file. Sessions can then be resumed after a restart, and by other
    /// instances with the same file: 1 to 16 keys of 32 random bytes. The first encrypts, all decrypt. A ticket is
    /// accepted for 12 hours, and only with the same settings for certificates of clients.
    ///
    /// Anyone who has such a key can decrypt recorded sessions of TLS 1.2. Keep the file private, and replace old keys,
    /// or let the server [do so](Self::rotate_ticket_keys).
    pub fn ticket_keys(mut self, file: impl Into<PathBuf>) -> Self {
        self.tickets = Some(file.into());
        self
    }

    /// Makes the server create the file of [`ticket_keys`](Self::ticket_keys) if there is none, with mode 0600, and put
    /// a new key first when the file is older than `age`. Two older keys are kept. The file is checked with the others,
    /// every minute without [`reload_every`](Self::reload_every).
    ///
    /// If the file cannot be replaced, the old keys stay in use, and an error is logged.
    pub fn rotate_ticket_keys(mut self, age: Duration) -> Self {
        self.rotate_every = Some(age);
        self
    }

    /// Sets the cryptography provider. Its cipher suites are preferred in their order. The default is the provider that
    /// the process has [installed](CryptoProvider::install_default), or else AWS-LC with the feature `tls-aws-lc-rs`,
    /// or else ring.
    pub fn provider(mut self, provider: Arc<CryptoProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Makes a server with this configuration check the files at this interval, and reload them if they have changed.
    /// Errors are logged once for each change. The interval is longer than zero.
    pub fn reload_every(mut self, period: Duration) -> Self {
        self.every = Some(period);
        self
    }

    /// Reads the files. Blocks.
    ///
    /// # Errors
    ///
    /// If there is no cryptography provider or no certificate, if a file or text cannot be read or used, if an option
    /// has an invalid value, or if an option needs another one that is not set. The error names the file or the option.
    pub fn build(self) -> Result<Tls, TlsError> {
        self.check()?;
        let provider = self.provider.map_or_else(provider::provider, Ok)?;
        let mut sources = Sources::new(provider);
        sources.identities = self.identities;
        let (revoked, optional) = (self.revoked, self.optional);
        sources.clients = self.roots.map(|roots| Clients { roots, revoked, optional });
        let rotate_every = self.rotate_every;
        sources.tickets = self.tickets.map(|path| TicketFile::new(path, rotate_every));
        Tls::new(sources, self.every.or(rotate_every.map(|_| EVERY)))
    }

    fn check(&self) -> Result<(), TlsError> {
        let wrong = |option, why: &str| Err(TlsError::Setting(option, why.to_owned()));
        const ROOTS: &str = "set without roots; allowed: together with client_roots_file or client_roots_pem";
        if let Some(path) = &self.stray_ocsp {
            let why =
                format!("{} before any certificate; allowed: after the certificate it belongs to", path.display());
            return wrong("ocsp_file", &why);
        }
        match self {
            Self { every: Some(Duration::ZERO), .. } => wrong("reload_every", "0 s; allowed: a longer time"),
            Self { roots: None, revoked: Some(_), .. } => wrong("client_revocations_file", ROOTS),
            Self { roots: None, optional: true, .. } => wrong("optional_client_certificate", ROOTS),
            Self { tickets: None, rotate_every: Some(_), .. } => {
                wrong("rotate_ticket_keys", "set without a file; allowed: together with ticket_keys")
            }
            _ => Ok(()),
        }
    }
}
