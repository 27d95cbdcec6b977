//! Settings of a server.

use std::sync::Arc;

use http::Extensions;

use super::conn_limiter::ConnLimiter;
use super::limits::Limits;
use super::peer::Peer;
use super::protocols::Hooks;
#[cfg(tls)]
use crate::server::tls::Tls;

pub(super) type OnConnection<A> = Arc<dyn Fn(&mut Extensions, &Peer<A>) + Send + Sync>;

/// Everything but the listener and the service. `A` is the type of addresses. Clones count connections together.
pub(super) struct Settings<A> {
    pub(super) limits: Limits,
    pub(super) limiter: Arc<ConnLimiter>,
    pub(super) hooks: Hooks,
    pub(super) takeover: bool,
    pub(super) on_connection: Option<OnConnection<A>>,
    #[cfg(tls)]
    pub(super) tls: Option<Tls>,
}

impl<A> Settings<A> {
    /// Returns whether the server ends TLS.
    pub(super) fn is_tls(&self) -> bool {
        #[cfg(tls)]
        return self.tls.is_some();
        #[cfg(not(tls))]
        false
    }
}

impl<A> Default for Settings<A> {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            limiter: Arc::default(),
            hooks: Hooks::default(),
            takeover: true,
            on_connection: None,
            #[cfg(tls)]
            tls: None,
        }
    }
}

impl<A> Clone for Settings<A> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
            limiter: Arc::clone(&self.limiter),
            hooks: self.hooks.clone(),
            takeover: self.takeover,
            on_connection: self.on_connection.clone(),
            #[cfg(tls)]
            tls: self.tls.clone(),
        }
    }
}
