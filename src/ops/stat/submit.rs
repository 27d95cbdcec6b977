//! Metadata by a ring.

#![allow(unsafe_code)]

use std::mem::size_of;

use io_uring::squeue::Entry;
use io_uring::{opcode, types};
use rustix::fs::{AtFlags, StatxFlags};

use super::super::submit::Submit;
use super::{Files, Stat};
use crate::sys::status::Statx;

const _: () = assert!(size_of::<Statx>() == size_of::<libc::statx>());

impl Stat {
    /// Takes the answer that the kernel has written, if no plain call has one.
    pub(super) fn take_filled(&mut self) {
        if self.found.is_none() {
            self.lease.advance(size_of::<Statx>());
            let found: *const Statx = self.lease.as_ref().as_ptr().cast();
            // SAFETY: the kernel filled that many bytes, and any bytes are a valid `Statx`.
            self.found = Some(unsafe { found.read_unaligned() });
        }
    }
}

impl Submit for Stat {
    fn code(&self) -> u8 {
        opcode::Statx::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let into: *mut types::statx = self.lease.spare().as_mut_ptr().cast();
        let look = opcode::Statx::new(fd, c"".as_ptr(), into);
        look.flags(AtFlags::EMPTY_PATH.bits().cast_signed()).mask(StatxFlags::BASIC_STATS.bits()).build().flags(flags)
    }
}
