//! What a copy has done.

use super::plan::{Path, Paths};
use crate::counters::{Counter, count};

/// What a copy has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Bytes the target has taken.
    pub bytes: u64,
    /// The way most of them went; the last of several that carried as many.
    pub path: Path,
    /// Calls that moved bytes or tried to. Of ends that are no plain files, pipes or sockets: how often they were asked to
    /// read or write.
    pub syscalls: u64,
    /// Times the task had to wait: for an end to be ready, for a job on the blocking pool, for the rate.
    pub waits: u64,
    /// The first way that the kernel refused, so that another took its place. [`Path::Clone`] is not among them: few file
    /// systems know it, and it is tried where it may be possible.
    pub refused: Option<Path>,
}

impl Default for Report {
    fn default() -> Self {
        Self { bytes: 0, path: Path::Pump, syscalls: 0, waits: 0, refused: None }
    }
}

/// The report while it is made.
#[derive(Debug, Default)]
pub(super) struct Stats {
    by: [u64; Path::ALL.len()],
    pub(super) syscalls: u64,
    pub(super) waits: u64,
    refused: Option<Path>,
    /// Ways that are not to be tried again.
    pub(super) without: Paths,
}

impl Stats {
    /// Counts bytes that the target has taken.
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

    /// Takes note that the kernel refuses a way.
    pub(super) fn refuse(&mut self, path: Path) {
        if path != Path::Clone {
            count(Counter::CopyDemotions, 1);
            self.refused = self.refused.or(Some(path));
        }
        self.without = self.without.with(path);
    }

    /// Bytes the target has taken.
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
        assert_eq!(stats.report().refused, None, "which says nothing about the machine");
        stats.refuse(Path::CopyFileRange);
        stats.refuse(Path::Splice);
        assert_eq!(stats.report().refused, Some(Path::CopyFileRange));
        assert!(stats.without.has(Path::Clone) && stats.without.has(Path::CopyFileRange));
        assert!(!stats.without.has(Path::Pump));
    }
}
