//! Replaces `net` in builds without the feature `uring-net`: no socket receives or sends by a ring.

use super::key::About;
use super::port::Ring;
use super::queue::{After, Queue};
use crate::counters::{Counter, count};
use crate::sys::uring::{Completion, Setup};

pub(crate) struct Sockets;

#[derive(Default)]
pub(super) struct Released;

impl Released {
    pub(super) fn drop_each(self) {}
}

impl Sockets {
    pub(crate) fn new(_: &Setup) -> Self {
        Self
    }

    pub(super) fn has_receives(&self) -> bool {
        false
    }

    pub(super) fn has_stops(&self) -> bool {
        false
    }

    pub(super) fn in_flight(&self) -> usize {
        0
    }

    pub(super) fn reaped(&mut self) {}

    pub(super) fn close(&mut self, _: &mut After) {}

    pub(super) fn lose(&mut self, _: &mut After) {}
}

impl Queue {
    pub(super) fn fill_sockets(&mut self, _: &mut Ring) {}

    pub(super) fn complete_socket(&mut self, _: About, _: Completion, _: &mut After) {
        count(Counter::RingStrays, 1);
    }
}
