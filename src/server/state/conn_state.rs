//! State that a connection shares with the reaper, and the reaper's instructions to it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use super::conn_limiter::Permit;
use super::gone::Absence;
use super::handover::Handover;
use super::moving::{Moving, Successor};
use super::peer::Peer;
use super::requests::Requests;
use super::unread::Unread;
use super::wait::Wait;
use crate::body::GracefulClose;
use crate::net::Handle;
use crate::server::limits::Limits;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, guarded, lock};

#[derive(Debug)]
pub(in crate::server) struct ConnState {
    pub(in crate::server) limits: Arc<Limits>,
    pub(in crate::server) handle: Handle,
    pub(in crate::server) peer: Peer,
    pub(in crate::server) requests: Requests,
    /// Present over HTTP/2.
    unread: OnceLock<Box<Unread>>,
    protocol: AtomicU8,
    phase: AtomicU8,
    /// Whether it carries something other than requests, in addition or instead.
    tunnel: AtomicBool,
    /// Bytes of the handshake of TLS, once it is complete. 0 for a connection without TLS.
    handshake: AtomicU32,
    /// HTTP/1: whether a response waits for the connection to become a tunnel.
    switching: AtomicBool,
    draining: AtomicBool,
    /// The number of requests after which a head was late.
    late_after: AtomicU32,
    /// Whether the last response is complete and further bytes of the client are discarded.
    lingers: AtomicBool,
    ended: AtomicBool,
    /// Whether the task ended during the drain of the server.
    drained: AtomicBool,
    /// The number of requests after which the connection should hibernate: free the memory that it needs only during a
    /// request. 0: it should not.
    hibernate_after: AtomicU32,
    waker: Mutex<Option<Waker>>,
    permit: Mutex<Option<Permit>>,
    waits: Mutex<Vec<Arc<Wait>>>,
    endings: Mutex<Endings>,
    pub(in crate::server) handover: Handover,
    pub(in crate::server) absence: Absence,
    pub(in crate::server) moving: Moving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::server) enum Protocol {
    Unknown,
    One,
    Two,
}

/// Phase of the shutdown of a connection. Each phase is stronger than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::server) enum ShutdownPhase {
    Nothing,
    /// Finish after the requests in progress.
    Finish,
    /// Report that the request took too long, and end.
    TimedOut,
    /// End. The socket is reset already, unless the kernel may hold bytes for the peer.
    Abort,
}

impl ConnState {
    pub(in crate::server) fn new(limits: Arc<Limits>, handle: Handle, peer: Peer, permit: Permit) -> Arc<Self> {
        Arc::new(Self {
            limits,
            handle,
            peer,
            requests: Requests::default(),
            unread: OnceLock::new(),
            protocol: AtomicU8::new(Protocol::Unknown as u8),
            phase: AtomicU8::new(ShutdownPhase::Nothing as u8),
            tunnel: AtomicBool::new(false),
            handshake: AtomicU32::new(0),
            switching: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            late_after: AtomicU32::new(0),
            lingers: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            hibernate_after: AtomicU32::new(0),
            waker: Mutex::new(None),
            permit: Mutex::new(Some(permit)),
            waits: Mutex::default(),
            endings: Mutex::default(),
            handover: Handover::default(),
            absence: Absence::default(),
            moving: Moving::default(),
        })
    }

    pub(in crate::server) fn protocol(&self) -> Protocol {
        match self.protocol.load(Ordering::Relaxed) {
            0 => Protocol::Unknown,
            1 => Protocol::One,
            _ => Protocol::Two,
        }
    }

    pub(in crate::server) fn set_protocol(&self, protocol: Protocol) {
        if protocol == Protocol::Two {
            self.unread.get_or_init(Box::default);
        }
        self.protocol.store(protocol as u8, Ordering::Relaxed);
    }

    /// Returns the unread request bodies of a connection that speaks HTTP/2.
    pub(in crate::server) fn unread(&self) -> Option<&Unread> {
        self.unread.get().map(|unread| &**unread)
    }

    /// Returns the bytes received so far.
    pub(in crate::server) fn received(&self) -> u64 {
        self.handle.pulse().map_or(0, |pulse| pulse.received)
    }

