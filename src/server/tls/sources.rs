//! The sources of a configuration.

use std::mem;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::server::{ProducesTickets, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::clients::Clients;
use super::error::TlsError;
use super::identity::Identity;
use super::names::ByName;
use super::pem::Stamp;
use super::provider;
use super::tickets::TicketFile;

/// Sources of a configuration, and the state of their files at the last read.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) identities: Vec<Identity>,
    pub(super) clients: Option<Clients>,
    pub(super) tickets: Option<TicketFile>,
    /// Tickets with keys of this process, and their purpose. They are kept across reloads, so that sessions remain
    /// valid.
    own_tickets: Option<(Vec<u8>, Arc<dyn ProducesTickets>)>,
    /// `None` before the first read. `None` in it is a missing file.
    read: Option<Vec<Option<Stamp>>>,
}

impl Sources {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, identities: Vec::new(), clients: None, tickets: None, own_tickets: None, read: None }
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let identities = self.identities.iter().flat_map(|identity| {
            [identity.certificate.path(), identity.key.path(), identity.ocsp.as_deref()].into_iter().flatten()
        });
        let clients = self.clients.iter().flat_map(|clients| {
            [clients.roots.path(), clients.revoked.as_ref().and_then(|revoked| revoked.path())].into_iter().flatten()
        });
        identities.chain(clients).chain(self.tickets.as_ref().map(|tickets| tickets.path.as_path()))
    }

    pub(super) fn has_files(&self) -> bool {
        self.paths().next().is_some()
    }

    /// Returns whether a file has changed since the last read, successful or not, or is due to change.
    pub(super) fn have_changed(&self) -> bool {
        self.read.as_ref() != Some(&self.stamps()) || self.tickets.as_ref().is_some_and(TicketFile::is_due)
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.paths().map(Stamp::of).collect()
    }

    fn own_tickets(&mut self, purpose: Vec<u8>) -> Result<Arc<dyn ProducesTickets>, TlsError> {
        let kept = self.own_tickets.take().filter(|(of, _)| *of == purpose);
        let (_, tickets) = match kept {
            Some(kept) => self.own_tickets.insert(kept),
            None => self.own_tickets.insert((purpose, provider::tickets()?)),
        };
        Ok(Arc::clone(tickets))
    }

    /// Replaces all identities by one, and reads all sources. They are unchanged after an error.
    pub(super) fn replace(&mut self, identity: Identity) -> Result<Arc<ServerConfig>, TlsError> {
        let replaced = mem::replace(&mut self.identities, vec![identity]);
        self.read().inspect_err(|_| self.identities = replaced)
    }

    /// Reads all sources. Blocks on files.
    pub(super) fn read(&mut self) -> Result<Arc<ServerConfig>, TlsError> {
        if let Some(tickets) = &mut self.tickets {
            tickets.rotate_if_due(&self.provider);
        }
        // Before the read, so that a write during it counts as a change.
        self.read = Some(self.stamps());
        let identities = self.identities.iter().map(|identity| Ok(Arc::new(identity.read(&self.provider)?)));
        let identities = identities.collect::<Result<Vec<_>, TlsError>>()?;
        if identities.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let clients = self.clients.as_ref().map(|clients| clients.read(&self.provider)).transpose()?;
        let (verifier, purpose) = match clients {
            Some(clients) => (clients.verifier, clients.digest),
            None => (WebPkiClientVerifier::no_client_auth(), Vec::new()),
        };
        // A session resumes with the client's certificate and is not verified again. So tickets are bound to the roots
        // and lists that verified the certificate.
        let tickets = match &self.tickets {
            Some(file) => Arc::new(file.read(&self.provider, &purpose)?) as Arc<dyn ProducesTickets>,
            None => self.own_tickets(purpose)?,
        };

        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12])?;
        let mut config =
            builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(ByName::new(identities)));
        config.ignore_client_order = true;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = tickets;
        Ok(Arc::new(config))
    }
}
