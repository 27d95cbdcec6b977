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
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_returns_its_result_or_error() {
        assert_eq!(BlockingTask::start(|| Ok(7)).unwrap().await.unwrap(), 7);
        let failed = BlockingTask::<()>::start(|| Err(io::ErrorKind::NotFound.into())).unwrap().await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn without_a_runtime_there_is_an_error_and_no_panic() {
        assert!(BlockingTask::start(|| Ok(())).is_err());
    }

    #[tokio::test]
    async fn disposed_values_are_dropped_on_another_thread() {
        struct Notifier(std::sync::mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Notifier {
            fn drop(&mut self) {
                self.0.send(std::thread::current().id()).unwrap();
            }
        }
        let (sender, notified) = std::sync::mpsc::channel();
        dispose(Notifier(sender));
        assert_ne!(notified.recv().unwrap(), std::thread::current().id());
    }

    #[test]
    fn a_job_that_was_dropped_before_it_started_never_runs() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let busy = BlockingTask::start(move || wait.recv().map_err(io::Error::other)).unwrap();
            let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let flag = std::sync::Arc::clone(&ran);
            drop(BlockingTask::start(move || {
                flag.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }));
            go.send(()).unwrap();
            busy.await.unwrap();
            // The pool has one thread and a FIFO queue, so the dropped task would have run before this one.
            BlockingTask::start(|| Ok(())).unwrap().await.unwrap();
            assert!(!ran.load(std::sync::atomic::Ordering::Relaxed));
        });
    }
}
