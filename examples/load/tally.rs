//! Counts over all streams.

use std::sync::{Arc, Mutex, PoisonError};

use measuring::latencies::Latencies;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Pieces of bodies that ended in an empty line.
    pub(crate) events: u64,
    /// Bytes of all bodies, without HTTP framing.
    pub(crate) bytes: u64,
    pub(crate) responses: u64,
    /// Streams that received at least one byte.
    pub(crate) answered: usize,
    /// Connections opened again after the server closed them.
    pub(crate) reconnects: u64,
    /// Time from one event of a response to the next.
    pub(crate) gaps: Latencies,
    /// Time from sending a request to its first event.
    pub(crate) firsts: Latencies,
    /// Time from sending a request to the end of its response.
    pub(crate) times: Latencies,
    /// Number of streams that failed, and the first reason.
    pub(crate) failed: usize,
    pub(crate) problem: Option<String>,
}

impl Tally {
    pub(crate) fn fail(&mut self, problem: String) {
        self.failed += 1;
        self.problem.get_or_insert(problem);
    }
}

/// One tally for all streams. They run on one thread, so the lock is always free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Tally>>);

impl Shared {
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Finds the empty lines that end events, even if a read ends between two newlines.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    after_newline: bool,
}

impl Ends {
    pub(crate) fn count(&mut self, data: &[u8]) -> u64 {
        let mut events = 0;
        for &byte in data {
            let ends = byte == b'\n' && self.after_newline;
            events += u64::from(ends);
            self.after_newline = byte == b'\n' && !ends;
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_do_not_change_the_count() {
        let body = b"data: 1\n\ndata: 2\nid: 2\n\n: comment\n\n";
        for cut in 0..=body.len() {
            let mut ends = Ends::default();
            assert_eq!(ends.count(&body[..cut]) + ends.count(&body[cut..]), 3, "cut at {cut}");
        }
    }
}
