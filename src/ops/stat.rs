//! Metadata of an open file: statx(2).

use std::io;

#[cfg(uring)]
use super::Progress;
use super::{Files, Operation, Target};
use crate::sys::call;
use crate::sys::status::Statx;

#[cfg(uring)]
mod submit;

/// Queries an open file. Fails with `EBADF` for a file opened by the chain: statx(2) cannot use the ring's table.
#[derive(Debug)]
pub(crate) struct Stat {
    file: Target,
    #[cfg(uring)]
    lease: crate::buf::pool::Lease,
    found: Option<Statx>,
}

impl Stat {
    pub(crate) fn new(file: Target) -> Self {
        Self {
            file,
            #[cfg(uring)]
            lease: crate::buf::pool::lease(size_of::<Statx>()),
            found: None,
        }
    }

    pub(crate) fn found(&self) -> Option<&Statx> {
        self.found.as_ref()
    }
}

impl Operation for Stat {
    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        self.found = Some(call::status(self.file.as_fd(files)?)?);
        Ok(0)
    }

    #[cfg(uring)]
    fn advance(&mut self, _: u32) -> Progress {
        self.take_filled();
        Progress::Done
    }
}
