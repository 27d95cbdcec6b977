//! Replaces `reactor` in builds without the feature `uring`: every ring is refused.

use std::sync::Arc;
use std::task::Context;

use super::setup::{DriverBuilder, RingInfo};
use crate::uring::driver::Driver;

#[derive(Debug)]
pub(super) struct Reactor {
    pub(super) driver: Arc<Driver>,
    pub(super) info: RingInfo,
}

impl Reactor {
    pub(super) fn new(
        _: &DriverBuilder,
        _: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Self, CompletionEvent), String> {
        Err("the crate was built without the feature `uring`".to_owned())
    }
}

#[derive(Debug)]
pub(super) enum CompletionEvent {}

impl CompletionEvent {
    pub(super) fn poll(&self, _: &mut Context<'_>) -> bool {
        match *self {}
    }
}
