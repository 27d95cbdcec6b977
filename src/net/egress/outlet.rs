//! Sending on a stream without its task, for a sender with many streams.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::gather::with_origins;
use super::{Egress, EgressState};
use crate::sync::{Mutex, lock};

/// The sending side of a stream, for a sender other than its task. Keeps the socket open.
pub struct Outlet(pub(super) Way);

pub(super) enum Way {
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

/// The outcome of a send by an [`Outlet`].
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
        let has_room = !state.blocked && state.failure.is_none();
        if !has_room {
            state.waiter = Some(cx.waker().clone());
        }
        has_room
    }

    fn send_now(&self, bytes: &Bytes) -> Sent {
        let (mut state, mut sent) = (self.state(), 0);
        loop {
            let rest = &bytes[sent..];
            match self.send_some(&mut state, &[IoSlice::new(rest)], rest.len()) {
                Some(n) if sent + n == bytes.len() => {
                    state.burst = 0;
                    return Sent::All;
                }
                // Long rests are shared with other streams.
                Some(0) => {
                    state.record_bytes(rest.len(), 0);
                    state.enqueue_bytes(bytes.slice(sent..));
                    return Sent::Waits;
                }
                Some(n) => sent += n,
                None => return Sent::Failed,
            }
        }
    }

    /// Sends some of the bytes, none if the socket is full. `None`: the stream has failed, or was shut down.
    pub(super) fn send_some(&self, state: &mut EgressState, slices: &[IoSlice<'_>], offered: usize) -> Option<usize> {
        if state.failure.is_some() || state.dead || state.ended || self.writer.is_unwatched() {
            return None;
        }
        if offered == 0 || state.blocked {
            return Some(0);
        }
        match with_origins(slices, |slices| self.write_through(state, slices, offered)) {
            Ok(sent) => Some(sent.unwrap_or(0)),
            Err(_) => {
                self.report_again(state);
                None
            }
        }
    }
}
