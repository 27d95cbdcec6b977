//! Running a chain.

use crate::runtime::programs::{Alone, run};
use crate::uring::chain::{Chain, Error, Report};

impl Chain {
    /// Runs the steps, and says what became of each.
    ///
    /// # Errors
    ///
    /// The first step that failed, or was not done in full; a read that met the end of its file only if steps were skipped
    /// for it. [`Error::report`] has the outcomes of all. `ErrorKind::InvalidInput` for a mistake in the chain, of which
    /// then no step was begun. Without a step: there is no tokio runtime, or the kernel lost a completion.
    ///
    /// # Cancellation
    ///
    /// Dropping the future stops the chain between two steps or in one that waits for a pipe or socket; where it stops
    /// nobody can say, since steps that were begun may yet be done. Files that it has opened are closed. What it has
    /// already written or renamed stays.
    pub async fn run(self) -> Result<Report, Error> {
        let (program, steps) = self.ready()?;
        if program.len() == 0 {
            return steps.report(*program);
        }
        // A chain that is alone is no slower by ring than in one job, and those that come with it save their calls.
        match run(program, Alone::Ring).await {
            Ok(program) => steps.report(*program),
            Err(e) => Err(steps.failed(e)),
        }
    }
}
