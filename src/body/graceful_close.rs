//! Bodies that have no end of their own, and the server that has to end.

use std::fmt;
use std::sync::Arc;

/// How a response whose body may go on forever is told to end: put it into the response's
/// [extensions](http::Response::extensions_mut), where [`serve`](crate::server::serve()) looks for it. When the server drains it
/// calls [`end`](Self::end), once at least, and the body should end in its own words soon: with a last event, for example.
/// Bodies without one are served until the drain's deadline.
#[derive(Clone)]
pub struct GracefulClose(Arc<dyn Fn() + Send + Sync>);

impl GracefulClose {
    /// `end` is called on any thread, more than once perhaps, and after the body has been dropped perhaps; it must not block.
    pub fn new(end: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(end))
    }

    /// Tells the body to end.
    pub fn end(&self) {
        (self.0)();
    }

    /// Whether this is a clone of `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for GracefulClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GracefulClose").finish_non_exhaustive()
    }
}
