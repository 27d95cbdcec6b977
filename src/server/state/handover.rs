//! The place where a pending body waits for its connection to take it over from hyper.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt;

use crate::body::MovedBody;
use crate::counters::{Counter, count};
use crate::net::{Owed, TakeOver};
use crate::server::error::BoxError;
use crate::sync::{Mutex, lock};

/// A stream that a body is written to.
pub(in crate::server) trait Output: rt::Write + TakeOver + Unpin {}

impl<I: rt::Write + TakeOver + Unpin> Output for I {}

/// A body that was taken over.
pub(in crate::server) trait Driven: Any + Send {
    /// Writes the frames of the body to `io`. Ready once all bytes of the message are accepted.
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>>;

    /// Returns the events of a reader, if they can leave with the connection. All frames were written.
    fn leave(&mut self) -> Option<MovedBody>;

    /// Returns whether the connection may carry another response after this one.
    fn keeps_alive(&self) -> bool;
}

/// Where a pending body waits for its connection to take it over. Only the task of the connection uses it.
#[derive(Default)]
pub(in crate::server) struct Handover {
    enabled: AtomicBool,
    /// Bytes that hyper holds. The connection can be taken from hyper only if it holds none, because hyper does not
    /// give them back.
    owed: Arc<Owed>,
    is_offered: AtomicBool,
    is_refused: AtomicBool,
    body: Mutex<Option<Box<dyn Driven>>>,
}

impl Handover {
    /// Enables takeover of the responses on `stream`, unless the stream wants each message as one slice.
    pub(in crate::server) fn enable(&self, stream: &mut (impl rt::Write + TakeOver)) {
        if stream.is_write_vectored() {
            stream.count_writes(Arc::clone(&self.owed));
            self.enabled.store(true, Ordering::Relaxed);
        }
    }

    pub(in crate::server) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Records that a new hyper begins on the stream. All earlier bytes were written.
    pub(in crate::server) fn begin(&self) {
        if self.is_enabled() {
            self.owed.reset();
        }
    }

    /// Records that hyper has called the service, so that the head of a response follows.
    pub(in crate::server) fn begin_response(&self) {
        self.owed.begin();
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// Records that hyper was given a frame, which it writes as `bytes` bytes with its framing.
    pub(in crate::server) fn gave(&self, bytes: u64) {
        self.owed.gave(bytes);
    }

    /// Leaves the connection to hyper up to its end, because the framing of a response is not known.
    pub(in crate::server) fn leave_to_hyper(&self) {
        self.owed.stop();
    }

    /// Returns whether it is known what hyper holds.
    pub(in crate::server) fn is_counted(&self) -> bool {
        self.owed.is_counting()
    }

    /// Returns whether the stream has not accepted the whole head of the response.
    pub(in crate::server) fn awaits_head(&self) -> bool {
        self.owed.awaits_head()
    }

    /// Returns whether the stream has accepted all bytes of responses that hyper was given.
    pub(super) fn is_settled(&self) -> bool {
        self.owed.is_settled()
    }

    /// Offers a pending body.
    pub(in crate::server) fn offer(&self, body: Box<dyn Driven>) {
        *lock(&self.body) = Some(body);
        self.is_offered.store(true, Ordering::Relaxed);
    }

    /// Returns the offered body to hyper.
    pub(in crate::server) fn take_back<T: Driven>(&self) -> Option<Box<T>> {
        self.is_offered.store(false, Ordering::Relaxed);
        let body: Box<dyn Any> = lock(&self.body).take()?;
        body.downcast().ok()
    }

    /// Returns the offered body once the stream has accepted all bytes that hyper has framed.
    pub(in crate::server) fn take_over(&self) -> Option<Box<dyn Driven>> {
        if !self.is_offered.load(Ordering::Relaxed) {
            return None;
        }
        if self.is_settled() {
            return self.withdraw();
        }
        if !self.is_refused.load(Ordering::Relaxed) {
            self.is_refused.store(true, Ordering::Relaxed);
            count(Counter::TakeoversRefused, 1);
        }
        None
    }

    /// Returns the offered body because hyper, which would have polled it, is gone.
    pub(in crate::server) fn withdraw(&self) -> Option<Box<dyn Driven>> {
        self.is_offered.store(false, Ordering::Relaxed);
        lock(&self.body).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("enabled", &self.enabled).field("is_offered", &self.is_offered).finish()
    }
}
