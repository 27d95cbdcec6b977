//! The requests of a connection, as far as its limits and its end depend on them.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(in crate::server) struct Requests {
    /// Requests so far in the upper 32 bits; in the lower 32 bits, those whose response is not complete, and
    /// frames of HTTP/2 that were not sent.
    counts: AtomicU64,
    /// HTTP/2: responses that returned a frame and were not polled since, and frames that were not sent, because their
    /// window is closed.
    owed: AtomicU32,
    /// HTTP/2: number of times that responses were asked for a frame.
    asked: AtomicU32,
    /// HTTP/2: bytes of frames that were sent, as far as the windows allowed.
    passed: AtomicU64,
    /// Number of the last request whose body was not read to its end.
    unread: AtomicU32,
    /// Number of the request whose body has not been read to its end yet; 0 for none. A number, so that the end of one
    /// body, on any thread, does not end that of the next request.
    arriving: AtomicU32,
    /// HTTP/1: whether the last request is answered by a stream of events.
    events: AtomicBool,
    /// HTTP/1.0: whether the end of the connection is the end of the last response.
    closing: AtomicBool,
}

impl Requests {
    /// Begins a request. Its head was received.
    pub(in crate::server) fn begin(&self) {
        // Release: a reader that sees the request sees its bytes.
        self.counts.fetch_add((1 << 32) + 1, Ordering::Release);
        self.arriving.store(0, Ordering::Relaxed);
        for flag in [&self.events, &self.closing] {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// Begins a frame of a response, which ends as a request does.
    pub(super) fn begin_frame(&self) {
        self.counts.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn end(&self) {
        self.counts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of requests so far, and the number of those whose response is not complete. The number of received
    /// bytes that is read next includes the heads of these requests.
    pub(in crate::server) fn counts(&self) -> (u32, u32) {
        let counts = self.counts.load(Ordering::Acquire);
        ((counts >> 32) as u32, counts as u32)
    }

    pub(in crate::server) fn owes(&self) -> bool {
        self.owed.load(Ordering::Relaxed) > 0
    }

    /// Records that one more response may not send, or that one may send again.
    pub(super) fn set_owes(&self, owes: bool) {
        match owes {
            true => self.owed.fetch_add(1, Ordering::Relaxed),
            false => self.owed.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(in crate::server) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Records that a response was asked for a frame.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn pass(&self, bytes: usize) {
        self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records that the body of a request is not read to its end. A service may drop it after its response, during a
    /// later request.
    pub(in crate::server) fn leaves_unread(&self, request: u32) {
        self.unread.fetch_max(request, Ordering::Relaxed);
    }

    /// Returns whether the client may still be sending the body of its last request.
    pub(in crate::server) fn has_unread(&self) -> bool {
        let (begun, _) = self.counts();
        begun > 0 && self.unread.load(Ordering::Relaxed) == begun
    }

    /// HTTP/1: records that the body of the request in progress arrives. Returns the number of the request.
    pub(in crate::server) fn arrives(&self) -> u32 {
        let (request, _) = self.counts();
        self.arriving.store(request, Ordering::Relaxed);
        request
    }

    /// Records that the body of a request was read to its end. A service may read it after its response, during the
    /// next request.
    pub(in crate::server) fn arrived(&self, request: u32) {
        let _ = self.arriving.compare_exchange(request, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(in crate::server) fn is_arriving(&self) -> bool {
        self.arriving.load(Ordering::Relaxed) != 0
    }

    pub(in crate::server) fn set_events(&self) {
        self.events.store(true, Ordering::Relaxed);
    }

    /// Returns whether the response in progress is a stream of events.
    pub(in crate::server) fn has_events(&self) -> bool {
        self.events.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn set_ends_by_close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Returns whether the client detects the end of the response only by the end of the connection.
    pub(in crate::server) fn ends_by_close(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
