//! Pool memory: leases of five sizes that become [`Bytes`] without a copy and return when the last clone drops.
//!
//! Each size class has one slab, cut into equal blocks, made at its first use and kept for the life of the process; its
//! pages cost memory only once they are used. A lease too large for every class, or asked for while its class is empty,
//! comes from the heap and counts as a miss.
//!
//! Machines with several memory nodes need nothing else: nobody touches a block before the first thread that leases it, so
//! the kernel puts it next to that thread's CPU, and blocks that are leased and dropped on one thread stay in its cache. Only
//! what is above [`KEPT`], and what is dropped elsewhere, may be next leased far from its memory.
//!
//! Invariants:
//! 1. A block is owned by whoever took its index out of a free list: the *lease*. Its reference count is then 1.
//! 2. Only the lease writes to the block, through `&mut`; [`BlockRef`]s are made from frozen bytes only, so nobody
//!    writes while one exists.
//! 3. The index goes back to a free list exactly once, by whoever brings the count to 0.
//! 4. A lease shows only bytes that were written through it: what an earlier lease left in the block stays hidden.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::kernel::map::{self, GRANULES, Granule};
use crate::observe::counters::{Counter, Gauge, count};

/// Block sizes in bytes.
const SIZES: [usize; 5] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of each slab: the bound on what the pool can hold is this times the number of classes.
const SLAB: usize = 32 << 20;
/// Blocks a thread keeps of each class, so that most leases touch no lock.
const KEPT: [usize; 5] = [64, 32, 16, 8, 2];
/// Blocks start on a cache line of their own.
const LINE: usize = 64;

/// All blocks of one size.
#[derive(Debug)]
pub(crate) struct Slab {
    class: usize,
    start: NonNull<u8>,
    refs: Box<[AtomicU32]>,
    free: Mutex<Vec<u32>>,
}

// SAFETY: `start` points at memory that lives as long as the process; who may touch which part of it is settled by the
// invariants above, not by the thread.
unsafe impl Send for Slab {}
// SAFETY: as for Send; the free list is behind its lock and the counts are atomic.
unsafe impl Sync for Slab {}

static SLABS: [OnceLock<&'static Slab>; SIZES.len()] = [const { OnceLock::new() }; SIZES.len()];
/// Which slab lies in which granule of the reserved range.
static BY_GRANULE: [AtomicPtr<Slab>; GRANULES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; GRANULES];

impl Slab {
    fn of(class: usize) -> &'static Self {
        SLABS[class].get_or_init(|| {
            let granule = map::range().ok().and_then(|range| range.take().ok()).filter(|g| g.map_memory(SLAB).is_ok());
            let start = match &granule {
                Some(granule) => NonNull::new(granule.start()),
                None => Self::from_heap(),
            };
            let blocks = SLAB / SIZES[class];
            let slab: &'static Self = Box::leak(Box::new(Self {
                class,
                start: start.expect("internal: the reserved range does not start at zero"),
                refs: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
                free: Mutex::new((0..blocks as u32).rev().collect()),
            }));
            if let Some(granule) = granule {
                BY_GRANULE[granule.index()].store(std::ptr::from_ref(slab).cast_mut(), Ordering::Release);
                // The slab lives as long as the process, and so does its granule.
                let _: &'static Granule = Box::leak(Box::new(granule));
            }
            slab
        })
    }

    fn from_heap() -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(SLAB, LINE).ok()?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Some(start.unwrap_or_else(|| handle_alloc_error(layout)))
    }

    /// The slab that lies in a granule of the reserved range.
    fn at(granule: usize) -> Option<&'static Self> {
        let slab = NonNull::new(BY_GRANULE[granule].load(Ordering::Acquire))?;
        // SAFETY: slabs are never freed.
        Some(unsafe { slab.as_ref() })
    }

    fn block(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.refs.len(), "internal: block {index} of class {}", self.class);
        // SAFETY: the index was checked, so the block lies inside the slab.
        unsafe { self.start.add(index as usize * SIZES[self.class]) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops one reference; the last one gives the block back.
    fn release(&'static self, index: u32) {
        // Release so that every use of the block happens before its next lease, as in `Arc`.
        if self.refs[index as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            Gauge::PoolBytes.take(SIZES[self.class] as u64);
            give_back(self, index);
        }
    }
}

