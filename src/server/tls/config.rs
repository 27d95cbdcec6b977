//! What a server needs for TLS, and how it is replaced.

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

/// What [`Serve::tls`](crate::server::Serve::tls) needs: a certificate chain and its key. Clones are handles on the same:
/// what one reloads, all servers use.
///
/// ```no_run
/// use millstream::files::Files;
/// use millstream::net::TcpListener;
/// use millstream::server::tls::Tls;
/// use millstream::server;
/// use tokio::signal::unix::{SignalKind, signal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::from_files("cert.pem", "key.pem")?;
/// let (handle, mut hangup) = (tls.clone(), signal(SignalKind::hangup())?);
/// tokio::spawn(async move {
///     while hangup.recv().await.is_some() {
///         if let Err(e) = handle.reload() {
///             eprintln!("the old certificate stays: {e}");
///         }
///     }
/// });
/// let listener = TcpListener::bind("0.0.0.0:8443").await?;
/// server::serve(listener, Files::new("public")?).tls(tls).await?;
/// # Ok(())
/// # }
/// ```
///
/// TLS 1.3 and 1.2; HTTP/2 or HTTP/1.1 by ALPN, and for clients without ALPN by what they begin with. Sessions are
/// resumed by tickets, whose keys stay the same when a certificate is reloaded, are made by this process and change
/// every six hours. No client certificates: for these, and for anything else, [`from_config`](Self::from_config) takes
/// a configuration of rustls.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
    every: Option<Duration>,
}

struct Shared {
    /// For new connections. Locked once for each of them, and never while anything is read.
    config: Mutex<Arc<ServerConfig>>,
    /// Locked while they are read, so that what was read first is not put in last.
    files: Mutex<Option<Files>>,
    provider: Arc<CryptoProvider>,
    /// Of all configurations made here, so that sessions outlive them.
    tickets: Option<Arc<dyn ProducesTickets>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tls {
    /// Reads a certificate chain, the server's own certificate first, and its private key (PKCS #8, PKCS #1 or SEC 1),
    /// both PEM. Blocks while it reads.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, holds nothing that can be used, or the key is another certificate's. The error names
    /// the file.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let mut files = Files::new(certificate.into(), key.into());
        let provider = Arc::new(ring::default_provider());
        let identity = files.read(&provider)?;
        Self::new(provider, identity, Some(files))
    }

    /// As [`from_files`](Self::from_files), of PEM texts.
    ///
    /// # Errors
    ///
    /// If a text holds nothing that can be used, or the key is another certificate's.
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let identity = of_texts(certificate.as_ref(), key.as_ref(), &provider)?;
        Self::new(provider, identity, None)
    }

    /// Takes a configuration as it is: ALPN, tickets, client certificates and versions are what it says. It should
    /// offer `h2` and `http/1.1` by `alpn_protocols`; browsers speak HTTP/2 to nobody who does not.
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

    /// Has the server that is given this look at the files so often, and reload them when they are others. What is
    /// wrong with them is told to the log, once for each change.
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

    /// Reads the files again, for connections that come from now on; those that are open keep what they have. Blocks
    /// while it reads.
    ///
    /// # Errors
    ///
    /// As [`from_files`](Self::from_files), and if there are no files. What was in use stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut files = lock(&self.shared.files);
        self.read(files.as_mut().ok_or(TlsError::NoFiles)?)
    }

    /// Reloads the files if they are others than those that were read last, and tells the log.
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

    /// Replaces certificate and key by others, for connections that come from now on. Files, if it was made of any, are
    /// forgotten.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem). What was in use stays in use.
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
            // All that the user has chosen but the certificate.
            None => {
                let mut config = ServerConfig::clone(&self.config());
                config.cert_resolver = Arc::new(SingleCertAndKey::from(identity));
                Arc::new(config)
            }
        };
        *lock(&self.shared.config) = new;
        Ok(())
    }

    /// The configuration that a connection of now gets.
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
