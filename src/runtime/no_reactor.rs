//! Replaces `reactor` in builds without io_uring: every ring is refused.

use std::sync::Arc;
use std::task::Context;

use tokio::runtime::Builder;

use super::setup::{DriverBuilder, RingInfo};
use crate::ring::driver::RingDriver;
use crate::sys::caps::{Capabilities, Support};

#[derive(Debug)]
pub(super) struct Reactor {
    pub(super) driver: Arc<RingDriver>,
    pub(super) info: RingInfo,
}

impl Reactor {
    pub(super) fn new(
        _: &DriverBuilder,
        _: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Self, CompletionEvent), String> {
        match Capabilities::get().io_uring() {
            Support::No(reason) => Err(reason.clone()),
            Support::Yes => Err("this build has none".to_owned()),
        }
    }
}

#[derive(Debug)]
pub(super) enum CompletionEvent {}

impl CompletionEvent {
    pub(super) fn poll(&self, _: &mut Context<'_>) -> bool {
        match *self {}
    }
}

pub(super) fn drive_at_park(builder: &mut Builder) -> &mut Builder {
    builder
}
