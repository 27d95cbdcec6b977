//! The place where a pending body waits for its connection to take it over from hyper.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper::rt;

use super::body_error::BoxError;
use super::lock::lock;
use crate::net::TakeOver;

/// A stream that a body is written to.
pub(super) trait Output: rt::Write + TakeOver + Unpin {}

impl<I: rt::Write + TakeOver + Unpin> Output for I {}

/// A body that was taken over.
pub(super) trait Driven: Any + Send {
    /// Writes the frames of the body to `io`. Ready once all bytes of the message are accepted.
    fn poll_drive(&mut self, cx: &mut Context<'_>, io: &mut dyn Output) -> Poll<Result<(), BoxError>>;

    /// Returns whether the connection may carry another response after this one.
    fn keeps_alive(&self) -> bool;
}

/// Where a pending body waits for its connection to take it over. Only the task of the connection uses it.
#[derive(Default)]
pub(super) struct Handover {
    enabled: AtomicBool,
    /// Set by the stream when hyper flushes it, which hyper does only when it holds no unwritten bytes.
    flushed: Arc<AtomicBool>,
    is_offered: AtomicBool,
    body: Mutex<Option<Box<dyn Driven>>>,
}

impl Handover {
    /// Enables takeover of the responses on `stream`, unless the stream wants each message as one slice.
    pub(super) fn enable(&self, stream: &mut (impl rt::Write + TakeOver)) {
        if stream.is_write_vectored() {
            stream.track_flush(Arc::clone(&self.flushed));
            self.enabled.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Records that hyper has a head or a frame that it has not written.
    pub(super) fn holds_bytes(&self) {
        self.flushed.store(false, Ordering::Relaxed);
    }

    /// Returns whether hyper has flushed since, so that it holds nothing.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Offers a pending body.
    pub(super) fn offer(&self, body: Box<dyn Driven>) {
        *lock(&self.body) = Some(body);
        self.is_offered.store(true, Ordering::Relaxed);
    }

    /// Returns the offered body to hyper.
    pub(super) fn take_back<T: Driven>(&self) -> Option<Box<T>> {
        self.is_offered.store(false, Ordering::Relaxed);
        let body: Box<dyn Any> = lock(&self.body).take()?;
        body.downcast().ok()
    }

    /// Returns the offered body once the stream has accepted all bytes that hyper has framed.
    pub(super) fn take_over(&self) -> Option<Box<dyn Driven>> {
        let is_ready = self.is_offered.load(Ordering::Relaxed) && self.is_flushed();
        if is_ready { self.withdraw() } else { None }
    }

    /// Returns the offered body because hyper, which would have polled it, is gone.
    pub(super) fn withdraw(&self) -> Option<Box<dyn Driven>> {
        self.is_offered.store(false, Ordering::Relaxed);
        lock(&self.body).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("enabled", &self.enabled).field("is_offered", &self.is_offered).finish()
    }
}
