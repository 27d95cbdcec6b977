//! Operations on names on a ring.

use io_uring::opcode;
use io_uring::squeue::Entry;

use super::super::submit::Submit;
use super::{Files, HardLink, Rename, Unlink};

impl Submit for Rename {
    fn code(&self) -> u8 {
        opcode::RenameAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        let rename = opcode::RenameAt::new(from_dir.in_ring(), from.as_ptr(), to_dir.in_ring(), to.as_ptr());
        rename.flags(self.flags.bits()).build()
    }
}

impl Submit for Unlink {
    fn code(&self) -> u8 {
        opcode::UnlinkAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let (dir, path) = &self.0;
        opcode::UnlinkAt::new(dir.in_ring(), path.as_ptr()).build()
    }
}

impl Submit for HardLink {
    fn code(&self) -> u8 {
        opcode::LinkAt::CODE
    }

    fn entry(&mut self, _: &Files) -> Entry {
        let ((from_dir, from), (to_dir, to)) = (&self.from, &self.to);
        opcode::LinkAt::new(from_dir.in_ring(), from.as_ptr(), to_dir.in_ring(), to.as_ptr()).build()
    }
}
