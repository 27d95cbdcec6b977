//! One reserved address range, cut into granules; files and pool memory are mapped into granules of it.
//!
//! Reserving (`PROT_NONE`, `MAP_NORESERVE`) costs address space only. That all our memory lies in one range buys two
//! things: one comparison tells whether an address is ours, and the `SIGBUS` guard can tell a file of ours that shrank
//! ([mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html): touching a page beyond the end of a mapped file) from
//! a stranger's bug, which it passes on to the handler that was there before.
//!
//! Invariants:
//! 1. The range is reserved once and never unmapped, so no foreign mapping can ever lie in it.
//! 2. A granule has one owner, its [`Granule`]; only the owner maps into it, and dropping it takes the pages away.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Size of a granule in bytes: the longest window of a file that is mapped at once.
pub(crate) const GRANULE: usize = 64 << 20;
/// Most granules there can be: 1 TiB of addresses.
pub(crate) const GRANULES: usize = 16 << 10;

/// Bytes mapped in each granule; 0 = none. Read by the signal handler.
static MAPPED: [AtomicUsize; GRANULES] = [const { AtomicUsize::new(0) }; GRANULES];
/// Granules in which a page was touched that the file no longer has.
static TORN: [AtomicBool; GRANULES] = [const { AtomicBool::new(false) }; GRANULES];
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

thread_local! {
    /// Set by the signal handler of this thread, cleared by [`take_touched_torn`].
    static TOUCHED: Cell<bool> = const { Cell::new(false) };
}

/// The reserved range of the process.
#[derive(Debug)]
pub(crate) struct Range {
    base: usize,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    returned: Vec<usize>,
    next: usize,
    end: usize,
}

/// The range, reserved at the first call; the error says why there is none.
pub(crate) fn range() -> Result<&'static Range, &'static io::Error> {
    static RANGE: OnceLock<Result<Range, io::Error>> = OnceLock::new();
    RANGE.get_or_init(reserve).as_ref()
}

fn reserve() -> io::Result<Range> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let mut granules = GRANULES;
    let raw = loop {
        // One granule more, so that the base can be aligned to a granule.
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory anyone has.
        match unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), (granules + 1) * GRANULE, ProtFlags::empty(), flags)
        } {
            Ok(raw) => break raw as usize,
            // An address space limit (ulimit -v): ask for less, down to 4 GiB.
            Err(_) if granules > 64 => granules /= 4,
            Err(e) => return Err(e.into()),
        }
    };
    let base = raw.next_multiple_of(GRANULE);
    BASE.store(base, Ordering::Relaxed);
    LEN.store(granules * GRANULE, Ordering::Release);
    install_guard()?;
    Ok(Range { base, free: Mutex::new(Free { returned: Vec::new(), next: 0, end: granules }) })
}

impl Range {
    /// Which granule `addr` lies in, if it is ours.
    #[inline]
    pub(crate) fn granule_of(&self, addr: usize) -> Option<usize> {
        // One comparison: an address below the base wraps around to a large number.
        let offset = addr.wrapping_sub(self.base);
        (offset < LEN.load(Ordering::Relaxed)).then_some(offset / GRANULE)
    }

    /// Whether `addr` lies in a granule whose file was found shorter than its mapping by someone who read it.
    #[inline]
    pub(crate) fn is_torn_at(&self, addr: usize) -> bool {
        self.granule_of(addr).is_some_and(|index| TORN[index].load(Ordering::Acquire))
    }

    /// Granules that can still be taken.
    pub(crate) fn available(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        free.returned.len() + free.end - free.next
    }

    /// Takes a granule with nothing mapped in it.
    pub(crate) fn take(&'static self) -> io::Result<Granule> {
        let mut free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        let index = match free.returned.pop() {
            Some(index) => index,
            None if free.next < free.end => {
                free.next += 1;
                free.next - 1
            }
            None => return Err(Errno::NOMEM.into()),
        };
        // What an earlier owner met is not the next one's affair.
        TORN[index].store(false, Ordering::Relaxed);
        Ok(Granule { range: self, index })
    }
}

/// A granule of the range and what is mapped in it; both go when it is dropped.
#[derive(Debug)]
pub(crate) struct Granule {
    range: &'static Range,
    index: usize,
}

