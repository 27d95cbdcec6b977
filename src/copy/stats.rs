//! Statistics of a copy.

use super::plan::{Path, Paths};
use crate::counters::{Counter, count};

/// Report of a copy so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of bytes written to the target.
    pub bytes: u64,
    /// Path of most of the bytes. The last one, if several moved equally many.
    pub path: Path,
    /// Number of calls that moved bytes or tried to. For other ends than files, pipes and sockets: number of polls.
    pub syscalls: u64,
    /// Number of times the task waited: for an end to be ready, for a job on the blocking pool, or for the rate.
    pub waits: u64,
    /// The first path that the kernel refused. Never [`Path::Clone`]: it is tried wherever it may work, and few file
    /// systems support it.
    pub refused: Option<Path>,
}

impl Default for Report {
    fn default() -> Self {
        Self { bytes: 0, path: Path::Pump, syscalls: 0, waits: 0, refused: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Stats {
    by: [u64; Path::ALL.len()],
    pub(super) syscalls: u64,
    pub(super) waits: u64,
    refused: Option<Path>,
    pub(super) without: Paths,
}

impl Stats {
    pub(super) fn moved(&mut self, path: Path, bytes: u64) {
        self.by[path as usize] += bytes;
        let counter = match path {
            Path::Clone => Counter::CopiedByClone,
            Path::CopyFileRange => Counter::CopiedByRange,
            Path::Sendfile => Counter::CopiedBySendfile,
            Path::Splice => Counter::CopiedBySplice,
            Path::Pump => Counter::CopiedByPump,
        };
        count(counter, bytes);
    }

    pub(super) fn refuse(&mut self, path: Path) {
        if path != Path::Clone {
            count(Counter::CopyDemotions, 1);
            self.refused = self.refused.or(Some(path));
        }
        self.without = self.without.with(path);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.by.iter().sum()
    }

    pub(super) fn report(&self) -> Report {
        let path = Path::ALL.into_iter().max_by_key(|&path| self.by[path as usize]).unwrap_or(Path::Pump);
        Report { bytes: self.bytes(), path, syscalls: self.syscalls, waits: self.waits, refused: self.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_most_bytes_is_reported() {
        let mut stats = Stats::default();
        assert_eq!(stats.report(), Report::default());
        stats.moved(Path::Pump, 10);
        assert_eq!(stats.report().path, Path::Pump);
        stats.moved(Path::Splice, 11);
        stats.moved(Path::Clone, 0);
        assert_eq!((stats.report().path, stats.report().bytes), (Path::Splice, 21));
    }

    #[test]
    fn the_first_refusal_is_reported_and_all_are_kept() {
        let mut stats = Stats::default();
        stats.refuse(Path::Clone);
        assert_eq!(stats.report().refused, None, "a refused clone is not reported");
        stats.refuse(Path::CopyFileRange);
        stats.refuse(Path::Splice);
        assert_eq!(stats.report().refused, Some(Path::CopyFileRange));
        assert!(stats.without.has(Path::Clone) && stats.without.has(Path::CopyFileRange));
        assert!(!stats.without.has(Path::Pump));
    }
}
