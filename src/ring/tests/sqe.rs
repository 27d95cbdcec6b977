//! Test support: entries read by the layout of the kernel, so that a wrong entry has its wrong effect here too.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

/// `IOSQE_FIXED_FILE`, `IOSQE_IO_LINK`, `IOSQE_IO_HARDLINK`.
const FIXED: u8 = 1;
const LINK: u8 = 1 << 2;
const HARDLINK: u8 = 1 << 3;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Sqe {
    pub(super) opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    pub(super) offset: u64,
    pub(super) addr: u64,
    pub(super) len: u32,
    op_flags: u32,
    pub(super) user_data: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Sqe>() == size_of::<Entry>());

impl Sqe {
    pub(super) fn read(entry: &Entry) -> Self {
        // SAFETY: both types are the 64 bytes of the kernel's structure.
        unsafe { std::ptr::from_ref(entry).cast::<Self>().read() }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.flags & (LINK | HARDLINK) != 0
    }

    /// Returns whether the next entry runs only if this one completes in full.
    pub(super) fn is_linked_softly(&self) -> bool {
        self.flags & HARDLINK == 0
    }

    /// Returns whether a failed or short operation fails the link: Linux 6.18 omits this for many operations.
    pub(super) fn fails_its_link(&self, result: Result<u32, Errno>) -> bool {
        match self.opcode {
            opcode::Read::CODE | opcode::Write::CODE => result.map_or(true, |n| n < self.len),
            opcode::Fsync::CODE => result == Err(Errno::CANCELED),
            _ => result.is_err(),
        }
    }

    /// Returns a duplicate of the descriptor that [`carry_out`](Self::carry_out) uses, if it uses one and it is open.
    fn file(&self) -> Option<File> {
        let is_place = self.flags & FIXED != 0;
        if self.fd < 0 || is_place || matches!(self.opcode, opcode::OpenAt2::CODE | opcode::Close::CODE) {
            return None;
        }
        // SAFETY: only duplicated; a closed descriptor is an error.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        fd.try_clone_to_owned().ok().map(File::from)
    }

    /// Carries out the entry, moving at most `len` bytes. The driver must meet the safety contract of entries.
    fn carry_out(&self, len: u32) -> Result<u32, Errno> {
        let fd = || {
            // SAFETY: the driver keeps the descriptor open until the completion.
            unsafe { BorrowedFd::borrow_raw(self.fd) }
        };
        match self.opcode {
            opcode::Nop::CODE | opcode::Fsync::CODE => Ok(0),
            opcode::Read::CODE => {
                // SAFETY: the driver guarantees that the memory is valid and exclusive until the completion.
                let buf = unsafe { std::slice::from_raw_parts_mut(self.addr as *mut u8, len as usize) };
                rustix::io::pread(fd(), buf, self.offset).map(|n| n as u32)
            }
            opcode::Write::CODE => {
                // SAFETY: as above.
                let buf = unsafe { std::slice::from_raw_parts(self.addr as *const u8, len as usize) };
                rustix::io::pwrite(fd(), buf, self.offset).map(|n| n as u32)
            }
            opcode::Send::CODE => {
                // SAFETY: as above.
                let buf = unsafe { std::slice::from_raw_parts(self.addr as *const u8, len as usize) };
                rustix::io::write(fd(), buf).map(|n| n as u32)
            }
            other => panic!("opcode {other} is not implemented by the scripted kernel"),
        }
    }
}

/// A submitted entry. It refers to its file, as in the kernel.
pub(super) struct Submitted {
    pub(super) sqe: Sqe,
    file: Option<File>,
}

impl Submitted {
    pub(super) fn new(sqe: Sqe) -> Self {
        Self { sqe, file: sqe.file() }
    }

    /// Carries out the entry. Its descriptor must still be the one of its submission: memory and descriptors have the
    /// same owner, so a closed descriptor shows that the memory is freed too.
    pub(super) fn carry_out(&self, len: u32) -> Result<u32, Errno> {
        let identity = |file: &File| file.metadata().map(|file| (file.dev(), file.ino())).ok();
        let now = self.sqe.file();
        assert_eq!(
            now.as_ref().map(identity),
            self.file.as_ref().map(identity),
            "the descriptor was closed while the kernel used it: {:?}",
            self.sqe
        );
        self.sqe.carry_out(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::types::Fd;
    use std::os::fd::AsRawFd;

    #[test]
    #[should_panic(expected = "the descriptor was closed while the kernel used it")]
    fn an_entry_is_not_carried_out_without_its_descriptor() {
        let (file, bytes) = (tempfile::tempfile().unwrap(), [1; 4]);
        let entry = opcode::Write::new(Fd(file.as_raw_fd()), bytes.as_ptr(), 4).build();
        let submitted = Submitted::new(Sqe::read(&entry));
        drop(file);
        let _ = submitted.carry_out(4);
    }
}