/// Free blocks that this thread keeps; they return to the slabs when the thread ends.
struct Cache([Vec<u32>; SIZES.len()]);

impl Drop for Cache {
    fn drop(&mut self) {
        for (class, kept) in self.0.iter_mut().enumerate() {
            if !kept.is_empty() {
                Slab::of(class).free().append(kept);
            }
        }
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache([const { Vec::new() }; SIZES.len()])) };
}

fn take(class: usize) -> Option<u32> {
    let slab = Slab::of(class);
    let from_cache = CACHE.try_with(|cache| {
        let kept = &mut cache.borrow_mut().0[class];
        if kept.is_empty() {
            // Half a cache at once, so that the lock is taken once for many leases.
            let mut free = slab.free();
            let from = free.len().saturating_sub(KEPT[class].div_ceil(2));
            kept.extend(free.drain(from..));
        }
        kept.pop()
    });
    // A thread that is ending has no cache any more.
    from_cache.unwrap_or_else(|_| slab.free().pop())
}

fn give_back(slab: &'static Slab, index: u32) {
    let class = slab.class;
    let cached = CACHE.try_with(|cache| {
        let kept = &mut cache.borrow_mut().0[class];
        if kept.len() >= KEPT[class] {
            slab.free().extend(kept.drain(KEPT[class] / 2..));
        }
        kept.push(index);
    });
    if cached.is_err() {
        slab.free().push(index);
    }
}

/// The slabs with blocks of at least `block_min` bytes, smallest blocks first.
pub(crate) fn slabs(block_min: usize) -> impl Iterator<Item = (NonNull<u8>, usize)> {
    (0..SIZES.len()).filter(move |&class| SIZES[class] >= block_min).map(|class| (Slab::of(class).start, SLAB))
}

/// Which of [`slabs`] an address lies in, if in one of them.
pub(crate) fn slab_at(address: *const u8, block_min: usize) -> Option<u16> {
    let granule = map::range().ok()?.granule_of(address as usize)?;
    let below = SIZES.iter().filter(|&&size| size < block_min).count();
    Slab::at(granule)?.class.checked_sub(below).map(|index| index as u16)
}

enum Memory {
    Block { slab: &'static Slab, index: u32 },
    Heap { layout: Layout },
}

/// Memory with room for a known number of bytes, written front to back, then frozen into [`Bytes`].
///
/// Comes from [`lease`]. The streams of this crate recognise frozen leases and queue them by reference.
pub struct Lease {
    start: NonNull<u8>,
    capacity: usize,
    /// Where the contents begin: what lies before is headroom.
    from: usize,
    /// Where they end. `from <= to <= capacity`.
    to: usize,
    memory: Memory,
}

// SAFETY: a lease owns its memory as a `Box<[u8]>` would; giving a block back goes through locks and atomics.
unsafe impl Send for Lease {}
// SAFETY: through a shared lease the memory can only be read.
unsafe impl Sync for Lease {}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pooled = matches!(self.memory, Memory::Block { .. });
        f.debug_struct("Lease")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .field("pooled", &pooled)
            .finish()
    }
}

/// Leases at least `capacity` bytes: from the pool up to 256 KiB while it lasts, else from the heap. Never fails but for
/// want of memory, which ends the process as any allocation does.
///
/// ```
/// let mut lease = millstream::buf::lease_with_headroom(100, 5);
/// lease.extend_from_slice(b"body");
/// lease.prepend(b"head:");
/// assert_eq!(&lease.freeze()[..], b"head:body");
/// ```
///
/// # Panics
///
/// If `capacity` exceeds `isize::MAX`.
pub fn lease(capacity: usize) -> Lease {
    lease_with_headroom(capacity, 0)
}

/// As [`lease`], with `headroom` bytes in front of the contents, so that a header can be put before a body by
/// [`Lease::prepend`] without moving the body.
pub fn lease_with_headroom(capacity: usize, headroom: usize) -> Lease {
    let need = capacity.checked_add(headroom).expect("capacity overflow");
    if let Some(class) = SIZES.iter().position(|&size| size >= need)
        && let Some(index) = take(class)
    {
        count(Counter::PoolHits, 1);
        Gauge::PoolBytes.add(SIZES[class] as u64);
        let slab = Slab::of(class);
        let before = slab.refs[index as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "internal: block {index} of class {class} was leased while in use");
        return Lease {
            start: slab.block(index),
            capacity: SIZES[class],
            from: headroom,
            to: headroom,
            memory: Memory::Block { slab, index },
        };
    }
    count(Counter::PoolMisses, 1);
    let layout = Layout::from_size_align(need.max(LINE), LINE).expect("capacity overflow");
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
    Lease { start, capacity: layout.size(), from: headroom, to: headroom, memory: Memory::Heap { layout } }
}

