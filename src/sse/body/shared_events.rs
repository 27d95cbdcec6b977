//! The events of a body that is inside the bodies of layers, for a server that writes past these.

use std::hash::{DefaultHasher, Hasher};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::seat::{Attach, SeatState};
use crate::net::Outlet;

/// The events of a body that is inside the bodies of layers.
#[derive(Clone)]
pub(crate) struct SharedEvents(Arc<Mutex<Given>>);

struct Given {
    state: SeatState,
    /// Length of what precedes the first event: the head of a compressed stream.
    head: u64,
    /// The bytes that the layers were given.
    bytes: Digest,
    /// The task that polled last.
    waker: Option<Waker>,
}

/// A digest of the bytes that layers were given, or have passed on. Depends on nothing but the bytes.
#[derive(Default)]
pub(crate) struct Digest {
    hasher: DefaultHasher,
    len: u64,
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
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
        Self(Arc::new(Mutex::new(Given { state, head, bytes: Digest::default(), waker: None })))
    }

    /// Returns whether the events are compressed, so that the response has a `Content-Encoding`.
    pub(crate) fn is_compressed(&self) -> bool {
        self.lock().head > 0
    }

    /// Polls for the layers.
    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut given = self.lock();
        let frame = given.state.poll_frame(cx);
        if let Poll::Ready(Some(frame)) = &frame {
            given.bytes.add(frame);
        }
        given.waker = Some(cx.waker().clone());
        frame
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&SeatState) -> T) -> T {
        look(&self.lock().state)
    }

    /// Ends the stream, because the layers have dropped it.
    pub(in crate::sse) fn end(&self) {
        let state = mem::replace(&mut self.lock().state, SeatState::Ended);
        // Dropped without the lock.
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`EventBody::attach`](crate::sse::EventBody::attach), for a body without layers.
    pub(super) fn attach_own(&self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
        self.lock().state.attach(outlet, chunked, cx)
    }

    /// As [`EventBody::attach`](crate::sse::EventBody::attach), for layers that have `passed` on these bytes so far, at
    /// least an event. Returns `None` if they have changed bytes or keep some, or poll in another task, which would no
    /// longer be woken.
    pub(crate) fn attach(&self, passed: &Digest, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Option<Attach> {
        let mut given = self.lock();
        if given.bytes.len <= given.head {
            return Some(Attach::Waits);
        }
        let is_polled_here = given.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let may = is_polled_here && given.bytes.is_same(passed);
        may.then(|| given.state.attach(outlet, chunked, cx))
    }

    /// Takes the stream back from the hub, so that the layers may be polled.
    pub(crate) fn detach(&self) {
        self.lock().state.detach();
    }

    /// As [`EventBody::poll_returned`](crate::sse::EventBody::poll_returned), for a body without layers.
    pub(super) fn poll_returned(&self) -> Poll<()> {
        self.lock().state.poll_returned()
    }
}
