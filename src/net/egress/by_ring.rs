//! The ring's work for a stream (feature `uring-net`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::options::Options;
use super::super::receive::Receive;
use super::super::send_strategy::SendStrategy;
use super::socket_writer::SocketWriter;
use crate::ring::net::ZeroCopy;
use crate::runtime::Turn;
use crate::sys::socket;

/// The ring's work for a stream.
pub(super) struct ByRing {
    /// Whether it receives. Such a stream may never need the runtime's driver.
    pub(super) receives: bool,
    /// Whether kept memory may be sent without a copy; cleared if the kernel copies anyway.
    pub(super) zero_copy: Option<ZeroCopy>,
}

impl ByRing {
    pub(super) fn new(writer: &SocketWriter, turn: &Arc<Turn>, options: &Options) -> Self {
        let zero_copy = options.zero_copy && !socket::is_loopback(writer);
        Self {
            receives: options.receive.on(turn) == Receive::Multishot,
            zero_copy: zero_copy.then(|| Arc::new(AtomicBool::new(true))),
        }
    }

    /// Returns whether answers to requests that arrived together leave together, without waiting for more.
    pub(super) fn answers_together(&self, strategy: SendStrategy, turn: &Arc<Turn>) -> bool {
        match strategy {
            SendStrategy::Uring => turn.driver().is_some(),
            _ => self.receives && turn.answers_together(),
        }
    }

    /// Returns whether the ring plays no part in answers.
    #[inline]
    pub(super) fn answers_alone(&self, strategy: SendStrategy) -> bool {
        !self.receives && strategy != SendStrategy::Uring
    }
}
