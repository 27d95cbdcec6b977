//! Statistics of a log, and the error that ended it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::{DiskError, describe};
use crate::counters::log;

/// Maximum number of logged errors that are remembered, so that they are not logged again.
const LOGGED: usize = 1000;

/// State of a [`Disk`](super::Disk), from [`Disk::state`](super::Disk::state).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskState {
    /// Id of the oldest event in the log, which is the next one if there is none.
    pub first: u64,
    /// Id of the next event.
    pub next: u64,
    /// Number of segments.
    pub segments: usize,
    /// Size of the segments in bytes.
    pub bytes: u64,
    /// Number of appends that are not committed.
    pub queued: usize,
    /// Approximate size of the uncommitted appends in bytes.
    pub queued_bytes: usize,
    /// Number of committed appends.
    pub appended: u64,
    /// Number of commits: each is a write and, unless the [durability](super::DiskBuilder::durability) is `None`, a
    /// sync.
    pub commits: u64,
    /// Number of appends that were given up: because the log failed, its hubs were closed while the disk was full, or
    /// the runtime ended.
    pub given_up: u64,
    /// Number of removed segments.
    pub removed: u64,
    /// Size of the incomplete commit that was cut off when the log was opened, in bytes.
    pub cut: u64,
    /// Number of times that a reader got a gap because a segment is damaged.
    pub damaged: u64,
    /// Whether the log has failed and commits nothing more. It has to be opened again.
    pub failed: bool,
    /// The current error: the error that ended the log; or the error of a full disk, until it has space; or the error
    /// of a segment that cannot be removed, until it is removed; or the last error of a replay.
    pub error: Option<String>,
}

#[derive(Debug)]
pub(super) struct Stats(Mutex<DiskStatsInner>);

#[derive(Debug, Default)]
struct DiskStatsInner {
    appended: u64,
    commits: u64,
    given_up: u64,
    removed: u64,
    cut: u64,
    damaged: u64,
    failure: Option<DiskError>,
    full: Option<String>,
    not_removed: Option<String>,
    replay: Option<String>,
    /// Errors of replays that were logged.
    logged: HashSet<String>,
}

impl Stats {
    pub(super) fn new(cut: u64) -> Self {
        Self(Mutex::new(DiskStatsInner { cut, ..DiskStatsInner::default() }))
    }

    fn inner(&self) -> MutexGuard<'_, DiskStatsInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failure(&self) -> Option<DiskError> {
        self.inner().failure.clone()
    }

    /// Records the error that ends the log. The first one counts.
    pub(super) fn fail(&self, error: DiskError) {
        let text = describe(&error);
        let is_first = {
            let mut inner = self.inner();
            inner.failure.is_none() && inner.failure.replace(error).is_none()
        };
        // Without the lock, because a tracing subscriber may call back.
        if is_first {
            log::disk_failed(&text);
        }
    }

    /// Records that a commit has to be repeated.
    pub(super) fn full(&self, error: &DiskError) {
        let text = describe(error);
        let is_first = self.inner().full.replace(text.clone()).is_none();
        if is_first {
            log::disk_full(&text);
        }
    }

    pub(super) fn committed(&self, appends: usize) {
        let mut inner = self.inner();
        inner.appended += appends as u64;
        inner.commits += 1;
        inner.full = None;
    }

    pub(super) fn given_up(&self, appends: usize) {
        self.inner().given_up += appends as u64;
    }

    pub(super) fn removed(&self) {
        self.inner().removed += 1;
    }

    /// Records the error of a segment that cannot be removed, or that there is none.
    pub(super) fn not_removed(&self, error: Option<DiskError>) {
        let text = error.as_ref().map(describe);
        let before = std::mem::replace(&mut self.inner().not_removed, text.clone());
        if let (None, Some(text)) = (before, text) {
            log::disk_not_removed(&text);
        }
    }

    pub(super) fn replay_failed(&self, error: &DiskError) {
        let text = describe(error);
        let is_first = {
            let mut inner = self.inner();
            inner.damaged += u64::from(matches!(error, DiskError::Damaged { .. }));
            inner.replay = Some(text.clone());
            if inner.logged.len() == LOGGED {
                inner.logged.clear();
            }
            inner.logged.insert(text.clone())
        };
        // Each reader finds the same error.
        if is_first {
            log::disk_damaged(&text);
        }
    }

    /// Returns the error for a caller that waits for its sent events.
    pub(super) fn check(&self, path: &Path) -> Result<(), DiskError> {
        let inner = self.inner();
        match &inner.failure {
            Some(failure) => Err(failure.clone()),
            None if inner.given_up > 0 => Err(DiskError::GivenUp { path: path.to_owned(), events: inner.given_up }),
            None => Ok(()),
        }
    }

    pub(super) fn state(&self, (first, next): (u64, u64), size: (usize, u64), queued: (usize, usize)) -> DiskState {
        let inner = self.inner();
        let failure = inner.failure.as_ref().map(describe);
        DiskState {
            first,
            next,
            segments: size.0,
            bytes: size.1,
            queued: queued.0,
            queued_bytes: queued.1,
            appended: inner.appended,
            commits: inner.commits,
            given_up: inner.given_up,
            removed: inner.removed,
            cut: inner.cut,
            damaged: inner.damaged,
            failed: failure.is_some(),
            error: failure
                .or_else(|| inner.full.clone())
                .or_else(|| inner.not_removed.clone())
                .or_else(|| inner.replay.clone()),
        }
    }
}
