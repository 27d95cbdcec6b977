//! The state of a stream with a log, beside its events.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::end::StreamEnd;
use crate::stream_log::StreamLog;

/// The part of a stream that its log does not have yet.
pub(crate) struct Logged {
    /// Until the stream has ended, which releases the claim.
    pub(crate) log: Option<Arc<dyn StreamLog>>,
    /// Wakes the task of the log.
    pub(crate) changed: Arc<Notify>,
    /// The claim, at the instance that writes.
    pub(crate) token: Option<u64>,
    /// Number of the first event that this producer sends.
    pub(crate) resumed_from: u64,
    /// Events of the producer. The maximum size of the stream bounds them.
    pub(crate) waiting: Vec<Bytes>,
    bytes: usize,
    /// The end that follows them. At an instance that reads, `Stopped` is a request to the other one.
    pub(crate) end: Option<StreamEnd>,
    /// Whether the stream has ended here only, because its log cannot be used.
    pub(crate) is_lost: bool,
}

impl Logged {
    pub(crate) fn new(log: Arc<dyn StreamLog>) -> Self {
        Self {
            log: Some(log),
            changed: Arc::default(),
            token: None,
            resumed_from: 0,
            waiting: Vec::new(),
            bytes: 0,
            end: None,
            is_lost: false,
        }
    }

    pub(crate) fn queue(&mut self, event: Bytes) {
        self.bytes += event.len();
        self.waiting.push(event);
        self.changed.notify_one();
    }

    /// Returns the number and the size of the waiting events.
    pub(crate) fn queued(&self) -> (u64, usize) {
        (self.waiting.len() as u64, self.bytes)
    }

    pub(crate) fn request(&mut self, end: StreamEnd) {
        self.end = Some(end);
        self.changed.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.token.is_some() && self.end.is_some()
    }

    /// Removes the first `events`, which the log has.
    pub(crate) fn settle(&mut self, events: usize) {
        let settled = self.waiting.drain(..events.min(self.waiting.len()));
        self.bytes -= settled.map(|event| event.len()).sum::<usize>();
    }

    /// Forgets what the log does not have. The task ends, and drops the log.
    pub(crate) fn lose(&mut self) {
        self.changed.notify_one();
        (self.waiting, self.bytes, self.is_lost) = (Vec::new(), 0, true);
    }
}
