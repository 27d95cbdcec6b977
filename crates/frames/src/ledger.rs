//! The held frames, and the credit that is returned for dropped ones.
//!
//! Invariants:
//! 1. `out` is the credit that the peer has used and whose return was not sent yet. It never exceeds `granted`.
//! 2. Credit is returned when the last slice of a frame is dropped, on any thread, even if no task polls the receiver.
//!    If the socket is full, the receiver's task returns it later.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use tokio::net::UnixStream;
use tokio::time::Instant;

use super::credit::Credit;
use super::message::{LEN, Message};
use super::rights;

/// The granted credit, and the part that the peer has used.
pub(crate) struct Ledger {
    granted: Credit,
    /// Not the socket itself: a frame must not keep the connection of a receiver that was dropped.
    socket: Weak<UnixStream>,
    state: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    out: Credit,
    /// The part of `out` that is to be returned.
    free: Credit,
    /// When the last held frame was dropped.
    released: Option<Instant>,
    /// The receiver's task.
    waker: Option<Waker>,
}

/// Whether frames are held, so that the peer may have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    Frames,
    /// No frame, since this time if there was one.
    None(Option<Instant>),
}

/// A frame that is held. Dropped with its last slice.
#[derive(Debug)]
pub(crate) struct HeldFrame {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Ledger {
    pub(crate) fn new(granted: Credit, socket: &Arc<UnixStream>) -> Arc<Self> {
        Arc::new(Self { granted, socket: Arc::downgrade(socket), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a frame of the peer into account, or returns `None` if it has no credit for it.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Option<HeldFrame> {
        let mut state = self.state();
        state.out = state.out.plus(Credit { frames: 1, bytes }, self.granted)?;
        Some(HeldFrame { ledger: Arc::clone(self), bytes })
    }

    pub(crate) fn holding(&self) -> Holding {
        let state = self.state();
        if state.out == state.free { Holding::None(state.released) } else { Holding::Frames }
    }

    /// Returns whether credit could not be returned because the socket was full. Registers `waker`, which is woken when
    /// that happens.
    pub(crate) fn is_behind(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        state.free != Credit::default()
    }

    /// Returns the credit of all frames that are no longer held. Fails with `WouldBlock` if the socket is full.
    pub(crate) fn give_back(&self) -> io::Result<()> {
        self.return_free(&mut self.state())
    }

    fn return_free(&self, state: &mut LedgerState) -> io::Result<()> {
        let Some(socket) = self.socket.upgrade().filter(|_| state.free != Credit::default()) else { return Ok(()) };
        // Under the lock: the peer may use the credit at once.
        match rights::send(socket.as_fd(), &Message::Credit(state.free).encode(), None) {
            Ok(LEN) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            // The kernel accepts so few bytes completely or not at all.
            Ok(_) => rights::shut_down(socket.as_fd()),
            // The peer takes no more credit. The frames that it sent before are still received.
            Err(_) => {}
        }
        state.out = state.out.minus(state.free).unwrap_or_default();
        state.free = Credit::default();
        Ok(())
    }
}

impl Drop for HeldFrame {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        // Within `out`, so within the limits.
        state.free.frames += 1;
        state.free.bytes += self.bytes;
        if state.free == state.out {
            state.released = Some(Instant::now());
        }
        let is_full = self.ledger.return_free(&mut state).is_err();
        let waker = if is_full { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("granted", &self.granted).field("out", &self.state().out).finish()
    }
}
