//! Opening and closing on a ring.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use io_uring::squeue::Entry;
use io_uring::types::{DestinationSlot, Fd, Fixed, OpenHow};
use io_uring::{opcode, types};

use super::super::StepOutcome;
use super::super::submit::Submit;
use super::{Close, Closing, Dir, Files, Open};
use crate::sys::errno::Errno;

impl Dir {
    pub(in super::super) fn in_ring(&self) -> Fd {
        Fd(self.at().as_raw_fd())
    }
}

impl Open {
    /// Takes the descriptor that a completion brings, if a plain call has not kept it.
    #[expect(clippy::disallowed_methods, reason = "a completion brings a number")]
    pub(super) fn own(&mut self, result: u32) {
        if self.place.is_none() && self.fd.is_none() {
            // SAFETY: the call has just created this descriptor, and nothing else uses its number.
            self.fd = Some(unsafe { OwnedFd::from_raw_fd(result.cast_signed()) });
        }
    }
}

impl Close {
    /// Leaves the descriptor to the kernel, which has closed it.
    pub(super) fn forget(&mut self) {
        if let Closing::Fd(fd) = &mut self.0 {
            let _: Option<RawFd> = fd.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

impl Submit for Open {
    fn code(&self) -> u8 {
        opcode::OpenAt2::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (flags, mode, resolve) = self.how.raw(self.place.is_some());
        self.raw = OpenHow::new().flags(flags).mode(mode).resolve(resolve);
        let open = opcode::OpenAt2::new(self.dir.in_ring(), self.path.as_ptr(), &raw const self.raw);
        let place = self.place.map(|n| {
            let place = DestinationSlot::try_from_slot_target(files.slot(n));
            place.expect("internal: a place outside the table")
        });
        open.file_index(place).build()
    }
}

impl Submit for Close {
    fn code(&self) -> u8 {
        opcode::Close::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        match &self.0 {
            Closing::Place(n) => opcode::Close::new(Fixed(files.slot(*n))).build(),
            Closing::Fd(fd) => {
                let fd = fd.as_ref().expect("internal: closed twice");
                opcode::Close::new(types::Fd(fd.as_raw_fd())).build()
            }
        }
    }

    fn fail(&mut self, errno: i32) -> Option<StepOutcome> {
        // The step did not run. After any other error the kernel has released the descriptor, and its number may
        // already be in use for another file.
        if errno == Errno::CANCELED.raw_os_error() {
            return None;
        }
        self.forget();
        Some(if errno == Errno::INTR.raw_os_error() { StepOutcome::Done(0) } else { StepOutcome::Failed(errno) })
    }
}