impl Granule {
    /// Position in the range, stable while the granule is held.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// First address.
    pub(crate) fn start(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.range.base + self.index * GRANULE)
    }

    /// Whether the file mapped here was found shorter than its mapping by someone who read it.
    pub(crate) fn is_torn(&self) -> bool {
        TORN[self.index].load(Ordering::Acquire)
    }

    /// Maps `len` bytes of `file` from `offset`, a multiple of the page size, for reading.
    pub(crate) fn map_file(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        assert!(len <= GRANULE, "internal: {len} bytes do not fit a granule");
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: by the invariants of this file the target addresses are ours alone and nothing refers to them yet.
        unsafe { rustix::mm::mmap(self.start().cast(), len, ProtFlags::READ, flags, file, offset) }?;
        MAPPED[self.index].store(len, Ordering::Release);
        Ok(())
    }

    /// Maps `len` bytes of zeroed memory for reading and writing.
    pub(crate) fn map_memory(&self, len: usize) -> io::Result<()> {
        assert!(len <= GRANULE, "internal: {len} bytes do not fit a granule");
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: as in `map_file`.
        unsafe { rustix::mm::mmap_anonymous(self.start().cast(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        MAPPED[self.index].store(len, Ordering::Release);
        Ok(())
    }
}

impl Drop for Granule {
    fn drop(&mut self) {
        let len = MAPPED[self.index].swap(0, Ordering::AcqRel);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: nothing refers to these pages any more: their owner is being dropped. Mapping over them keeps the
        // range reserved (invariant 1).
        let kept = len == 0
            || unsafe { rustix::mm::mmap_anonymous(self.start().cast(), len, ProtFlags::empty(), flags) }.is_ok();
        // A granule whose pages could not be taken away is never used again: its address space leaks, nothing else.
        if kept {
            self.range.free.lock().unwrap_or_else(|e| e.into_inner()).returned.push(self.index);
        }
    }
}

/// Whether this thread has read a page that its file no longer has since the last call. The reader was given zeros, so
/// whatever it makes of them must not leave as if it were whole.
#[inline]
pub(crate) fn take_touched_torn() -> bool {
    TOUCHED.with(|touched| touched.get() && touched.replace(false))
}

fn install_guard() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this plain C structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: as above.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks for the present action only.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Known before our handler can run.
    let _ = PREVIOUS.set(previous);
    // SAFETY: the handler is async-signal-safe: it reads atomics and a constant-initialised thread-local without
    // destructor, makes one system call and touches no lock and no allocator.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let info_ref = unsafe { &*info };
    // SAFETY: si_addr is the field that is set for SIGBUS.
    let addr = unsafe { info_ref.si_addr() } as usize;
    if !patch(addr) {
        pass_on(signal, info, context);
    }
}

/// Puts zero pages where the file has ended, from the touched page to the end of the mapping: what follows is gone too.
fn patch(addr: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    let offset = addr.wrapping_sub(base);
    if offset >= LEN.load(Ordering::Acquire) {
        return false;
    }
    let index = offset / GRANULE;
    let page = rustix::param::page_size();
    let mapped = MAPPED[index].load(Ordering::Acquire).next_multiple_of(page);
    let from = (offset % GRANULE) / page * page;
    if from >= mapped {
        return false;
    }
    let start = ptr::with_exposed_provenance_mut(base + index * GRANULE + from);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // Before the zeros are there: whoever has read one and then asks is told.
    TORN[index].store(true, Ordering::Release);
    // SAFETY: the pages lie in a granule with a file mapped; its readers see zeros where the file has nothing to give.
    if unsafe { rustix::mm::mmap_anonymous(start, mapped - from, ProtFlags::READ, flags) }.is_err() {
        return false;
    }
    TOUCHED.with(|touched| touched.set(true));
    true
}

/// A fault that is not ours goes to the handler that was there before, or kills the process as it would have.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get();
    match previous.map(|p| (p.sa_sigaction, p.sa_flags & libc::SA_SIGINFO != 0)) {
        None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
            // SAFETY: restores the default action; the instruction runs again, faults again, and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Some((handler, true)) => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: SA_SIGINFO says that the stored address is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        Some((handler, false)) => {
            // SAFETY: without SA_SIGINFO the stored address is a function of this type.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_file_that_shrank_reads_as_zeros_and_is_marked() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'x'; 1 << 20], 0).unwrap();
        let granule = range().unwrap().take().unwrap();
        granule.map_file(file.as_fd(), 0, 1 << 20).unwrap();
        // SAFETY: just mapped, and the granule outlives the slice.
        let bytes = unsafe { std::slice::from_raw_parts(granule.start(), 1 << 20) };
        assert_eq!(std::hint::black_box(bytes)[800_000], b'x');
        file.set_len(4096).unwrap();
        assert!(!granule.is_torn() && !take_touched_torn());
        assert_eq!(std::hint::black_box(bytes)[700_000], 0);
        assert!(granule.is_torn());
        assert!(take_touched_torn());
        assert!(!take_touched_torn(), "asking clears it");
        assert_eq!(std::hint::black_box(bytes)[10], b'x', "what the file still has stays readable");
        assert_eq!(std::hint::black_box(bytes)[900_000], 0, "one fault covers the rest");
        assert!(!take_touched_torn());
    }
}
