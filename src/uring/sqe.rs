//! Test support: entries read by the layout of the kernel, so that a wrong entry has its wrong effect here too.

#![allow(unsafe_code)]

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use io_uring::opcode;
use io_uring::squeue::Entry;
use rustix::io::Errno;

/// `IOSQE_IO_LINK`, `IOSQE_IO_HARDLINK`.
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

    /// Carries out the entry, moving at most `len` bytes. The driver must meet the safety contract of entries.
    pub(super) fn carry_out(&self, len: u32) -> Result<u32, Errno> {
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
            opcode::SendMsg::CODE | opcode::SendMsgZc::CODE => {
                // SAFETY: as above, for the header.
                let header = unsafe { (self.addr as *const libc::msghdr).read() };
                // SAFETY: as above, for its list, whose entries have the layout of `IoSlice`.
                let pieces =
                    unsafe { std::slice::from_raw_parts(header.msg_iov.cast::<IoSlice<'_>>(), header.msg_iovlen) };
                let mut left = if len == self.len { usize::MAX } else { len as usize };
                let pieces: Vec<_> = pieces
                    .iter()
                    .map_while(|piece| {
                        let here = piece.len().min(left);
                        left -= here;
                        (here > 0).then(|| IoSlice::new(&piece[..here]))
                    })
                    .collect();
                rustix::io::writev(fd(), &pieces).map(|n| n as u32)
            }
            other => panic!("opcode {other} is not implemented by the scripted kernel"),
        }
    }
}
