//! One future on each core, combined into one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

type Outcome<T, E> = (usize, thread::Result<Result<T, E>>);

/// Futures that run on all cores, from [`Cores::run`](super::Cores::run). They run even if this is not polled.
///
/// Resolves, as a future or by [`wait`](Self::wait), when all futures have ended. The value is the results in the order
/// of the cores, or one combined value for a [server](crate::server::serve_cores()). Tasks that they spawned, such as
/// the connections of a server, may still run.
///
/// # Errors
///
/// The first error of a future. The others are dropped.
///
/// # Panics
///
/// Resumes the first panic of a future, after dropping the others. Also panics if the cores end before their futures.
///
/// # Cancel safety
///
/// Dropping this drops the futures, each on its core.
#[derive(Debug)]
#[must_use = "dropping this drops the futures"]
pub struct Run<T, E, All = Vec<T>> {
    pub(super) tasks: Vec<Aborting<()>>,
    pub(super) receiver: Receiver<Outcome<T, E>>,
    pub(super) results: Vec<Option<T>>,
    pub(super) combine: fn(Vec<T>) -> All,
}

#[cfg(feature = "server")]
impl<T, E> Run<T, E> {
    /// Makes the future resolve to the result of `combine`.
    pub(crate) fn combined<All>(self, combine: fn(Vec<T>) -> All) -> Run<T, E, All> {
        let Self { tasks, receiver, results, .. } = self;
        Run { tasks, receiver, results, combine }
    }
}

impl<T, E, All> Run<T, E, All> {
    /// Waits for the futures, blocking the calling thread.
    ///
    /// # Panics
    ///
    /// Panics like the future, and if the calling thread runs tasks. Await the future there.
    #[track_caller]
    pub fn wait(mut self) -> Result<All, E> {
        loop {
            let outcome = self.receiver.blocking_recv();
            if let Some(all) = self.note(outcome) {
                return all;
            }
        }
    }

    /// Records an outcome; `None` if no more will follow. Returns the final result once it is known.
    fn note(&mut self, outcome: Option<Outcome<T, E>>) -> Option<Result<All, E>> {
        let failed = match outcome {
            Some((index, Ok(Ok(result)))) => {
                self.results[index] = Some(result);
                return None;
            }
            Some((_, Ok(Err(error)))) => Ok(error),
            Some((_, Err(panic))) => Err(panic),
            None => {
                let all = self.results.drain(..).map(|result| result.expect("a core ended before its future"));
                return Some(Ok((self.combine)(all.collect())));
            }
        };
        self.tasks.clear();
        match failed {
            Ok(error) => Some(Err(error)),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<T, E, All> Unpin for Run<T, E, All> {}

impl<T, E, All> Future for Run<T, E, All> {
    type Output = Result<All, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let outcome = ready!(self.receiver.poll_recv(cx));
            if let Some(all) = self.note(outcome) {
                return Poll::Ready(all);
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Aborting<T>(pub(super) JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A future that returns its panic as a result.
pub(super) struct Caught<'a, F>(pub(super) Pin<&'a mut F>);

impl<F: Future> Future for Caught<'_, F> {
    type Output = thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
