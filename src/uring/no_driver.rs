//! Replaces `driver` in builds without io_uring. No ring exists, so no value of [`RingDriver`] exists, and the code that
//! needs one is unreachable.

use std::time::Duration;

use super::net::send::SendBatch;

#[derive(Debug)]
pub(crate) enum RingDriver {}

impl RingDriver {
    pub(crate) fn has_work(&self) -> bool {
        match *self {}
    }

    pub(crate) fn turn(&self) -> bool {
        match *self {}
    }

    pub(crate) fn arrived(&self) -> usize {
        match *self {}
    }

    pub(crate) fn closed(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn send(&self, _: &mut SendBatch) {
        match *self {}
    }

    pub(crate) fn shutdown(&self, _: Duration) -> usize {
        match *self {}
    }
}