    pub(in crate::server) fn is_tunnel(&self) -> bool {
        self.tunnel.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn mark_tunnel(&self) {
        self.tunnel.store(true, Ordering::Relaxed);
    }

    /// Records the end of the handshake of TLS. `behind` is the number of bytes of a request that have arrived with it.
    #[cfg(tls)]
    pub(in crate::server) fn mark_secured(&self, behind: usize) {
        let handshake = self.received().saturating_sub(behind as u64).max(1);
        self.handshake.store(u32::try_from(handshake).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Returns the bytes that were received before those of the first request; 0 without TLS, or before the end of the
    /// handshake.
    pub(in crate::server) fn handshake(&self) -> u64 {
        self.handshake.load(Ordering::Relaxed).into()
    }

    /// Returns whether a response waits for the connection to become a tunnel.
    pub(in crate::server) fn is_switching(&self) -> bool {
        self.switching.load(Ordering::Relaxed)
    }

    /// Records that a response waits for the connection to become a tunnel.
    pub(in crate::server) fn mark_switching(&self) {
        self.switching.store(true, Ordering::Relaxed);
    }

    pub(in crate::server) fn phase(&self) -> ShutdownPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => ShutdownPhase::Nothing,
            1 => ShutdownPhase::Finish,
            2 => ShutdownPhase::TimedOut,
            _ => ShutdownPhase::Abort,
        }
    }

    /// Raises the shutdown phase, never lowers it, and wakes the connection's task.
    pub(in crate::server) fn raise(&self, what: ShutdownPhase) {
        if self.phase.fetch_max(what as u8, Ordering::AcqRel) < what as u8 {
            self.wake();
        }
    }

    /// Ends a connection because the head behind its first `requests` is late, unless one has begun meanwhile.
    pub(in crate::server) fn time_out(&self, requests: u32) {
        self.late_after.store(requests, Ordering::Relaxed);
        self.raise(ShutdownPhase::TimedOut);
    }

    /// Returns whether the head that [was late](Self::time_out) has not become a request.
    pub(in crate::server) fn is_late(&self) -> bool {
        self.requests.counts() == (self.late_after.load(Ordering::Relaxed), 0)
    }

    /// Asks a connection without a request, after its first `requests`, to free its memory until the next one.
    pub(in crate::server) fn request_hibernation(&self, requests: u32) {
        if self.handover.is_enabled() {
            self.hibernate_after.store(requests, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Wakes the task of the connection.
    pub(in crate::server) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    /// Makes the connection move to the successor of its server once it is idle.
    pub(in crate::server) fn begin_move(&self, successor: &Successor) {
        self.moving.begin(successor);
    }

    /// Returns whether the connection moves to the successor of its server once it is idle; never over HTTP/2.
    #[inline]
    pub(in crate::server) fn moves(&self) -> bool {
        self.moving.has_begun() && self.protocol() != Protocol::Two
    }

    /// Returns whether the connection [moves](Self::moves) and may do so next, so that its responses are not told to end.
    pub(in crate::server) fn may_move_next(&self) -> bool {
        self.moves() && !self.moving.was_asked() && !self.is_tunnel() && !self.has_ended()
    }

    /// Returns whether the connection was asked to hibernate, and has had no request since.
    pub(in crate::server) fn should_hibernate(&self) -> bool {
        let (begun, open) = self.requests.counts();
        open == 0 && self.hibernate_after.load(Ordering::Relaxed) == begun && begun > 0
    }

    /// Records that the connection hibernates, so that the first bytes of a head do not make it hibernate again.
    pub(in crate::server) fn mark_hibernating(&self) {
        self.hibernate_after.store(0, Ordering::Relaxed);
    }

    /// Returns whether the connection can be taken from hyper: there is no response, no unread request body, and no
    /// unwritten bytes. hyper's answer to an invalid request is counted like other bytes.
    pub(in crate::server) fn can_leave_hyper(&self) -> bool {
        self.requests.counts().1 == 0
            && !self.requests.is_arriving()
            && self.handover.is_settled()
            && self.handle.pulse().is_some_and(|pulse| !pulse.waits())
    }

    /// Returns whether hyper keeps the connection up to its end: the service does not read the body of the last request, or
    /// it is not known which bytes hyper holds.
    pub(in crate::server) fn stays_with_hyper(&self) -> bool {
        self.requests.has_unread() || !self.handover.is_counted()
    }

    pub(in crate::server) fn abort(&self) {
        self.handle.reset();
        self.raise(ShutdownPhase::Abort);
    }

    /// Runs `work`, or returns a shutdown phase above `heard`. Only the connection's own task calls this. No `async fn`,
    /// whose future would hold `work` twice.
    pub(in crate::server) fn unless_raised<F: Future + Unpin>(
        &self,
        heard: ShutdownPhase,
        mut work: F,
    ) -> impl Future<Output = Result<F::Output, ShutdownPhase>> {
        let mut listens = false;
        poll_fn(move |cx| {
            if !listens {
                // A task has the same waker for its whole life.
                *lock(&self.waker) = Some(cx.waker().clone());
                listens = true;
            }
            match self.phase() {
                phase if phase > heard => Poll::Ready(Err(phase)),
                _ => Pin::new(&mut work).poll(cx).map(Ok),
            }
        })
    }

    /// Records that the connection's task has ended. The connection counts until its socket is closed. Returns whether it
    /// [is over](Self::is_over).
    pub(in crate::server) fn end(&self) -> bool {
        lock(&self.waker).take();
        drop(self.handover.withdraw());
        if !self.is_tunnel() {
            self.absence.set();
        }
        let is_over = self.release_if_closed();
        self.ended.store(true, Ordering::Release);
        is_over
    }

    /// Records that the task ends during the drain of the server. Called before [`end`](Self::end).
    pub(in crate::server) fn mark_drained(&self) {
        self.drained.store(true, Ordering::Release);
    }

    pub(in crate::server) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Returns whether the task has ended and the socket is closed. The connection no longer counts then.
    pub(in crate::server) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.release_if_closed()
    }

    pub(in crate::server) fn has_ended(&self) -> bool {
        self.lingers.load(Ordering::Relaxed) || self.ended.load(Ordering::Acquire)
    }

    pub(in crate::server) fn mark_lingering(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    fn release_if_closed(&self) -> bool {
        // A socket with nothing left to send is closed by the end of this turn, unless it was handed over.
        let closed = self.handle.stats().is_none_or(|numbers| numbers.queued == 0 && !self.is_tunnel());
        if closed {
            lock(&self.permit).take();
            // The client of a tunnel counts as present until then.
            self.absence.set();
        }
        closed
    }

    pub(in crate::server) fn waits(&self) -> MutexGuard<'_, Vec<Arc<Wait>>> {
        lock(&self.waits)
    }

    /// Returns whether the server drains, or the age is reached, so that no further request is accepted.
    pub(in crate::server) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Begins to drain. Returns the number of endings to call; without any, later ones are called at once.
    pub(in crate::server) fn begin_drain(&self) -> usize {
        self.draining.store(true, Ordering::SeqCst);
        let mut endings = lock(&self.endings);
        endings.is_closed |= endings.open.is_empty();
        endings.open.len()
    }

    /// Calls `ending` when the connection drains, or now if all others were called, unless the result is dropped first.
    pub(in crate::server) fn register_ending(self: &Arc<Self>, ending: GracefulClose) -> Registered {
        let mut endings = lock(&self.endings);
        if endings.is_closed {
            drop(endings);
            ending.end();
        } else {
            // Nearly all connections have one at most.
            if endings.open.is_empty() {
                endings.open.reserve_exact(1);
            }
            endings.open.push(ending.clone());
        }
        Registered { conn_state: Arc::clone(self), ending }
    }

    /// Calls the first endings, `most` at most, each once. After all were called, later endings are called at once.
    pub(in crate::server) fn end_answers(&self, most: usize) {
        let mut endings = lock(&self.endings);
        endings.is_closed |= most >= endings.open.len();
        let most = most.min(endings.open.len());
        let called: Vec<_> = endings.open.drain(..most).collect();
        endings.has_called |= most > 0;
        drop(endings);
        // Not under the lock: ending a response may drop it.
        for ending in called {
            // A panic must not keep the other endings from being called, nor the limits from being enforced.
            guarded(move || ending.end());
        }
    }

    /// Returns whether an ending was called by [`end_answers`](Self::end_answers).
    pub(in crate::server) fn was_notified(&self) -> bool {
        lock(&self.endings).has_called
    }
}

/// How responses and tasks are told to end.
#[derive(Debug, Default)]
struct Endings {
    open: Vec<GracefulClose>,
    /// Whether later endings are called at once.
    is_closed: bool,
    has_called: bool,
}

#[derive(Debug)]
pub(in crate::server) struct Registered {
    conn_state: Arc<ConnState>,
    ending: GracefulClose,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let endings = &mut lock(&self.conn_state.endings).open;
        if let Some(at) = endings.iter().position(|other| other.is_same(&self.ending)) {
            endings.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
