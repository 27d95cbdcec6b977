//! Work that waits for a disk, on the blocking pool of the runtime.
//!
//! Invariant: dropping a [`BlockingTask`] cancels it if it has not started. A running task finishes, and its result is
//! dropped on the pool's thread, so a task must own its data.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A closure on the blocking pool; resolves to its result.
#[derive(Debug)]
pub(crate) struct BlockingTask<T>(JoinHandle<io::Result<T>>);

impl<T: Send + 'static> BlockingTask<T> {
    /// Runs `work` on the blocking pool of the current runtime. Fails without a runtime.
    pub(crate) fn start(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        Ok(Self(runtime.spawn_blocking(work)))
    }
}

impl<T> Future for BlockingTask<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(result) => result,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(_) => Err(io::Error::other("the runtime is shutting down")),
        })
    }
}

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        // Removes unstarted work, which would delay other work in a full queue.
        self.0.abort();
    }
}

/// Runs `work` on the blocking pool, without a way to wait for it or to cancel it; without a runtime, on this thread.
pub(crate) fn detach(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Drops `value` as [`detach`] does, because the drop may wait for the disk.
pub(crate) fn dispose<T: Send + 'static>(value: T) {
    detach(move || drop(value));
}

#[cfg(test)]
mod tests;
