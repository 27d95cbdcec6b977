//! A reserved address range, divided into granules; files and pool memory are mapped into granules.
//!
//! Reserving (`PROT_NONE`, `MAP_NORESERVE`) costs only address space. A single range makes the ownership test of an
//! address one comparison, and lets the [guard] tell a mapped file that shrank from a fault in other code.
//!
//! Invariants:
//! 1. The range is reserved once and never unmapped, so no foreign mapping can be placed in it.
//! 2. A granule has one owner, its [`Granule`]; only the owner maps into it, and dropping it unmaps the pages.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;

mod guard;
mod pages;
mod torn;

use torn::{after_reading, before_zeros};

/// Size of a granule in bytes: the longest window of a file that is mapped at once.
pub(crate) const GRANULE: usize = if cfg!(miri) { 2 << 20 } else { 64 << 20 };
pub(crate) const GRANULES: usize = if cfg!(miri) { 32 } else { 16 << 10 };

/// Bytes of a file mapped in each granule; 0 = none. Read by the signal handler.
static FILES: [AtomicUsize; GRANULES] = [const { AtomicUsize::new(0) }; GRANULES];
/// Granules in which a page beyond the end of the file was touched.
static TORN: [AtomicBool; GRANULES] = [const { AtomicBool::new(false) }; GRANULES];
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);

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

// SAFETY: the base is an address; the invariants above govern access to each part of the range.
unsafe impl Send for Range {}
// SAFETY: as for Send.
unsafe impl Sync for Range {}

pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
}

/// Returns the range, reserved at the first call.
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
    /// Returns the granule of `addr`, or `None` if the address is outside the range.
    #[inline]
    pub(crate) fn granule_of(&self, addr: usize) -> Option<usize> {
        // One comparison suffices: an address below the base wraps around to a large number.
        let offset = addr.wrapping_sub(self.base.addr().get());
        (offset < LEN.load(Ordering::Relaxed)).then_some(offset / GRANULE)
    }

    pub(crate) fn available(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.len() + free.end - free.next
    }

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
        // The mark was set for the file of the previous owner.
        TORN[index].store(false, Ordering::Relaxed);
        Ok(Granule { range: self, index, mapped: 0 })
    }
}

/// A granule and its mapping. Dropping it unmaps the pages and frees the granule.
#[derive(Debug)]
pub(crate) struct Granule {
    range: &'static Range,
    index: usize,
    mapped: usize,
}

impl Granule {
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.range.base.as_ptr().wrapping_add(self.index * GRANULE)
    }

    pub(crate) fn is_torn(&self) -> bool {
        after_reading();
        TORN[self.index].load(Ordering::Relaxed)
    }

    /// Maps `len` bytes of `file` for reading, from `offset`, a multiple of the page size.
    pub(crate) fn map_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        assert!(len <= GRANULE && self.mapped == 0, "internal: {len} bytes behind {} in a granule", self.mapped);
        // SAFETY: by the invariants above, the target addresses belong to this granule and nothing refers to them yet.
        unsafe { pages::map_file(self.start(), file, offset, len) }?;
        self.mapped = len;
        FILES[self.index].store(len, Ordering::Release);
        Ok(())
    }

    /// Maps `len` bytes of zeroed memory for reading and writing. The guard ignores them.
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
        // SAFETY: the owner is being dropped, so nothing refers to these pages. Their addresses stay reserved (1).
        let is_free = self.mapped == 0 || unsafe { pages::unmap(self.start(), self.mapped) }.is_ok();
        // A granule that cannot be unmapped is never reused; only its address space leaks.
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
