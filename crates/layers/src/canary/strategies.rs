//! The strategies of a connection under a canary.

use std::sync::atomic::{AtomicU8, AtomicU64};

use millstream::internal::identity::connection_slot;
use millstream::net::SendStrategy;
use millstream::server::Connection;

/// The connection keeps this from its first request under a canary on.
pub(super) struct Strategies {
    /// Strategy before the first request. Requests outside the shares use it.
    pub(super) base: SendStrategy,
    /// Number of the current strategy.
    pub(super) current: AtomicU8,
    /// The strategy that the connection keeps, and the version of the shares that chose it.
    pub(super) kept: AtomicU64,
}

impl Strategies {
    pub(super) fn of(connection: &Connection) -> &Self {
        let slot = connection_slot(connection).get_or_init(|| {
            let base = connection.handle().send_strategy().unwrap_or_default();
            Box::new(Self { base, current: AtomicU8::new(base as u8), kept: AtomicU64::new(0) })
        });
        slot.downcast_ref().expect("internal: the canary is the only user of the slot")
    }
}
