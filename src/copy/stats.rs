//! Statistics of a copy.

use super::plan::{CopyPath, Paths};
use crate::counters::{Counter, count};

/// Report of a copy so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// Number of bytes written to the target.
    pub bytes: u64,
    /// Path of most of the bytes; the last one if several paths moved equally many.
    pub path: CopyPath,
    /// Number of calls that moved bytes or tried to. For other ends than files, pipes and sockets: number of polls.
    pub syscalls: u64,
    /// Number of times the task waited: for an end to be ready, for a job on the blocking pool, or for the rate.
    pub waits: u64,
    /// The first path that the kernel refused. Never [`CopyPath::Clone`]: it is tried wherever it may work, and few
    /// file systems support it.
    pub refused: Option<CopyPath>,
}

impl Default for CopyReport {
    fn default() -> Self {
        Self { bytes: 0, path: CopyPath::Pump, syscalls: 0, waits: 0, refused: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    by: [u64; CopyPath::ALL.len()],
    pub(super) syscalls: u64,
    pub(super) waits: u64,
    refused: Option<CopyPath>,
    pub(super) without: Paths,
}

impl Stats {
    pub(super) fn record_moved(&mut self, path: CopyPath, bytes: u64) {
        self.by[path as usize] += bytes;
        let counter = match path {
            CopyPath::Clone => Counter::CopiedByClone,
            CopyPath::CopyFileRange => Counter::CopiedByRange,
            CopyPath::Sendfile => Counter::CopiedBySendfile,
            CopyPath::Splice => Counter::CopiedBySplice,
            CopyPath::Pump => Counter::CopiedByPump,
        };
        count(counter, bytes);
    }

    pub(super) fn refuse(&mut self, path: CopyPath) {
        if path != CopyPath::Clone {
            count(Counter::CopyDemotions, 1);
            self.refused = self.refused.or(Some(path));
        }
        self.without = self.without.with(path);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.by.iter().sum()
    }

    pub(super) fn report(&self) -> CopyReport {
        let path = CopyPath::ALL.into_iter().max_by_key(|&path| self.by[path as usize]).unwrap_or(CopyPath::Pump);
        CopyReport { bytes: self.bytes(), path, syscalls: self.syscalls, waits: self.waits, refused: self.refused }
    }
}

#[cfg(test)]
mod tests;
