//! The receiving side of a stream with a multishot receive ([`Receive::Multishot`](crate::net::Receive)).
//!
//! ```text
//!          first read                 64 KiB unread           all of it read
//!   Idle ─────────────▶ Armed ─────────────────────▶ Stopping ───────▶ Idle ──▶ Armed
//!                         │ no buffer was free                no ring: Plain, permanently
//!                         ▼
//!                        Dry: plain reads until one would have to wait ──▶ Idle, if buffers are free by then
//!
//!   While the strategy of the stream is `SendStrategy::Epoll`: Armed ──▶ Stopping ──▶ Idle, with plain reads.
//! ```
//!
//! Invariants:
//! 1. While a receive is armed or being stopped, nothing else reads the socket: bytes would arrive out of order.
//! 2. The driver is never called with the state locked: it calls this module with its own locks held.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::task::coop;

use super::recv_buf::{RecvBuf, poll_plain};
use crate::net::egress::{Egress, HeldOpen};
use crate::net::send_strategy::SendStrategy;
use crate::ring::driver::RingDriver;
use crate::ring::key::Key;
use crate::ring::net::receive::{Answer, Arrival, Ending, Receiver};
use crate::runtime::Turn;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::uring::Chunk;

/// Number of unread bytes of one connection at which its receive is stopped, until they are read.
const CREDIT: usize = 64 << 10;
/// Errors of a kernel or a socket without multishot receives.
const LACKING: [Errno; 3] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];

pub(super) struct Ingress {
    egress: Arc<Egress>,
    turn: Arc<Turn>,
    state: Mutex<IngressState>,
}

#[derive(Default)]
struct IngressState {
    chunks: VecDeque<Chunk>,
    unread: usize,
    phase: Phase,
    end: Option<Result<(), Errno>>,
    reader: Option<Waker>,
    gone: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Dry,
    /// `None` only while the receive is being armed.
    Armed(Option<(Arc<RingDriver>, Key)>),
    Stopping,
    Plain,
}

impl fmt::Debug for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Ingress").field("unread", &state.unread).field("end", &state.end).finish_non_exhaustive()
    }
}

impl AsFd for Ingress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.egress.as_fd()
    }
}

impl Ingress {
    /// Returns `None` for a stream that receives by plain calls.
    pub(in crate::net) fn new(egress: &Arc<Egress>, turn: Arc<Turn>) -> Option<Arc<Self>> {
        egress.receives_by_ring().then(|| Self::of(egress, turn))
    }

