//! Slabs: the blocks of the pool, their owners, and whether they are frozen.
//!
//! Each size class has one slab, cut into equal blocks. It is created at first use and lives as long as the process;
//! its pages take memory only once they are used.
//!
//! NUMA machines need no special handling: the thread that first leases a block also touches it first, so the kernel
//! places it near that thread's CPU, and blocks leased and dropped on one thread stay in its cache. Only blocks above
//! [`KEPT`], and blocks dropped on another thread, may next be leased far from their memory.
//!
//! Invariants:
//! 1. A block is owned by the *lease* that took its index out of a free list. Its reference count is then 1.
//! 2. Only the lease writes to the block, through `&mut`, and only until it is frozen. Freezing sets the bit [`FROZEN`]
//!    of the block's count; a [`BlockRef`] is made only while that bit is set. So nothing writes to a shared block,
//!    even if user code has borrowed the spare memory of a lease.
//! 3. The index returns to a free list exactly once, by the release that brings the count to 0.
//! 4. All memory of a slab is initialised: it is created zeroed, and only written to.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::counters::Gauge;
use crate::sys::map;
use crate::sys::map::{GRANULES, Granule};

pub(super) const SIZES: [usize; 5] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Size of each slab in bytes. The pool holds at most this times the number of classes.
const SLAB: usize = if cfg!(miri) { 1 << 20 } else { 32 << 20 };
/// Number of free blocks of each class that a thread caches, so that most leases take no lock.
const KEPT: [usize; 5] = [64, 32, 16, 8, 2];
/// Alignment of blocks: each starts on its own cache line.
pub(super) const LINE: usize = 64;
/// Bit of the reference count of a block that is set when its lease is frozen.
const FROZEN: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Slab {
    class: usize,
    start: NonNull<u8>,
    _granule: Option<Granule>,
    /// Reference counts, and [`FROZEN`].
    refs: Box<[AtomicU32]>,
    free: Mutex<Vec<u32>>,
}

// SAFETY: `start` points at memory that lives as long as the process; the invariants above, not the thread, decide
// which code may access which part of it.
unsafe impl Send for Slab {}
// SAFETY: as for Send; the free list is behind a lock and the counts are atomic.
unsafe impl Sync for Slab {}

static SLABS: [OnceLock<&'static Slab>; SIZES.len()] = [const { OnceLock::new() }; SIZES.len()];
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
        // Allocated by the system allocator, and aligned here. Other allocators, and aligned allocations, write the
        // zeros themselves, so the whole slab would take memory at once.
        let layout = Layout::array::<u8>(SLAB + LINE).ok()?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { System.alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let skipped = start.addr().get().wrapping_neg() % LINE;
        // SAFETY: less than a line is skipped, which was allocated in addition.
        Some(unsafe { start.add(skipped) })
    }

    fn block_at(address: *const u8, granule: Option<usize>) -> Option<(&'static Self, u32)> {
        let slab = match granule {
            Some(granule) => Self::at(granule)?,
            None => Self::on_heap(address)?,
        };
        let offset = address.addr().wrapping_sub(slab.start.as_ptr().addr());
        let index = offset / SIZES[slab.class];
        (index < slab.refs.len()).then_some((slab, index as u32))
    }

    fn at(granule: usize) -> Option<&'static Self> {
        let slab = NonNull::new(BY_GRANULE[granule].load(Ordering::Acquire))?;
        // SAFETY: slabs are never freed.
        Some(unsafe { slab.as_ref() })
    }

    /// Finds a slab that has no granule, because no range of addresses is reserved.
    fn on_heap(address: *const u8) -> Option<&'static Self> {
        let holds = |slab: &&Self| address.addr().wrapping_sub(slab.start.as_ptr().addr()) < SLAB;
        SLABS.iter().filter_map(|slab| slab.get().copied()).find(holds)
    }

    pub(super) fn block(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.refs.len(), "internal: block {index} of class {}", self.class);
        // SAFETY: the index was checked, so the block lies inside the slab.
        unsafe { self.start.add(index as usize * SIZES[self.class]) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn freeze(&self, index: u32) {
        // The count is 1: a block is shared only after it is frozen (invariant 2).
        self.refs[index as usize].store(FROZEN | 1, Ordering::Relaxed);
    }

    pub(super) fn release(&'static self, index: u32) {
        // Release ordering, as in `Arc`: every use of the block happens before its next lease.
        if self.refs[index as usize].fetch_sub(1, Ordering::Release) & !FROZEN == 1 {
            fence(Ordering::Acquire);
            Gauge::PoolBytes.take(SIZES[self.class] as u64);
            give_back(self, index);
        }
    }
}

/// Free blocks cached by this thread; they return to the slabs when the thread ends.
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

/// Takes a block of a class for a new lease, with a count of 1 and not frozen.
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
            // Takes half a cache at once, so that one lock serves many leases.
            let mut free = slab.free();
            let from = free.len().saturating_sub(KEPT[class].div_ceil(2));
            kept.extend(free.drain(from..));
        }
        kept.pop()
    });
    // A thread that is ending has no cache.
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

/// A frozen block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    class: usize,
    index: u32,
}

impl Block {
    /// Returns the block that `bytes` begin in. `granule` is theirs; there is none where no range is reserved.
    pub(super) fn of(bytes: &[u8], granule: Option<usize>) -> Option<Self> {
        let (slab, index) = Slab::block_at(bytes.as_ptr(), granule)?;
        let is_frozen = slab.refs[index as usize].load(Ordering::Relaxed) & FROZEN != 0;
        is_frozen.then_some(Self { class: slab.class, index })
    }

    pub(super) fn size(self) -> usize {
        SIZES[self.class]
    }

    /// Adds a reference. The caller must borrow bytes of the block, so that it has an owner.
    pub(super) fn share(self) -> BlockRef {
        let before = Slab::of(self.class).refs[self.index as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before > FROZEN && before < FROZEN | (FROZEN / 2), "internal: a reference to a block without an owner");
        BlockRef(self)
    }
}

/// A reference to a frozen block. The block is not leased again while it lives.
#[derive(Debug)]
pub(crate) struct BlockRef(Block);

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        self.0.share()
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        Slab::of(self.0.class).release(self.0.index);
    }
}
