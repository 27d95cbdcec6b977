//! Moves a connection to the successor of its server.

use std::fmt;
use std::sync::{Arc, OnceLock};

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
    successor: OnceLock<Successor>,
    done: AtomicBool,
    /// Whether it could move, and its response did not let it.
    asked: AtomicBool,
    /// Whether it cannot move, and drains as usual.
    stays: AtomicBool,
}

impl Moving {
    /// Makes the connection move once it is idle.
    pub(in crate::server) fn begin(&self, successor: &Successor) {
        self.successor.get_or_init(|| successor.clone());
    }

    /// Returns whether there is a successor that does not have the socket.
    pub(in crate::server) fn is_left(&self) -> bool {
        self.successor.get().is_some() && !self.is_done()
    }

    /// Returns whether the socket could not be given away.
    pub(in crate::server) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.successor.get().is_some() && !self.stays()
    }

    /// Records that the task of the connection has run, and that it did not move, although no bytes wait for room.
    pub(in crate::server) fn mark_asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether the response of the connection did not let it move.
    pub(in crate::server) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Gives the socket of `stream` to the successor, with the events of its reader. Returns `false` if the stream holds
    /// bytes, or the ring receives for it: the connection stays.
    pub(in crate::server) fn give(&self, stream: &impl TakeOver, events: Option<MovedBody>) -> bool {
        let Some((successor, socket)) = self.successor.get().zip(stream.duplicate().ok()) else {
            self.stays.store(true, Ordering::Relaxed);
            return false;
        };
        self.done.store(true, Ordering::Relaxed);
        (successor.0)(socket, events);
        true
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
