//! Rings that are driven when their thread waits.

use tokio::runtime::Builder;

use super::reactor;

/// Hooks for runtimes whose threads wait often.
pub trait RuntimeBuilderExt {
    /// Drives the rings of each worker thread before and after it waits, in addition to the flusher. That saves one
    /// `epoll_wait` per wake-up of an otherwise idle thread. It has no effect under load, because busy threads do not
    /// wait, and everything works without it.
    ///
    /// Replaces hooks set by `on_thread_park` and `on_thread_unpark`: a runtime has one of each.
    fn drive_rings_at_park(&mut self) -> &mut Self;
}

impl RuntimeBuilderExt for Builder {
    fn drive_rings_at_park(&mut self) -> &mut Self {
        reactor::drive_at_park(self)
    }
}
