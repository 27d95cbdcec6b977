//! Sending on a stream without its task, for a sender with many streams.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::{Egress, EgressState};
use crate::buf::origin::{Origin, OriginSlices};
use crate::sync::{Mutex, lock};

/// The sending side of a stream, for a sender other than its task. Keeps the socket open.
pub struct Outlet(Way);

enum Way {
    Socket(Arc<Egress>),
    /// A stream above a socket.
    Sealed(Arc<Mutex<dyn Seal>>),
}

/// A stream that encrypts, for a sender other than its task.
pub trait Seal: Send {
    /// As [`Outlet::send`], with the records of `bytes`.
    fn send_now(&mut self, bytes: &[u8]) -> Sent;

    /// As [`Outlet::has_room`].
    fn has_room(&mut self, cx: &Context<'_>) -> bool;
}

/// What became of bytes that were sent by an [`Outlet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// The kernel has them.
    All,
    /// Some wait for room in the socket; more should not follow before it has room.
    Waits,
    /// The stream has failed, or its sending side was shut down; the task of the stream gets the error.
    Failed,
}

impl Outlet {
    pub(in crate::net) fn new(egress: &Arc<Egress>) -> Self {
        Self(Way::Socket(Arc::clone(egress)))
    }

    pub(crate) fn sealed(stream: Arc<Mutex<dyn Seal>>) -> Self {
        Self(Way::Sealed(stream))
    }

    /// Sends `bytes` behind those that wait already, at once. Never blocks.
    pub fn send(&self, bytes: &Bytes) -> Sent {
        match &self.0 {
            Way::Socket(egress) => egress.send_now(bytes),
            Way::Sealed(stream) => lock(stream).send_now(bytes),
        }
    }

    /// Returns whether the socket has room, as far as known; if not, wakes the task once it has. Only for the task of the
    /// stream.
    pub fn has_room(&self, cx: &Context<'_>) -> bool {
        match &self.0 {
            Way::Socket(egress) => egress.has_room(cx),
            Way::Sealed(stream) => lock(stream).has_room(cx),
        }
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Socket(egress) => f.debug_tuple("Outlet").field(egress).finish(),
            Way::Sealed(_) => f.write_str("Outlet(sealed)"),
        }
    }
}

impl Egress {
    fn has_room(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        let has_room = !state.is_held() && state.failure.is_none();
        if !has_room {
            state.waiter = Some(cx.waker().clone());
        }
        has_room
    }

    fn send_now(&self, bytes: &Bytes) -> Sent {
        let mut state = self.state();
        if state.failure.is_some() || state.dead || state.ended || self.writer.is_unwatched() {
            return Sent::Failed;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if !state.is_held() {
                match self.write_through(&mut state, one(&[IoSlice::new(rest)], &mut [Origin::Unknown]), rest.len()) {
                    Ok(Some(n)) => {
                        rest = &rest[n..];
                        continue;
                    }
                    Ok(None) => {}
                    Err(_) => {
                        self.report_again(&mut state);
                        return Sent::Failed;
                    }
                }
            }
            self.enqueue_rest(&mut state, bytes.slice(bytes.len() - rest.len()..));
            return Sent::Waits;
        }
        state.burst = 0;
        Sent::All
    }

    /// Queues the rest of a message, which a blocked socket sends later. Long rests are shared with other streams.
    fn enqueue_rest(&self, state: &mut EgressState, rest: Bytes) {
        state.record_bytes(rest.len(), 0);
        state.enqueue_bytes(rest);
    }
}

fn one<'a>(slices: &'a [IoSlice<'a>; 1], origins: &'a mut [Origin<'a>; 1]) -> OriginSlices<'a> {
    OriginSlices::new(slices, origins)
}
