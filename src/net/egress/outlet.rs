//! Sending on a stream without its task, for a sender with many streams.

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::gather::with_origins;
use super::{Egress, EgressState};
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

/// Writes the records of a stream above to its [`Outlet`], which takes all of them.
pub(crate) struct RecordWriter<'a> {
    below: &'a Outlet,
    /// What became of the last ones.
    pub(crate) sent: Sent,
}

impl<'a> RecordWriter<'a> {
    pub(crate) fn new(below: &'a Outlet) -> Self {
        Self { below, sent: Sent::All }
    }
}

impl Write for RecordWriter<'_> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(record)])
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        let (taken, sent) = match &self.below.0 {
            Way::Socket(egress) => egress.send_records(records),
            Way::Sealed(stream) => {
                let bytes: Vec<u8> = records.iter().flat_map(|record| record.iter().copied()).collect();
                (bytes.len(), lock(stream).send_now(&bytes))
            }
        };
        self.sent = sent;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

    /// Sends some of the records of a stream above, and returns the number of bytes. If the socket is full, all wait.
    fn send_records(&self, records: &[IoSlice<'_>]) -> (usize, Sent) {
        let offered = records.iter().map(|record| record.len()).sum();
        let mut state = self.state();
        match self.send_some(&mut state, records, offered) {
            Some(0) => {
                state.record_bytes(offered, 0);
                with_origins(records, |records| state.enqueue(records));
                (offered, Sent::Waits)
            }
            Some(n) => {
                state.burst = 0;
                (n, Sent::All)
            }
            None => (offered, Sent::Failed),
        }
    }

    /// Sends some of the bytes, none if the socket is full. `None`: the stream has failed, or was shut down.
    fn send_some(&self, state: &mut EgressState, slices: &[IoSlice<'_>], offered: usize) -> Option<usize> {
        if state.failure.is_some() || state.dead || state.ended || self.writer.is_unwatched() {
            return None;
        }
        if offered == 0 || state.is_held() {
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
