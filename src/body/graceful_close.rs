//! Graceful end of bodies that have no end of their own, at shutdown.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

/// Ends a body that would otherwise not end. Put it into the [extensions](http::Response::extensions_mut) of the
/// response, where [`serve`](crate::server::serve()) looks for it. When the server drains, or the connection has reached its
/// [age](crate::server::Limits::age), it calls [`end`](Self::end) at least once, and the body should then end soon, for
/// example with a last event. A server that drains does not call all at [once](crate::server::Limits::drain_spread).
/// Bodies without one are served until the deadline. [`until_drain`](crate::server::until_drain()) adds one to event
/// streams and gRPC streams.
#[derive(Clone)]
pub struct GracefulClose(pub(crate) Arc<dyn End>);

pub(crate) trait End: Send + Sync {
    fn end(&self);
}

impl<F: Fn() + Send + Sync> End for F {
    fn end(&self) {
        self();
    }
}

impl GracefulClose {
    /// Creates the value. `end` runs on any thread, may be called several times and after the body was dropped, and
    /// must not block.
    pub fn new(end: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(end))
    }

    /// Asks the body to end.
    pub fn end(&self) {
        self.0.end();
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

impl End for EndSignal {
    fn end(&self) {
        self.set();
    }
}

/// Tells the task of a body to end it.
#[derive(Debug, Default)]
pub(crate) struct EndSignal {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl EndSignal {
    pub(crate) fn set(&self) {
        // Before the waker is taken, so that a task that registers later finds it.
        self.is_set.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Returns whether it is set, or else wakes the task when it is.
    #[inline]
    pub(crate) fn poll_set(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            let old = waker.replace(cx.waker().clone());
            drop(waker);
            // A waker may run any code when it is dropped.
            drop(old);
        }
        self.is_set()
    }
}
