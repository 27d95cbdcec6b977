//! A sequence of steps as one job on the blocking pool, which notices when nobody waits for it any more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Error, Result, Step};
use super::target::Target;
use crate::runtime::blocking::BlockingTask;

/// Asked between the pieces of long work: whether somebody still waits for it.
#[derive(Debug)]
pub(super) struct Caller(Arc<AtomicBool>);

impl Caller {
    /// An error if the caller has left.
    pub(super) fn waits(&self, target: &Target) -> Result<()> {
        // Relaxed: it only says that there is no hurry to go on.
        if self.0.load(Ordering::Relaxed) {
            return Err(target.at(Step::Abandon)(std::io::ErrorKind::Interrupted.into()));
        }
        Ok(())
    }
}

/// Says so when it is dropped.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` as one job. Dropping the future tells the [`Caller`]; what `work` owns is dropped on the pool's thread.
pub(super) async fn run<T, W>(path: &Path, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce(&Caller) -> Result<T> + Send + 'static,
{
    let left = Arc::new(AtomicBool::new(false));
    let caller = Caller(Arc::clone(&left));
    let _waiting = Waiting(left);
    let job = BlockingTask::start(move || Ok(work(&caller))).map_err(|e| Error::new(Step::Start, path, e))?;
    job.await.map_err(|e| Error::new(Step::Start, path, e))?
}
