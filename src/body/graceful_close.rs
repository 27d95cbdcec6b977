//! Graceful end of bodies that have no end of their own, at shutdown.

use std::fmt;
use std::sync::Arc;

/// Ends a body that would otherwise not end. Put it into the [extensions](http::Response::extensions_mut) of the
/// response, where [`serve`](crate::server::serve()) looks for it. When the server drains, it calls [`end`](Self::end)
/// at least once, and the body should then end soon, for example with a last event. Bodies without one are served until
/// the drain deadline. [`until_drain`](crate::server::until_drain()) adds one to event streams and gRPC streams.
#[derive(Clone)]
pub struct GracefulClose(Arc<dyn Fn() + Send + Sync>);

impl GracefulClose {
    /// Creates the value. `end` runs on any thread, may be called several times and after the body was dropped, and
    /// must not block.
    pub fn new(end: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(end))
    }

    /// Asks the body to end.
    pub fn end(&self) {
        (self.0)();
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for GracefulClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracefulClose").finish_non_exhaustive()
    }
}
