//! TLS configuration of a server, and its replacement.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_rustls::rustls::{CipherSuite, ServerConfig};

use super::error::TlsError;
use super::identity::Identity;
use super::names::ByName;
use super::pem::Pem;
use super::provider;
use super::sources::Sources;
use crate::counters::log;
use crate::counters::{Counter, count};

/// TLS configuration for [`Server::tls`](crate::server::Server::tls): a certificate chain and its key. Clones share it:
/// a reload applies to all servers that use it.
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
/// let tls = Tls::builder().certificate_files("cert.pem", "key.pem").reload_every(Duration::from_secs(60)).build()?;
/// let listener = TcpListener::bind("0.0.0.0:8443").await?;
/// server::serve(listener, Files::new("public")?).tls(tls).await?;
/// # Ok(())
/// # }
/// ```
///
/// TLS 1.3 and 1.2; HTTP/2 or HTTP/1.1 by ALPN, or without ALPN by the client's first bytes. Sessions are resumed by
/// tickets, whose keys are created by this process, change every six hours, and survive a reload. Early data (0-RTT) is
/// off, because it can be replayed. The server prefers AES-128-GCM to AES-256-GCM and ChaCha20-Poly1305. For clients
/// that prefer ChaCha20-Poly1305 to AES, it prefers ChaCha20-Poly1305. [`builder`](Self::builder) adds certificates for
/// several names, certificates of clients, and ticket keys in a file; for other options,
/// [`from_config`](Self::from_config) takes a configuration of rustls.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<TlsShared>,
    every: Option<Duration>,
}

struct TlsShared {
    /// Locked once for each connection, and never during a read of files.
    current: Mutex<Current>,
    /// Locked during a read, so that an older read does not replace a newer one. `None` for a configuration of rustls.
    sources: Mutex<Option<Sources>>,
}

/// The configuration for new connections.
struct Current {
    config: Arc<ServerConfig>,
    /// The same for clients that prefer ChaCha20 to AES; absent for a configuration of rustls.
    for_chacha: Option<Arc<ServerConfig>>,
}

impl Current {
    fn new(config: Arc<ServerConfig>) -> Self {
        let mut for_chacha = ServerConfig::clone(&config);
        for_chacha.ignore_client_order = false;
        Self { config, for_chacha: Some(Arc::new(for_chacha)) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tls {
    /// Uses a configuration of rustls unchanged, with its ALPN, tickets, client certificates and versions. Set
    /// `alpn_protocols` to `h2` and `http/1.1`: browsers use HTTP/2 only if it is offered.
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        let current = Mutex::new(Current { config, for_chacha: None });
        Self::with(TlsShared { current, sources: Mutex::new(None) }, None)
    }

    pub(super) fn new(mut sources: Sources, every: Option<Duration>) -> Result<Self, TlsError> {
        let current = Mutex::new(Current::new(sources.read()?));
        Ok(Self::with(TlsShared { current, sources: Mutex::new(Some(sources)) }, every))
    }

    fn with(shared: TlsShared, every: Option<Duration>) -> Self {
        Self { shared: Arc::new(shared), every }
    }

    pub(super) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// Reads all files again, for new connections. Open connections are not affected. Blocks on the files.
    ///
    /// # Errors
    ///
    /// As [`TlsBuilder::build`](super::TlsBuilder::build), and if there are no files. The previous configuration stays
    /// in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut sources = lock(&self.shared.sources);
        self.read(sources.as_mut().filter(|sources| sources.has_files()).ok_or(TlsError::NoFiles)?)
    }

    /// Reloads the files if they have changed since the last read, and logs the result.
    pub(super) fn reload_if_changed(&self) {
        let mut sources = lock(&self.shared.sources);
        if let Some(sources) = sources.as_mut().filter(|sources| sources.have_changed()) {
            match self.read(sources) {
                Ok(()) => log::certificate_replaced(),
                Err(e) => log::certificate_kept(&e),
            }
        }
    }

    fn read(&self, sources: &mut Sources) -> Result<(), TlsError> {
        let read = sources.read().map(|config| *lock(&self.shared.current) = Current::new(config));
        count(if read.is_ok() { Counter::TlsReloads } else { Counter::TlsReloadsRefused }, 1);
        read
    }

    /// Replaces all certificates and their keys by one, for new connections. Files of certificates, if any, are no
    /// longer used.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem). The previous certificates stay in use.
    pub fn replace_pem(&self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<(), TlsError> {
        let text = |text: &[u8]| Pem::Text(text.to_vec());
        let identity = Identity::new(text(certificate.as_ref()), text(key.as_ref()));
        let mut sources = lock(&self.shared.sources);
        let current = match &mut *sources {
            Some(sources) => Current::new(sources.replace(identity)?),
            // Keeps the user's other settings.
            None => {
                let mut config = ServerConfig::clone(&self.config());
                let identity = identity.read(config.crypto_provider())?;
                config.cert_resolver = Arc::new(ByName::new(vec![Arc::new(identity)]));
                Current { config: Arc::new(config), for_chacha: None }
            }
        };
        *lock(&self.shared.current) = current;
        Ok(())
    }

    /// Returns the configuration for new connections.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.shared.current).config)
    }

    /// Returns the configuration for a client that offers these cipher suites.
    pub(super) fn config_for(&self, offered: &[CipherSuite]) -> Arc<ServerConfig> {
        let current = lock(&self.shared.current);
        let for_chacha = current.for_chacha.as_ref().filter(|_| provider::prefers_chacha(offered));
        Arc::clone(for_chacha.unwrap_or(&current.config))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Tls");
        if let Ok(sources) = self.shared.sources.try_lock() {
            debug.field("sources", &*sources);
        }
        debug.field("every", &self.every).finish_non_exhaustive()
    }
}
