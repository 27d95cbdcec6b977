//! The future of a program that a driver runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::driver::Driver;
use super::key::Key;
use super::slots::{Ended, Orphan};
use super::sync::lock;

/// A running program; resolves to its end.
///
/// Dropping it cancels the entries in flight. Memory and descriptors of the operations are kept until the kernel has
/// completed them, and descriptors that they open are closed.
pub(crate) struct Running {
    driver: Arc<Driver>,
    key: Option<Key>,
}

impl Running {
    pub(super) fn new(driver: Arc<Driver>, key: Key) -> Self {
        Self { driver, key: Some(key) }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Future for Running {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let key = self.key.expect("polled after completion");
        let waker = cx.waker().clone();
        let polled = lock(&self.driver.queue).slots.poll(key, waker);
        match polled {
            Ok(ended) => {
                self.key = None;
                Poll::Ready(ended)
            }
            Err(_) => Poll::Pending,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut queue = lock(&self.driver.queue);
        let dropped = match queue.slots.orphan(key) {
            Orphan::Free(program) => program.map(|program| queue.without_room(program)),
            Orphan::InFlight => {
                if queue.closed.is_none() {
                    queue.cancels.push_back(key);
                }
                None
            }
        };
        let has_work = queue.has_work();
        drop(queue);
        drop(dropped);
        if has_work {
            (self.driver.kick)();
        }
    }
}
