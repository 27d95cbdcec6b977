//! What all streams saw together.

use std::sync::{Arc, Mutex, PoisonError};

use super::histogram::Histogram;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Pieces of body that ended in an empty line.
    pub(crate) events: u64,
    /// Bytes of all bodies, without HTTP framing.
    pub(crate) bytes: u64,
    /// Responses that came to their end.
    pub(crate) responses: u64,
    /// Streams that got at least one byte.
    pub(crate) answered: usize,
    /// Connections opened anew because the server had closed them.
    pub(crate) reconnects: u64,
    /// From one event of a response to the next.
    pub(crate) gaps: Histogram,
    /// From sending a request to its first event.
    pub(crate) firsts: Histogram,
    /// From sending a request to the end of its response.
    pub(crate) times: Histogram,
    /// Streams that stopped before the time was over, and why the first of them did.
    pub(crate) failed: usize,
    pub(crate) problem: Option<String>,
}

impl Tally {
    pub(crate) fn fail(&mut self, problem: String) {
        self.failed += 1;
        self.problem.get_or_insert(problem);
    }
}

/// One tally for all streams; they run on one thread, so the lock is always free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Tally>>);

impl Shared {
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Finds the empty lines that end events, also where a body is cut between two newlines.
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
