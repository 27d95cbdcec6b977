//! The events of a body that layers have wrapped, for a server that writes them without the layers.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::seat::SeatState;
use crate::body::GracefulClose;
use crate::body::attach::{Attach, AttachOutcome, LayeredAttach};
use crate::body::event_body::EventStream;
use crate::net::Outlet;
use crate::sync::{Mutex, MutexGuard, lock};

/// The events of a body that layers have wrapped. They end when that body is dropped.
pub(in crate::sse) struct SharedEvents(Arc<Mutex<GivenEvents>>);

struct GivenEvents {
    state: SeatState,
    /// Length of what precedes the first event: the head of a compressed stream.
    head: u64,
    /// Digests of the bytes that the layers got, and of the bytes that they passed on.
    given: Digest,
    passed: Digest,
    /// The task that polled last.
    waker: Option<Waker>,
}

/// A digest that depends on nothing but the bytes.
#[derive(Default)]
struct Digest {
    hasher: DefaultHasher,
    len: u64,
}

impl Digest {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.len += bytes.len() as u64;
    }

    fn is_same(&self, other: &Self) -> bool {
        self.len > 0 && self.len == other.len && self.hasher.finish() == other.hasher.finish()
    }
}

impl SharedEvents {
    pub(in crate::sse) fn new(state: SeatState) -> Self {
        let head = state.head_len() as u64;
        let (given, passed) = (Digest::default(), Digest::default());
        Self(Arc::new(Mutex::new(GivenEvents { state, head, given, passed, waker: None })))
    }

    /// Returns the handle for the server.
    pub(in crate::sse) fn layered(&self) -> LayeredAttach {
        LayeredAttach { is_encoded: self.lock().head > 0, body: Arc::clone(&self.0) as _ }
    }

    fn lock(&self) -> MutexGuard<'_, GivenEvents> {
        lock(&self.0)
    }
}

/// The body that the layers poll.
impl EventStream for SharedEvents {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut events = self.lock();
        let frame = events.state.poll_events(cx);
        if let Poll::Ready(Some(frame)) = &frame {
            events.given.add(frame);
        }
        events.waker = Some(cx.waker().clone());
        frame
    }

    fn is_ended(&self) -> bool {
        self.lock().state.is_ended()
    }

    fn ending(&self) -> Option<GracefulClose> {
        self.lock().state.ending()
    }
}

/// Without layers.
impl Attach for SharedEvents {
    fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> AttachOutcome {
        self.lock().state.attach(outlet, chunked, cx)
    }

    fn poll_returned(&mut self) -> Poll<()> {
        self.lock().state.poll_returned()
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        self.lock().state.leave()
    }
}

/// Used after the layers have passed on at least one event. The events cannot be attached if a layer has changed bytes,
/// holds some back, or polls in another task, which would no longer be woken.
impl Attach for GivenEvents {
    fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> AttachOutcome {
        if self.given.len <= self.head {
            return AttachOutcome::Waits;
        }
        let is_polled_here = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if !is_polled_here || !self.given.is_same(&self.passed) {
            return AttachOutcome::Refused;
        }
        self.state.attach(outlet, chunked, cx)
    }

    /// The hub has woken the task, or a layer that adds bytes or ends the stream.
    fn poll_returned(&mut self) -> Poll<()> {
        self.state.detach();
        Poll::Ready(())
    }

    /// The layers hold nothing back.
    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        if self.given.is_same(&self.passed) { self.state.leave() } else { None }
    }

    fn passed(&mut self, data: &[u8]) {
        self.passed.add(data);
    }
}

impl fmt::Debug for SharedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().state.fmt(f)
    }
}

impl Drop for SharedEvents {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.lock().state, SeatState::Ended);
        // Dropped without the lock.
        drop(state);
    }
}
