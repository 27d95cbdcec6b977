//! One reserved address range, cut into granules; files and pool memory are mapped into granules of it.
//!
//! Reserving (`PROT_NONE`, `MAP_NORESERVE`) costs address space only. That all our memory lies in one range buys two
//! things: one comparison tells whether an address is ours, and the [guard] can tell a file of ours that shrank from a fault
//! of other code.
//!
//! Invariants:
//! 1. The range is reserved once and never unmapped, so no foreign mapping can ever lie in it.
//! 2. A granule has one owner, its [`Granule`]; only the owner maps into it, and dropping it takes the pages away.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;

mod guard;
mod pages;

/// Size of a granule in bytes: the longest window of a file that is mapped at once.
pub(crate) const GRANULE: usize = if cfg!(miri) { 2 << 20 } else { 64 << 20 };
/// Most granules there can be: 1 TiB of addresses.
pub(crate) const GRANULES: usize = if cfg!(miri) { 32 } else { 16 << 10 };

/// Bytes of a file mapped in each granule; 0 = none. Read by the signal handler.
static FILES: [AtomicUsize; GRANULES] = [const { AtomicUsize::new(0) }; GRANULES];
/// Granules in which a page was touched that the file no longer has.
static TORN: [AtomicBool; GRANULES] = [const { AtomicBool::new(false) }; GRANULES];
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);

/// The reserved range of the process.
#[derive(Debug)]
pub(crate) struct Range {
    base: NonNull<u8>,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    returned: Vec<usize>,
    next: usize,
    end: usize,
}

// SAFETY: the base is an address; who may touch which part of the range is settled by the invariants above.
unsafe impl Send for Range {}
// SAFETY: as for Send.
unsafe impl Sync for Range {}

/// The range, reserved at the first call; the error says why there is none.
pub(crate) fn range() -> Result<&'static Range, &'static io::Error> {
    static RANGE: OnceLock<Result<Range, io::Error>> = OnceLock::new();
    RANGE.get_or_init(reserve).as_ref()
}

fn reserve() -> io::Result<Range> {
    let (base, granules) = pages::reserve(GRANULES)?;
    BASE.store(base.as_ptr(), Ordering::Relaxed);
    LEN.store(granules * GRANULE, Ordering::Release);
    guard::install()?;
    Ok(Range { base, free: Mutex::new(Free { returned: Vec::new(), next: 0, end: granules }) })
}

impl Range {
    /// Which granule `addr` lies in, if it is ours.
    #[inline]
    pub(crate) fn granule_of(&self, addr: usize) -> Option<usize> {
        // One comparison: an address below the base wraps around to a large number.
        let offset = addr.wrapping_sub(self.base.addr().get());
        (offset < LEN.load(Ordering::Relaxed)).then_some(offset / GRANULE)
    }

    /// Whether `addr` lies in a granule whose file was found shorter than its mapping by someone who read it.
    #[inline]
    pub(crate) fn is_torn_at(&self, addr: usize) -> bool {
        self.granule_of(addr).is_some_and(|index| TORN[index].load(Ordering::Acquire))
    }

    /// Granules that can still be taken.
    pub(crate) fn available(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.len() + free.end - free.next
    }

    /// Takes a granule with nothing mapped in it.
    pub(crate) fn take(&'static self) -> io::Result<Granule> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match free.returned.pop() {
            Some(index) => index,
            None if free.next < free.end => {
                free.next += 1;
                free.next - 1
            }
            None => return Err(Errno::NOMEM.into()),
        };
        // The file of an earlier owner was torn, not the next one's.
        TORN[index].store(false, Ordering::Relaxed);
        Ok(Granule { range: self, index, mapped: 0 })
    }
}

/// A granule of the range and what is mapped in it; both go when it is dropped.
#[derive(Debug)]
pub(crate) struct Granule {
    range: &'static Range,
    index: usize,
    /// Bytes that are mapped.
    mapped: usize,
}

impl Granule {
    /// Position in the range, stable while the granule is held.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// First address.
    pub(crate) fn start(&self) -> *mut u8 {
        self.range.base.as_ptr().wrapping_add(self.index * GRANULE)
    }

    /// Whether the file mapped here was found shorter than its mapping by someone who read it.
    pub(crate) fn is_torn(&self) -> bool {
        TORN[self.index].load(Ordering::Acquire)
    }

    /// Maps `len` bytes of `file` from `offset`, a multiple of the page size, for reading.
    pub(crate) fn map_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        assert!(len <= GRANULE && self.mapped == 0, "internal: {len} bytes behind {} in a granule", self.mapped);
        // SAFETY: by the invariants of this file the target addresses are ours alone and nothing refers to them yet.
        unsafe { pages::map_file(self.start(), file, offset, len) }?;
        self.mapped = len;
        FILES[self.index].store(len, Ordering::Release);
        Ok(())
    }

    /// Maps `len` bytes of zeroed memory for reading and writing. The guard leaves it alone.
    pub(crate) fn map_memory(&mut self, len: usize) -> io::Result<()> {
        assert!(len <= GRANULE && self.mapped == 0, "internal: {len} bytes behind {} in a granule", self.mapped);
        // SAFETY: as in `map_file`.
        unsafe { pages::map_memory(self.start(), len) }?;
        self.mapped = len;
        Ok(())
    }
}

impl Drop for Granule {
    fn drop(&mut self) {
        FILES[self.index].store(0, Ordering::Release);
        // SAFETY: nothing refers to these pages any more: their owner is being dropped. Invariant 1 stays, because the
        // addresses stay reserved.
        let is_free = self.mapped == 0 || unsafe { pages::unmap(self.start(), self.mapped) }.is_ok();
        // A granule whose pages could not be taken away is never used again: its address space leaks, nothing else.
        if is_free {
            self.range.free.lock().unwrap_or_else(PoisonError::into_inner).returned.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(miri))]
    use std::os::fd::AsFd;

    #[test]
    fn granules_are_returned_and_strangers_are_not_ours() {
        let range = range().unwrap();
        let granule = range.take().unwrap();
        let inside = granule.start() as usize + 12_345;
        assert_eq!(range.granule_of(inside), Some(granule.index()));
        let local = 5;
        assert_eq!(range.granule_of(&raw const local as usize), None);
        assert_eq!(range.granule_of(0), None);
        assert_eq!(range.granule_of(usize::MAX), None);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_file_that_shrank_reads_as_zeros_and_is_marked() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'x'; 1 << 20], 0).unwrap();
        let mut granule = range().unwrap().take().unwrap();
        granule.map_file(file.as_fd(), 0, 1 << 20).unwrap();
        // SAFETY: just mapped, and the granule outlives the slice.
        let bytes = unsafe { std::slice::from_raw_parts(granule.start(), 1 << 20) };
        assert_eq!(std::hint::black_box(bytes)[800_000], b'x');
        file.set_len(4096).unwrap();
        assert!(!granule.is_torn());
        assert_eq!(std::hint::black_box(bytes)[700_000], 0);
        assert!(granule.is_torn());
        assert_eq!(std::hint::black_box(bytes)[10], b'x', "what the file still has stays readable");
        assert_eq!(std::hint::black_box(bytes)[900_000], 0, "one fault covers the rest");
    }
}
