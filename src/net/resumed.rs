//! A connection that another process or server has served before.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A connection that another process or server has served before. Keeps the response that goes on, until a server takes
/// it.
#[derive(Default)]
pub(super) struct Resumed(Mutex<Option<Box<dyn Any + Send>>>);

impl Resumed {
    #[cfg(feature = "server")]
    pub(super) fn set(&self, response: Box<dyn Any + Send>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    }

    #[cfg(feature = "server")]
    pub(super) fn take(&self) -> Option<Box<dyn Any + Send>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resumed")
    }
}
