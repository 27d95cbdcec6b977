//! A sequence of steps as one job on the blocking pool, with cancellation.

use std::future::Future;
use std::io::IoSlice;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use super::error::{Error, Result, Step};
use super::target::Target;
use crate::runtime::blocking::BlockingTask;
use crate::sys::call::IOV_LIMIT;
use crate::sys::fd::BorrowedFd;
use crate::sys::file;

/// Maximum length of one write, between checks for cancellation.
const PIECE: usize = 8 << 20;

/// Cancellation flag that long work checks between pieces.
#[derive(Debug)]
pub(super) struct Caller(Arc<AtomicBool>);

impl Caller {
    pub(super) fn waits(&self, target: &Target) -> Result<()> {
        // Relaxed: the flag orders no memory.
        if self.0.load(Ordering::Relaxed) {
            return Err(target.at(Step::Abandon)(std::io::ErrorKind::Interrupted.into()));
        }
        Ok(())
    }

    /// Writes all pieces at `at`. Advances `at` behind the written bytes, even if a later write fails.
    pub(super) fn write(
        &self,
        target: &Target,
        file: BorrowedFd<'_>,
        pieces: &[impl AsRef<[u8]>],
        at: &mut u64,
    ) -> Result<()> {
        for pieces in pieces.chunks(IOV_LIMIT) {
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece.as_ref())).collect();
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, 0);
            while let [first, ..] = rest {
                self.waits(target)?;
                let long = [IoSlice::new(&first[..first.len().min(PIECE)])];
                let now = if first.len() > PIECE { &long[..] } else { &*rest };
                let n = file::write_at(file, now, *at).map_err(target.at(Step::Write))?;
                *at += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A job on the blocking pool. Dropping it sets the flag of its [`Caller`]; the pool's thread drops the work.
#[derive(Debug)]
pub(super) struct Job<T> {
    task: BlockingTask<Result<T>>,
    path: Arc<Path>,
    _waiting: Waiting,
}

impl<T: Send + 'static> Job<T> {
    /// Starts `work`, whose errors name `path`.
    pub(super) fn start<W>(path: Arc<Path>, work: W) -> Result<Self>
    where
        W: FnOnce(&Caller) -> Result<T> + Send + 'static,
    {
        let left = Arc::new(AtomicBool::new(false));
        let caller = Caller(Arc::clone(&left));
        let task = BlockingTask::start(move || Ok(work(&caller))).map_err(|e| Error::new(Step::Start, &path, e))?;
        Ok(Self { task, path, _waiting: Waiting(left) })
    }
}

impl<T> Future for Job<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let done = ready!(Pin::new(&mut self.task).poll(cx));
        Poll::Ready(done.unwrap_or_else(|e| Err(Error::new(Step::Start, &self.path, e))))
    }
}

/// Runs `work` as one job: see [`Job`].
pub(super) async fn run<T, W>(path: &Path, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce(&Caller) -> Result<T> + Send + 'static,
{
    Job::start(path.into(), work)?.await
}
