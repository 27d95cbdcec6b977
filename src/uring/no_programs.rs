//! What `driver` does with programs, in builds without io_uring: nothing, because no driver exists.

use std::future::Ready;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::driver::RingDriver;
use super::program::Program;
use super::slots::Ended;

impl RingDriver {
    pub(crate) fn waiting_room(&self, _: &Program) -> Option<(Arc<Semaphore>, u32)> {
        match *self {}
    }

    pub(crate) fn submit(&self, _: Box<Program>) -> Result<Ready<Ended>, (Box<Program>, String)> {
        match *self {}
    }

    pub(crate) fn demote(&self, _: &Program, _: usize) {
        match *self {}
    }
}
