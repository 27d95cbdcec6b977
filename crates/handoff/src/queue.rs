//! Sockets on their way from one task to another.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A queue that is never full: its sockets are open anyway. One task takes from it at a time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    changed: Notify,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), changed: Notify::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: T) {
        self.lock().push_back(item);
        self.changed.notify_one();
    }

    /// Takes the first item. Dropping the future loses none.
    pub(crate) async fn pop(&self) -> T {
        loop {
            if let Some(item) = self.pop_if(|_| true) {
                return item;
            }
            self.changed.notified().await;
        }
    }

    /// Takes the first item if `fits` returns true for it.
    pub(crate) fn pop_if(&self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut items = self.lock();
        if items.front().is_some_and(fits) { items.pop_front() } else { None }
    }
}
