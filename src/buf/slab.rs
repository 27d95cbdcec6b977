//! Slabs: the blocks of the pool, who owns which of them, and which are frozen.
//!
//! Each size class has one slab, cut into equal blocks, made at its first use and kept for the life of the process; its
//! pages cost memory only once they are used.
//!
//! Machines with several memory nodes need nothing else: a block is touched first by the thread that leases it first, so
//! the kernel puts it next to that thread's CPU, and blocks that are leased and dropped on one thread stay in its cache. Only
//! what is above [`KEPT`], and what is dropped elsewhere, may be next leased far from its memory.
//!
//! Invariants:
//! 1. A block is owned by the *lease* that took its index out of a free list. Its reference count is then 1.
//! 2. Only the lease writes to the block, through `&mut`, and only until it is frozen. Freezing sets the bit [`FROZEN`] of
//!    the block's count; a [`BlockRef`] is made only while that bit is set. So nothing writes to a block that is shared,
//!    whatever code has been lent the spare memory of a lease.
//! 3. The index goes back to a free list exactly once, by the release that brings the count to 0.
//! 4. All memory of a slab is initialised: it is zeroed when it is made, and only ever written.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::counters::Gauge;
use crate::sys::map;
use crate::sys::map::{GRANULES, Granule};

/// Block sizes in bytes.
pub(super) const SIZES: [usize; 5] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of each slab: the bound on what the pool can hold is this times the number of classes.
const SLAB: usize = if cfg!(miri) { 1 << 20 } else { 32 << 20 };
/// Blocks a thread keeps of each class, so that most leases touch no lock.
const KEPT: [usize; 5] = [64, 32, 16, 8, 2];
/// Blocks start on a cache line of their own.
pub(super) const LINE: usize = 64;
/// The bit of a block's reference count that says that its lease was frozen.
const FROZEN: u32 = 1 << 31;

/// All blocks of one size.
#[derive(Debug)]
pub(crate) struct Slab {
    class: usize,
    start: NonNull<u8>,
    /// Held for its pages, which live as long as the slab.
    _granule: Option<Granule>,
    /// Reference counts, and [`FROZEN`].
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
            let granule = map::range().ok().and_then(|range| range.take().ok()).and_then(|mut granule| {
                granule.map_memory(SLAB).ok()?;
                Some(granule)
            });
            let start = match &granule {
                Some(granule) => NonNull::new(granule.start()),
                None => Self::from_heap(),
            };
            let blocks = SLAB / SIZES[class];
            let index = granule.as_ref().map(Granule::index);
            let slab: &'static Self = Box::leak(Box::new(Self {
                class,
                start: start.expect("internal: the reserved range does not start at zero"),
                _granule: granule,
                refs: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
                free: Mutex::new((0..blocks as u32).rev().collect()),
            }));
            if let Some(index) = index {
                BY_GRANULE[index].store(std::ptr::from_ref(slab).cast_mut(), Ordering::Release);
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

    /// The block that an address lies in, `granule` being the granule of the reserved range that it was found in.
    fn block_at(address: *const u8, granule: usize) -> Option<(&'static Self, u32)> {
        let slab = Self::at(granule)?;
        let offset = address.addr().wrapping_sub(slab.start.as_ptr().addr());
        let index = offset / SIZES[slab.class];
        (index < slab.refs.len()).then_some((slab, index as u32))
    }

    /// The slab that lies in a granule of the reserved range.
    fn at(granule: usize) -> Option<&'static Self> {
        let slab = NonNull::new(BY_GRANULE[granule].load(Ordering::Acquire))?;
        // SAFETY: slabs are never freed.
        Some(unsafe { slab.as_ref() })
    }

    /// Where a block starts.
    pub(super) fn block(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.refs.len(), "internal: block {index} of class {}", self.class);
        // SAFETY: the index was checked, so the block lies inside the slab.
        unsafe { self.start.add(index as usize * SIZES[self.class]) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Freezes a block that is leased: it may be shared from here on.
    pub(super) fn freeze(&self, index: u32) {
        // The count is 1: a block is shared only once it is frozen (invariant 2).
        self.refs[index as usize].store(FROZEN | 1, Ordering::Relaxed);
    }

    /// Drops one reference; the last one gives the block back.
    pub(super) fn release(&'static self, index: u32) {
        // Release so that every use of the block happens before its next lease, as in `Arc`.
        if self.refs[index as usize].fetch_sub(1, Ordering::Release) & !FROZEN == 1 {
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

/// A block of a class for a new lease, with a count of 1 and not frozen.
pub(super) fn lease(class: usize) -> Option<(&'static Slab, u32)> {
    let index = take(class)?;
    let slab = Slab::of(class);
    let before = slab.refs[index as usize].swap(1, Ordering::Relaxed);
    assert_eq!(before & !FROZEN, 0, "internal: block {index} of class {class} was leased while in use");
    Gauge::PoolBytes.add(SIZES[class] as u64);
    Some((slab, index))
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
    let granule = map::range().ok()?.granule_of(address.addr())?;
    let below = SIZES.iter().filter(|&&size| size < block_min).count();
    Slab::at(granule)?.class.checked_sub(below).map(|index| index as u16)
}

/// A share in a block whose lease was frozen: keeps the bytes from being leased anew.
pub(crate) struct BlockRef {
    slab: &'static Slab,
    index: u32,
}

/// A block of the pool that is frozen: which one, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    start: usize,
    pub(crate) size: usize,
}

impl Block {
    /// The frozen block that `bytes` lie in, `granule` being the granule of the reserved range that they were found in.
    pub(super) fn of(bytes: &[u8], granule: usize) -> Option<Self> {
        let (slab, index) = Slab::block_at(bytes.as_ptr(), granule)?;
        let is_frozen = slab.refs[index as usize].load(Ordering::Relaxed) & FROZEN != 0;
        is_frozen.then(|| Self { start: slab.block(index).as_ptr().addr(), size: SIZES[slab.class] })
    }
}

impl BlockRef {
    /// A share in the block that `bytes` lie in, if that is frozen. `granule` is the granule of the reserved range that they
    /// were found in.
    pub(super) fn of(bytes: &[u8], granule: usize) -> Option<Self> {
        let (slab, index) = Slab::block_at(bytes.as_ptr(), granule)?;
        let refs = &slab.refs[index as usize];
        // `bytes` is borrowed. So its owner holds a reference, and can neither freeze the block nor let it go meanwhile.
        if refs.load(Ordering::Relaxed) & FROZEN == 0 {
            return None;
        }
        let before = refs.fetch_add(1, Ordering::Relaxed) & !FROZEN;
        assert!(before > 0 && before < FROZEN / 2, "internal: a share in a block without an owner");
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