impl Lease {
    /// Bytes written.
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that can still be appended.
    pub fn spare_len(&self) -> usize {
        self.capacity - self.to
    }

    fn spare(&mut self) -> &mut [u8] {
        // SAFETY: `to..capacity` lies inside the memory of this lease.
        let start = unsafe { self.start.add(self.to) };
        // SAFETY: the memory was zeroed when it was made and only ever written, and `&mut self` makes this the only
        // reference to it (invariant 2).
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.capacity - self.to) }
    }

    /// Appends what `fill` writes to the front of the spare memory; `fill` returns how much that is. What it is given
    /// may hold anything: it must report no more than it has written.
    ///
    /// # Errors
    ///
    /// Those of `fill`; nothing is appended then.
    ///
    /// # Panics
    ///
    /// If `fill` reports more than it was offered.
    pub fn read_with(&mut self, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let n = fill(self.spare())?;
        assert!(n <= self.spare_len(), "{n} bytes do not fit the {} that were offered", self.spare_len());
        self.to += n;
        Ok(n)
    }

    /// Where the spare memory starts, for the kernel to write to. What it has written is appended by
    /// [`advance`](Self::advance).
    pub(crate) fn spare_ptr(&mut self) -> *mut u8 {
        self.spare().as_mut_ptr()
    }

    /// The first `len` bytes of the spare memory.
    pub(crate) fn spare_first(&mut self, len: usize) -> &mut [u8] {
        &mut self.spare()[..len]
    }

    /// Appends `n` bytes that were written to the front of the spare memory.
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "internal: {n} bytes were written where {} fit", self.spare_len());
        self.to += n;
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    ///
    /// If there is less [spare room](Self::spare_len) than that.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.to += bytes.len();
    }

    /// Puts `head` in front of the contents, which do not move.
    ///
    /// # Panics
    ///
    /// If there is less headroom than that.
    pub fn prepend(&mut self, head: &[u8]) {
        assert!(head.len() <= self.from, "{} bytes do not fit {} of headroom", head.len(), self.from);
        let at = self.from - head.len();
        // SAFETY: `at..from` lies inside the memory of this lease.
        let start = unsafe { self.start.add(at) };
        // SAFETY: as in `spare`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), head.len()) }.copy_from_slice(head);
        self.from = at;
    }

    /// The contents as [`Bytes`], without a copy. The memory returns to the pool when the last clone drops.
    pub fn freeze(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `from..to` lies inside the memory of this lease.
        let start = unsafe { self.start.add(self.from) };
        // SAFETY: initialised, and nobody writes while `self` is borrowed (invariant 2).
        unsafe { slice::from_raw_parts(start.as_ptr(), self.len()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.memory {
            Memory::Block { slab, index } => slab.release(index),
            // SAFETY: made by `alloc_zeroed` with this layout, and freed only here.
            Memory::Heap { layout } => unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}

/// A share in a block whose lease was frozen: keeps the bytes from being leased anew.
pub(crate) struct BlockRef {
    slab: &'static Slab,
    index: u32,
}

impl BlockRef {
    /// A share in the block that `bytes` lies in, `granule` being the granule of the reserved range it was found in.
    pub(super) fn of(bytes: &[u8], granule: usize) -> Option<Self> {
        let slab = Slab::at(granule)?;
        let offset = (bytes.as_ptr() as usize).wrapping_sub(slab.start.as_ptr() as usize);
        let index = u32::try_from(offset / SIZES[slab.class]).ok()?;
        let refs = slab.refs.get(index as usize)?;
        // `bytes` is borrowed, so its owner holds a reference and the count cannot be on its way to zero.
        let before = refs.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0 && before < u32::MAX / 2, "internal: a share in a block that nobody holds");
        Some(Self { slab, index })
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockRef").field("class", &self.slab.class).field("index", &self.index).finish()
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        self.slab.release(self.index);
    }
}
