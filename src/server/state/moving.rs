//! Moves a connection to the successor of its server.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use crate::body::MovedBody;
use crate::net::TakeOver;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::fd::OwnedFd;

/// Takes the sockets of connections when a server drains, and the events of their readers.
#[derive(Clone)]
pub(in crate::server) struct Successor(pub(in crate::server) Arc<dyn Fn(OwnedFd, Option<MovedBody>) + Send + Sync>);

/// Whether a connection moves to the successor of its server, when it is idle or when its response is the events of a
/// reader that can leave. Its socket is given away, and bytes that arrive meanwhile wait in the socket.
#[derive(Debug, Default)]
pub(in crate::server) struct Moving {
    successor: OnceLock<Box<Successor>>,
    done: AtomicBool,
    /// Whether it could move, and its response did not let it.
    asked: AtomicBool,
    /// Whether it moves once its written bytes were sent.
    waits: AtomicBool,
    /// Whether it cannot move, and drains as usual.
    stays: AtomicBool,
}

impl Moving {
    /// Makes the connection move once it is idle.
    pub(super) fn begin(&self, successor: &Successor) {
        self.successor.get_or_init(|| Box::new(successor.clone()));
    }

    /// Returns whether there is a successor that does not have the socket.
    pub(in crate::server) fn is_left(&self) -> bool {
        self.successor.get().is_some() && !self.is_done()
    }

    /// Makes the connection drain as usual.
    pub(in crate::server) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection does not move.
    pub(in crate::server) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.successor.get().is_some() && !self.stays()
    }

    /// Records that the task of the connection has run, and that it did not move, although no bytes wait for room.
    pub(in crate::server) fn mark_asked(&self) {
        if !self.waits.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the response of the connection did not let it move.
    pub(in crate::server) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the socket of `stream` for the successor. `None`: the connection stays. If the stream has received bytes,
    /// it may move after their request.
    pub(in crate::server) fn poll_socket(
        &self,
        cx: &mut Context<'_>,
        stream: &mut impl TakeOver,
    ) -> Poll<Option<OwnedFd>> {
        let socket = stream.poll_duplicate(cx);
        self.waits.store(socket.is_pending(), Ordering::Relaxed);
        let socket = ready!(socket);
        if socket.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidInput) {
            self.stay();
        }
        Poll::Ready(socket.ok())
    }

    /// Gives the socket of the connection to the successor, with the events of its reader.
    pub(in crate::server) fn give(&self, socket: OwnedFd, events: Option<MovedBody>) {
        if let Some(successor) = self.successor.get() {
            self.done.store(true, Ordering::Relaxed);
            (successor.0)(socket, events);
        }
    }

    /// Returns whether the successor has the socket.
    pub(in crate::server) fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Successor")
    }
}
