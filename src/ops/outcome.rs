//! Outcomes of steps, and the progress of one of their attempts.

/// Outcome of one step of a [chain](crate::fs::chain::Chain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepOutcome {
    /// Completed in full, with the number of bytes moved: 0 for steps that move none.
    Done(u64),
    /// This many bytes were moved and no more follow: the source ended, or the target accepted none.
    Short(u64),
    /// Failed with this error number, [errno(3)](https://man7.org/linux/man-pages/man3/errno.3.html). `ETIMEDOUT` if
    /// the step's time limit expired.
    Failed(i32),
    /// Not begun, because an earlier step was incomplete.
    Skipped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// A part is done, and the rest can be requested.
    More,
    /// A part is done, and no more follows: the end of a file.
    End,
}

impl Progress {
    /// Returns the progress of an operation of `len` bytes after a call that moved `n` of them.
    pub(super) fn of(done: usize, len: usize, n: u32) -> Self {
        match n {
            _ if done >= len => Self::Done,
            0 => Self::End,
            _ => Self::More,
        }
    }
}
