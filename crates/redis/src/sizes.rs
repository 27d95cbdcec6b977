//! Number of entries to request at a time, estimated from the sizes of earlier entries and a limit in bytes.
//!
//! Redis counts entries, not bytes, so their size is estimated. The estimate rises at once when entries are larger, and
//! falls gradually when they are smaller. If it was much too low, the reply is rejected while it is received, and the
//! entries are requested one by one.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::allowance::REPLY_MAX;
use super::entry::Entry;

pub(crate) const PAGE: usize = 128;
/// Estimated size of an entry before any was received.
const FIRST: usize = 4 << 10;
/// A reply may have the requested bytes times `TIMES`, plus `MORE`.
const TIMES: usize = 4;
const MORE: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Sizes(AtomicUsize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Number of entries, at least one, besides the entry before them.
    pub(crate) entries: usize,
    pub(crate) reply: usize,
    /// Whether `reply` is the maximum of any reply.
    pub(crate) is_large: bool,
}

impl Sizes {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(FIRST))
    }

    pub(crate) fn plan(&self, bytes: usize) -> Plan {
        let entry = self.0.load(Ordering::Relaxed);
        let entries = (bytes / entry).clamp(1, PAGE);
        let reply = bytes.saturating_mul(TIMES).saturating_add(MORE).min(REPLY_MAX);
        // The reply contains the entry before, and may contain the next one twice.
        let is_large = entries == 1 && entry.saturating_mul(3) > reply;
        Plan { entries, reply: if is_large { REPLY_MAX } else { reply }, is_large }
    }

    pub(crate) fn learn(&self, entries: &[Entry]) {
        let Some(mean) = entries.iter().map(|entry| entry.bytes).sum::<usize>().checked_div(entries.len()) else {
            return;
        };
        let before = self.0.load(Ordering::Relaxed);
        let down = before - before.saturating_sub(mean) / 4;
        self.0.store(mean.max(down).max(1), Ordering::Relaxed);
    }

    /// Updates the estimate after a reply to `plan` exceeded its limit.
    pub(crate) fn refused(&self, plan: Plan) {
        self.0.fetch_max(plan.reply, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
