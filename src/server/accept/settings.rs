//! Settings of a server.

use std::sync::Arc;

use http::Extensions;

use super::identity::Connection;
use crate::server::connection::Hooks;
use crate::server::limits::Limits;
use crate::server::state::{ConnLimiter, Successor};
#[cfg(tls)]
use crate::server::tls::Tls;

pub(in crate::server) type OnConnection<A> = Arc<dyn Fn(&mut Extensions, &Connection, &A) + Send + Sync>;

/// Everything but the listener and the service. `A` is the type of addresses. Clones count connections together.
pub(in crate::server) struct Settings<A> {
    pub(in crate::server) limits: Limits,
    pub(in crate::server) limiter: Arc<ConnLimiter>,
    pub(in crate::server) hooks: Hooks,
    pub(in crate::server) takeover: bool,
    pub(in crate::server) successor: Option<Successor>,
    pub(in crate::server) on_connection: Option<OnConnection<A>>,
    #[cfg(tls)]
    pub(in crate::server) tls: Option<Tls>,
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
            successor: None,
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
            successor: self.successor.clone(),
            on_connection: self.on_connection.clone(),
            #[cfg(tls)]
            tls: self.tls.clone(),
        }
    }
}
