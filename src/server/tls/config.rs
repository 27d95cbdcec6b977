//! TLS configuration of a server, and its replacement.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::ProducesTickets;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::error::TlsError;
use super::identity::{Files, identity};
use crate::counters::log;
use crate::counters::{Counter, count};

/// TLS configuration for [`Serve::tls`](crate::server::Serve::tls): a certificate chain and its key. Clones share it: a
/// reload applies to all servers that use it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use millstream::files::Files;
/// use millstream::net::TcpListener;
/// use millstream::server::{self, tls::Tls};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::from_files("cert.pem", "key.pem")?.reload_every(Duration::from_secs(60));
/// let listener = TcpListener::bind("0.0.0.0:8443").await?;
/// server::serve(listener, Files::new("public")?).tls(tls).await?;
/// # Ok(())
/// # }
/// ```
///
/// TLS 1.3 and 1.2; HTTP/2 or HTTP/1.1 by ALPN, or without ALPN by the client's first bytes. Sessions are resumed by
/// tickets, whose keys are created by this process, change every six hours, and survive a reload. For client
/// certificates and other options, [`from_config`](Self::from_config) takes a configuration of rustls.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
    every: Option<Duration>,
}

struct Shared {
    /// For new connections. Locked once for each of them, and never during a read of files.
    config: Mutex<Arc<ServerConfig>>,
    /// Locked during a read, so that an older read does not replace a newer one.
    files: Mutex<Option<Files>>,
    provider: Arc<CryptoProvider>,
    /// Shared by all configurations created here, so that sessions outlive them.
    tickets: Option<Arc<dyn ProducesTickets>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tls {
    /// Reads a PEM certificate chain, the server's certificate first, and its key (PKCS #8, PKCS #1 or SEC 1). Blocks.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or used, or the key belongs to another certificate. The error names the file.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let mut files = Files::new(certificate.into(), key.into());
        let provider = Arc::new(ring::default_provider());
        let identity = files.read(&provider)?;
        Self::new(provider, identity, Some(files))
    }

    /// Reads a certificate chain and its key, as [`from_files`](Self::from_files), from PEM texts.
    ///
    /// # Errors
    ///
    /// If a text has nothing usable, or the key belongs to another certificate.
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let identity = of_texts(certificate.as_ref(), key.as_ref(), &provider)?;
        Self::new(provider, identity, None)
    }

    /// Uses a configuration of rustls unchanged, with its ALPN, tickets, client certificates and versions. Set
    /// `alpn_protocols` to `h2` and `http/1.1`: browsers use HTTP/2 only if it is offered.
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        let provider = Arc::clone(config.crypto_provider());
        let shared = Shared { config: Mutex::new(config), files: Mutex::new(None), provider, tickets: None };
        Self { shared: Arc::new(shared), every: None }
    }

    fn new(provider: Arc<CryptoProvider>, identity: CertifiedKey, files: Option<Files>) -> Result<Self, TlsError> {
        let tickets = ring::Ticketer::new()?;
        let config = Mutex::new(config(&provider, &tickets, identity)?);
        let shared = Shared { config, files: Mutex::new(files), provider, tickets: Some(tickets) };
        Ok(Self { shared: Arc::new(shared), every: None })
    }

    /// Makes a server with this configuration check the files at this interval, and reload them if they have changed.
    /// Errors are logged once for each change.
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[must_use]
    pub fn reload_every(mut self, period: Duration) -> Self {
        assert!(!period.is_zero(), "reload_every: the period is zero");
        self.every = Some(period);
        self
    }

    pub(super) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// Reads the files again, for new connections. Open connections are not affected. Blocks on the files.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files), and if there are no files. The previous certificate stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut files = lock(&self.shared.files);
        self.read(files.as_mut().ok_or(TlsError::NoFiles)?)
    }

    /// Reloads the files if they have changed since the last read, and logs the result.
    pub(super) fn reload_if_changed(&self) {
        let mut files = lock(&self.shared.files);
        if let Some(files) = files.as_mut().filter(|files| files.have_changed()) {
            match self.read(files) {
                Ok(()) => log::certificate_replaced(),
                Err(e) => log::certificate_kept(&e),
            }
        }
    }

    fn read(&self, files: &mut Files) -> Result<(), TlsError> {
        let replaced = files.read(&self.shared.provider).and_then(|identity| self.replace(identity));
        count(if replaced.is_ok() { Counter::TlsReloads } else { Counter::TlsReloadsRefused }, 1);
        replaced
    }

    /// Replaces certificate and key, for new connections. Files, if any, are no longer used.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem). The previous certificate stays in use.
    pub fn replace_pem(&self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<(), TlsError> {
        let identity = of_texts(certificate.as_ref(), key.as_ref(), &self.shared.provider)?;
        let mut files = lock(&self.shared.files);
        self.replace(identity)?;
        *files = None;
        Ok(())
    }

    fn replace(&self, identity: CertifiedKey) -> Result<(), TlsError> {
        let new = match &self.shared.tickets {
            Some(tickets) => config(&self.shared.provider, tickets, identity)?,
            // Keeps the user's other settings.
            None => {
                let mut config = ServerConfig::clone(&self.config());
                config.cert_resolver = Arc::new(SingleCertAndKey::from(identity));
                Arc::new(config)
            }
        };
        *lock(&self.shared.config) = new;
        Ok(())
    }

    /// Returns the configuration for new connections.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.shared.config))
    }
}

fn of_texts(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    identity((certificate, "the certificate's PEM text"), (key, "the key's PEM text"), provider)
}

fn config(
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<dyn ProducesTickets>,
    identity: CertifiedKey,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = Arc::clone(tickets);
    Ok(Arc::new(config))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Tls");
        if let Ok(files) = self.shared.files.try_lock() {
            debug.field("files", &*files);
        }
        debug.field("every", &self.every).finish_non_exhaustive()
    }
}
