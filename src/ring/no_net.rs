//! Replaces `net` in builds without the feature `uring-net`: no socket receives or sends by a ring.

use super::key::About;
use super::port::Ring;
use super::queue::{After, Queue};
use crate::counters::{Counter, count};
use crate::sys::uring::Completion;

pub(crate) mod sockets {
    use std::task::Waker;

    use crate::sys::uring::Setup;

    pub(crate) struct Sockets;

    #[derive(Default)]
    pub(in crate::ring) struct Released;

    impl Released {
        pub(in crate::ring) fn drop_each(self) {}
    }

    impl Sockets {
        pub(crate) fn new(_: &Setup) -> Self {
            Self
        }

        pub(in crate::ring) fn has_receives(&self) -> bool {
            false
        }

        pub(in crate::ring) fn has_stops(&self) -> bool {
            false
        }

        pub(in crate::ring) fn in_flight(&self) -> usize {
            0
        }

        pub(in crate::ring) fn reaped(&mut self) {}

        pub(in crate::ring) fn close(&mut self, _: &mut Vec<Waker>, _: &mut Released) {}

        pub(in crate::ring) fn lose(&mut self, _: &mut Vec<Waker>, _: &mut Released) {}
    }
}

impl Queue {
    pub(super) fn fill_sockets(&mut self, _: &mut Ring) {}

    pub(super) fn complete_socket(&mut self, _: About, _: Completion, _: &mut After) {
        count(Counter::RingStrays, 1);
    }
}
