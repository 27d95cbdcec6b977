//! Replaces `by_ring` in builds without the feature `uring-net`: no stream is sent by a ring.

use std::sync::Arc;

use super::super::options::Options;
use super::super::send_strategy::SendStrategy;
use super::socket_writer::SocketWriter;
use crate::runtime::Turn;
use crate::sys::fd::BorrowedFd;

pub(super) struct ByRing {
    pub(super) receives: bool,
}

impl ByRing {
    pub(super) fn new(_: &SocketWriter, _: &Arc<Turn>, _: &Options) -> Self {
        Self { receives: false }
    }

    pub(super) fn answers_together(&self, _: SendStrategy, _: &Arc<Turn>) -> bool {
        false
    }

    pub(super) fn answers_alone(&self, _: SendStrategy) -> bool {
        true
    }
}

/// No ring holds a socket open.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) enum HeldOpen {}

impl HeldOpen {
    pub(super) fn end(self, _: BorrowedFd<'_>) {
        match self {}
    }
}
