//! Registered buffers: the pool's slabs of large blocks, known to a ring by index.
//!
//! The kernel pins them when they are registered and need not look up their pages for each operation. That pays with
//! direct I/O; a copy from the page cache costs the same either way.

#![allow(unsafe_code)]

use std::io;

use crate::buf::pool;
use crate::sys::uring::Uring;

/// Blocks from this size on are registered.
const BLOCK_MIN: usize = 64 << 10;

/// Registers the slabs with a ring.
pub(crate) fn register(uring: &mut Uring) -> io::Result<()> {
    let slabs = pool::slabs(BLOCK_MIN);
    let buffers: Vec<_> =
        slabs.map(|(start, len)| libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len }).collect();
    // SAFETY: slabs live as long as the process.
    unsafe { uring.register_buffers(&buffers) }
}

/// The index under which the slab that the address lies in is registered, where anything is.
pub(super) fn index_of(start: *const u8) -> Option<u16> {
    pool::slab_at(start, BLOCK_MIN)
}
