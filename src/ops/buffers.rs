//! Registered buffers: the pool's slabs of large blocks, known to a ring by index.
//!
//! The kernel pins them at registration and skips the page lookup of each operation. That helps with direct I/O; a copy
//! from the page cache costs the same either way.

#![allow(unsafe_code)]

use std::io;

use crate::buf::pool;
use crate::sys::uring::Uring;

const BLOCK_MIN: usize = 64 << 10;

pub(crate) fn register(uring: &mut Uring) -> io::Result<()> {
    let slabs = pool::slabs(BLOCK_MIN);
    let buffers: Vec<_> =
        slabs.map(|(start, len)| libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len }).collect();
    // SAFETY: slabs live as long as the process.
    unsafe { uring.register_buffers(&buffers) }
}

/// Returns the index of the registered slab that contains the address.
pub(super) fn index_of(start: *const u8) -> Option<u16> {
    pool::slab_at(start, BLOCK_MIN)
}
