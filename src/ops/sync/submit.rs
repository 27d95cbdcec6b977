//! Operations on a whole file on a ring.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};

use super::super::submit::Submit;
use super::{Allocate, Files, SetLen, Sync};

impl Submit for Sync {
    fn code(&self) -> u8 {
        opcode::Fsync::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let what = if self.data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        opcode::Fsync::new(fd).flags(what).build().flags(flags)
    }
}

impl Submit for Allocate {
    fn code(&self) -> u8 {
        opcode::Fallocate::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        let mode = self.mode.bits().cast_signed();
        opcode::Fallocate::new(fd, self.len).offset(self.offset).mode(mode).build().flags(flags)
    }
}

impl Submit for SetLen {
    fn code(&self) -> u8 {
        opcode::Ftruncate::CODE
    }

    fn entry(&mut self, files: &Files) -> Entry {
        let (fd, flags) = self.file.in_ring(files);
        opcode::Ftruncate::new(fd, self.len).build().flags(flags)
    }
}