    fn of(egress: &Arc<Egress>, turn: Arc<Turn>) -> Arc<Self> {
        Arc::new(Self { egress: Arc::clone(egress), turn, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, IngressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the socket was never read, or all received bytes were read and no receive is in progress.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        !matches!(state.phase, Phase::Armed(_) | Phase::Stopping) && state.unread == 0 && state.end.is_none()
    }

    /// Moves received bytes into `buf`; no bytes mean the end of the stream. Without `cx` it neither waits nor starts a
    /// receive.
    pub(super) fn poll_receive<B: RecvBuf>(
        self: &Arc<Self>,
        mut cx: Option<&mut Context<'_>>,
        buf: &mut B,
    ) -> Poll<io::Result<()>> {
        let progress = match &mut cx {
            Some(cx) => Some(ready!(coop::poll_proceed(cx))),
            None => None,
        };
        let made_progress = || progress.iter().for_each(coop::RestoreOnPending::made_progress);
        loop {
            let mut state = self.state();
            if state.unread > 0 {
                state.read(buf);
                made_progress();
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = state.end {
                // The kernel reports an error once, and later reads query it again. If a ring was given up with
                // received bytes in it (EIO), the error stays, because later reads would skip these bytes.
                if B::TAKES && matches!(end, Err(errno) if errno != Errno::IO) {
                    state.end = None;
                }
                made_progress();
                return Poll::Ready(end.map_err(io::Error::from));
            }
            let by_ring = self.egress.send_strategy() != SendStrategy::Epoll;
            match &mut state.phase {
                Phase::Armed(armed @ Some(_)) if !by_ring => {
                    let armed = armed.take();
                    state.phase = Phase::Stopping;
                    drop(state);
                    if armed.is_some_and(|(driver, key)| !driver.stop_receiving(key)) {
                        self.state().phase = Phase::Idle;
                    }
                }
                Phase::Armed(_) | Phase::Stopping => {
                    if let Some(cx) = cx {
                        state.reader = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
                Phase::Idle if by_ring && cx.is_some() => {
                    drop(state);
                    self.arm();
                }
                Phase::Idle | Phase::Plain => {
                    drop(state);
                    return poll_plain(&self.egress, cx, buf.room(), |fd| buf.receive(fd));
                }
                Phase::Dry => {
                    drop(state);
                    match buf.receive(self.as_fd()) {
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        received => {
                            let received = received.map(|n| self.egress.received(n));
                            made_progress();
                            return Poll::Ready(received);
                        }
                    }
                    let driver = self.turn.driver();
                    if driver.is_some_and(|driver| !driver.has_buffers()) {
                        return poll_plain(&self.egress, cx, buf.room(), |fd| buf.receive(fd));
                    }
                    self.state().phase = Phase::Idle;
                }
            }
        }
    }

    /// Arms a multishot receive. If that fails, reads are plain from now on.
    fn arm(self: &Arc<Self>) {
        self.state().phase = Phase::Armed(None);
        let driver = self.turn.driver();
        let armed = driver.and_then(|driver| {
            let receiver: Arc<dyn Receiver> = self.clone();
            let key = driver.receive(receiver).ok()?;
            Some((driver, key))
        });
        let mut state = self.state();
        // The receive may have ended already.
        if matches!(state.phase, Phase::Armed(None)) {
            state.phase = match armed {
                Some(armed) => Phase::Armed(Some(armed)),
                None => Phase::Plain,
            };
        }
    }

    /// Called when the owner drops the stream. Returns whether the ring holds the socket open.
    pub(in crate::net) fn abandon(&self) -> Option<HeldOpen> {
        let mut state = self.state();
        state.gone = true;
        let has_unread = std::mem::take(&mut state.unread) > 0;
        let is_held = has_unread || matches!(state.phase, Phase::Armed(_) | Phase::Stopping);
        let held = is_held.then_some(if has_unread { HeldOpen::Unread } else { HeldOpen::Read });
        let chunks = std::mem::take(&mut state.chunks);
        let armed = match &mut state.phase {
            Phase::Armed(armed) => armed.take(),
            _ => None,
        };
        drop(state);
        drop(chunks);
        if let Some((driver, key)) = armed {
            driver.stop_receiving(key);
        }
        held
    }
}

impl IngressState {
    /// Moves bytes into `buf` while it has room, or copies them. Empty buffers return to the kernel.
    fn read<B: RecvBuf>(&mut self, buf: &mut B) {
        if !B::TAKES {
            for chunk in &self.chunks {
                buf.put(&chunk.as_ref()[..buf.room().min(chunk.as_ref().len())]);
            }
            return;
        }
        while let Some(chunk) = self.chunks.front_mut() {
            let n = buf.room().min(chunk.as_ref().len());
            buf.put(&chunk.as_ref()[..n]);
            chunk.advance(n);
            self.unread -= n;
            if !chunk.as_ref().is_empty() {
                return;
            }
            self.chunks.pop_front();
        }
    }
}

impl Receiver for Ingress {
    fn arrived(&self, arrival: Arrival) -> Answer {
        let mut state = self.state();
        let mut stop = false;
        match arrival {
            // Returned at once, so that the kernel can reuse the buffer.
            Arrival::Bytes(chunk) if state.gone => drop(chunk),
            Arrival::Bytes(chunk) => {
                self.egress.received(chunk.as_ref().len());
                state.unread += chunk.as_ref().len();
                state.chunks.push_back(chunk);
                stop = state.unread >= CREDIT && matches!(state.phase, Phase::Armed(_));
                if stop {
                    state.phase = Phase::Stopping;
                }
            }
            Arrival::Ended(ending) => {
                state.phase = match ending {
                    Ending::Eof | Ending::Stopped => Phase::Idle,
                    Ending::NoBuffers => Phase::Dry,
                    Ending::Failed(_) => Phase::Plain,
                };
                state.end = match ending {
                    Ending::Eof => Some(Ok(())),
                    Ending::Failed(errno) if !LACKING.iter().any(|lacking| lacking.raw_os_error() == errno) => {
                        Some(Err(Errno::from_raw_os_error(errno)))
                    }
                    _ => None,
                };
            }
        }
        Answer { wake: state.reader.take(), stop }
    }
}

#[cfg(test)]
mod tests;
