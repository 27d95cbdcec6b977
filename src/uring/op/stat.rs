//! Metadata of an open file: statx(2).

#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::fs::{AtFlags, Statx, StatxFlags};

use super::{Files, Operation, Progress, Target};
use crate::buf::pool::{self, Lease};
use crate::sys::call;

const _: () = assert!(size_of::<Statx>() == size_of::<libc::statx>());

/// Queries an open file. Fails with `EBADF` for a file opened by the chain: statx(2) cannot use the ring's table.
#[derive(Debug)]
pub(crate) struct Stat {
    file: Target,
    lease: Lease,
    found: Option<Statx>,
}

impl Stat {
    pub(crate) fn new(file: Target) -> Self {
        Self { file, lease: pool::lease(size_of::<Statx>()), found: None }
    }

    pub(crate) fn found(&self) -> Option<&Statx> {
        self.found.as_ref()
    }
}

impl Operation for Stat {
    fn code(&self) -> u8 {
        opcode::Statx::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let into: *mut types::statx = self.lease.spare().as_mut_ptr().cast();
        let look = opcode::Statx::new(fd, c"".as_ptr(), into);
        look.flags(AtFlags::EMPTY_PATH.bits().cast_signed()).mask(StatxFlags::BASIC_STATS.bits()).build().flags(flags)
    }

    fn perform(&mut self, files: &mut Files, _: usize) -> io::Result<u32> {
        self.found = Some(call::status(self.file.as_fd(files)?)?);
        Ok(0)
    }

    fn advance(&mut self, _: u32) -> Progress {
        if self.found.is_none() {
            self.lease.advance(size_of::<Statx>());
            let found: *const Statx = self.lease.as_ref().as_ptr().cast();
            // SAFETY: the kernel filled that many bytes, and any bytes are a valid `Statx`.
            self.found = Some(unsafe { found.read_unaligned() });
        }
        Progress::Done
    }
}
