//! Running chains.

use crate::ops::chain::{Chain, ChainError, ChainReport};
use crate::runtime::programs::{Alone, run};

impl Chain {
    /// Runs the steps and returns the outcome of each.
    ///
    /// # Errors
    ///
    /// Returns the first step that failed or was incomplete. A read that reached the end of its file counts only if it
    /// caused later steps to be skipped. [`ChainError::report`] has all outcomes. `ErrorKind::InvalidInput` if the
    /// chain is invalid; then no step was started. [`ChainError::step`] is `None` without a tokio runtime, or if the
    /// kernel lost a completion.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future stops the chain between two steps, or in one that waits for a pipe or
    /// socket. Steps in progress may still complete. Opened files are closed; data written and names changed stay.
    pub async fn run(self) -> Result<ChainReport, ChainError> {
        let (program, steps) = self.ready()?;
        if program.len() == 0 {
            return steps.report(*program);
        }
        // A single chain is not slower on the ring than in a job, and concurrent chains save system calls.
        match run(program, Alone::Ring).await {
            Ok(program) => steps.report(*program),
            Err(e) => Err(steps.failed(e)),
        }
    }
}
