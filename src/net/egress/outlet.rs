//! Sending on a stream without its task, for a sender with many streams.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::{Egress, EgressState};
use crate::buf::origin::{Origin, OriginSlices};

/// The sending side of a stream, for a sender other than its task. Keeps the socket open.
#[derive(Debug)]
pub struct Outlet(Arc<Egress>);

/// What became of bytes that were sent by an [`Outlet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has them.
    All,
    /// Some wait for room in the socket; more should not follow before it has room.
    Waits,
    /// The stream has failed, or its sending side was shut down; the task of the stream gets the error.
    Failed,
}

impl Outlet {
    pub(in crate::net) fn new(egress: &Arc<Egress>) -> Self {
        Self(Arc::clone(egress))
    }

    /// Sends `bytes` behind those that wait already, at once. Never blocks.
    pub(crate) fn send(&self, bytes: &Bytes) -> Sent {
        self.0.send_now(bytes)
    }

    /// Returns whether the socket has room, as far as known; if not, wakes the task once it has. Only for the task of the
    /// stream.
    pub(crate) fn has_room(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.state();
        let has_room = !state.is_held() && state.failure.is_none();
        if !has_room {
            state.waiter = Some(cx.waker().clone());
        }
        has_room
    }
}

impl Egress {
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
