//! Pages of the reserved range. miri does not support such mappings; there the range is one allocation of the same
//! layout, and files are read into it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::GRANULE;

#[cfg(not(miri))]
mod mapped {
    use super::*;
    use rustix::io::Errno;
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

    const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

    /// Reserves `granules` granules, or fewer if address space is limited. Returns their number.
    pub(in super::super) fn reserve(mut granules: usize) -> io::Result<(NonNull<u8>, usize)> {
        let raw = loop {
            // One extra granule allows aligning the base to a granule.
            // SAFETY: a new mapping at an address chosen by the kernel overlaps no other memory.
            match unsafe { mmap_anonymous(std::ptr::null_mut(), (granules + 1) * GRANULE, ProtFlags::empty(), FLAGS) } {
                Ok(raw) => break raw.cast::<u8>(),
                // The address space is limited (ulimit -v): retry with less, down to 4 GiB.
                Err(_) if granules > 64 => granules /= 4,
                Err(e) => return Err(e.into()),
            }
        };
        let base = raw.map_addr(|addr| addr.next_multiple_of(GRANULE));
        Ok((NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, granules))
    }

    /// Maps `len` bytes of `file` for reading, from `offset`, a multiple of the page size.
    ///
    /// # Safety
    ///
    /// The addresses belong to the caller, and nothing refers to their contents.
    pub(in super::super) unsafe fn map_file(
        at: *mut u8,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let map = |kind| {
            // SAFETY: the caller's promise.
            unsafe { mmap(at.cast(), len, ProtFlags::READ, kind | MapFlags::FIXED, file, offset) }
        };
        match map(MapFlags::SHARED) {
            // Before Linux 6.7 a file that is sealed against writing cannot be shared. A private mapping that no
            // process writes to has the same pages.
            Err(Errno::PERM) => map(MapFlags::PRIVATE)?,
            mapped => mapped?,
        };
        Ok(())
    }

    /// Maps `len` bytes of zeroed memory for reading and writing.
    ///
    /// # Safety
    ///
    /// As for [`map_file`].
    pub(in super::super) unsafe fn map_memory(at: *mut u8, len: usize) -> io::Result<()> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the caller's promise.
        unsafe { mmap_anonymous(at.cast(), len, prot, FLAGS | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Replaces a mapping by read-only zeros.
    ///
    /// # Safety
    ///
    /// The addresses belong to the caller, and readers of them accept zeros.
    pub(in super::super) unsafe fn map_zeros(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { mmap_anonymous(at.cast(), len, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Unmaps the pages. The addresses stay reserved.
    ///
    /// # Safety
    ///
    /// As for [`map_file`].
    pub(in super::super) unsafe fn unmap(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { mmap_anonymous(at.cast(), len, ProtFlags::empty(), FLAGS | MapFlags::FIXED) }?;
        Ok(())
    }
}

#[cfg(miri)]
mod allocated {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::slice;

    pub(in super::super) fn reserve(granules: usize) -> io::Result<(NonNull<u8>, usize)> {
        let layout = Layout::from_size_align(granules * GRANULE, GRANULE).map_err(io::Error::other)?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((start, granules))
    }

    pub(in super::super) unsafe fn map_file(
        at: *mut u8,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let mut rest = unsafe { slice::from_raw_parts_mut(at, len) };
        let mut from = offset;
        while !rest.is_empty() {
            let n = rustix::io::pread(file, &mut *rest, from)?;
            if n == 0 {
                break;
            }
            from += n as u64;
            rest = &mut rest[n..];
        }
        // SAFETY: this is the rest of the caller's memory.
        unsafe { rest.as_mut_ptr().write_bytes(0, rest.len()) };
        Ok(())
    }

    pub(in super::super) unsafe fn map_memory(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { at.write_bytes(0, len) };
        Ok(())
    }

    pub(in super::super) unsafe fn map_zeros(at: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { map_memory(at, len) }
    }

    pub(in super::super) unsafe fn unmap(_at: *mut u8, _len: usize) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(miri)]
pub(super) use allocated::*;
#[cfg(not(miri))]
pub(super) use mapped::*;
