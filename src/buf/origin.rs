//! Origins: maps an address to the file or pool block that its bytes belong to.
//!
//! hyper passes the addresses of a body to the stream and does not read the bytes. If a body is a slice of a
//! [`Mapping`], the stream finds the file behind the address and sends from it. If it is in pool memory, the stream
//! keeps a reference to the block instead of a copy. Other consumers read the bytes as usual.
//!
//! Invariants:
//! 1. `FILES[granule]` points at the [`Mapping`] that owns the granule, from before its first slice exists until after
//!    its last slice is dropped.
//! 2. Only [`Mapping::bytes`] makes slices of a granule, and its `Bytes` own a reference to the mapping. A `&[u8]`
//!    inside a granule therefore keeps its mapping alive for the whole borrow.

#![allow(unsafe_code)]

use std::any::Any;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::slab::{Block, BlockRef};
use crate::sys::caps::Capabilities;
use crate::sys::clock;
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::map;
use crate::sys::map::{GRANULE, GRANULES, Granule};
use crate::sys::page_cache;

/// Maximum length of a mapping in bytes, for any offset: a granule minus the page that an unaligned start needs.
pub(crate) const WINDOW: usize = GRANULE - (64 << 10);

/// Minimum length of a file slice that is sent by `sendfile`. Compared with `sendmsg` from the mapping it cost 8 % more
/// at 10 KiB, 10 % less at 16 KiB and 13 % less at 64 KiB (loopback, Linux 6.18).
const SENDFILE_MIN: usize = 16 << 10;
/// Mappings longer than this are never read for sending: reading maps pages, which count as memory of this process.
const READ_MAX: usize = 256 << 10;
/// Time in nanoseconds for which [`Mapping::is_warm`] remembers its answer. A look-up costs 5 % of the time that the bytes
/// take to send.
const WARM: u64 = 1_000_000_000;

#[cfg(test)]
thread_local! {
    /// Number of look-ups of an address by this thread.
    pub(crate) static LOOKUPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

static FILES: [AtomicPtr<Mapping>; GRANULES] = [const { AtomicPtr::new(ptr::null_mut()) }; GRANULES];

/// A value that a mapping keeps as long as it lives.
pub(crate) type Companion = Option<Arc<dyn Any + Send + Sync>>;

/// A range of a file, mapped for reading.
///
/// Reading is always valid. Where the file was truncated, readers see zeros and the mapping is [torn](Self::is_torn);
/// bytes read from it then must not be sent as a complete response.
#[derive(Debug)]
pub(crate) struct Mapping {
    granule: Granule,
    skip: usize,
    len: usize,
    file: Arc<File>,
    offset: u64,
    /// When the page cache was last asked, and in the lowest bit whether it had all pages. 0 before.
    warmth: AtomicU64,
    /// Dropped after the last slice.
    _companion: Companion,
    /// Reference to itself: a look-up by address yields a plain reference, and a kept slice needs its own count.
    me: Weak<Self>,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`. `len` must be in `1..=WINDOW`.
    pub(crate) fn new(file: Arc<File>, offset: u64, len: usize) -> io::Result<Arc<Self>> {
        Self::with(file, offset, len, None)
    }

    /// As [`new`](Self::new), with a companion.
    pub(crate) fn with(file: Arc<File>, offset: u64, len: usize, companion: Companion) -> io::Result<Arc<Self>> {
        assert!((1..=WINDOW).contains(&len), "internal: a mapping of {len} bytes");
        if !Capabilities::get().mapping().is_yes() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let range = map::range().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
        let mut granule = range.take()?;
        let skip = (offset % map::page_size() as u64) as usize;
        granule.map_file(file.as_fd(), offset - skip as u64, skip + len)?;
        let mapping = Arc::new_cyclic(|me| {
            let me = me.clone();
            Self { granule, skip, len, file, offset, warmth: AtomicU64::new(0), _companion: companion, me }
        });
        FILES[mapping.granule.index()].store(Arc::as_ptr(&mapping).cast_mut(), Ordering::Release);
        Ok(mapping)
    }

    /// Returns the range as [`Bytes`], without a copy.
    ///
    /// # Safety contract
    ///
    /// Nothing may write to the range of the file in place while these bytes or slices of them live: references to them
    /// would see the change. This is not an `unsafe fn` because no caller in this crate can guarantee it. The public
    /// API passes the contract on to the user, who can choose bodies that are not mapped.
    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        struct Owner(Arc<Mapping>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.as_slice()
            }
        }
        Bytes::from_owner(Owner(Arc::clone(self)))
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: `skip + len` bytes are mapped from the start of the granule.
        let start = unsafe { self.granule.start().add(self.skip) };
        // SAFETY: the memory is mapped for reading while the granule lives, and so while `self` does. The contract of
        // `bytes` rules out writes to the file.
        unsafe { slice::from_raw_parts(start, self.len) }
    }

    /// Returns the file, and the offset in it of `bytes`, a slice of this mapping.
    fn file_at(&self, bytes: &[u8]) -> (BorrowedFd<'_>, u64) {
        let at = bytes.as_ptr().addr() - self.as_slice().as_ptr().addr();
        debug_assert!(at + bytes.len() <= self.len, "internal: a slice of another mapping");
        (self.file.as_fd(), self.offset + at as u64)
    }

    /// Returns whether all pages were in memory when the page cache was last asked, up to a second ago.
    pub(crate) fn is_warm(&self) -> bool {
        self.is_warm_at(clock::coarse())
    }

    fn is_warm_at(&self, now: u64) -> bool {
        let warmth = self.warmth.load(Ordering::Relaxed);
        if warmth != 0 && now.saturating_sub(warmth & !1) < WARM {
            return warmth & 1 == 1;
        }
        let is_warm = page_cache::is_resident(self.file.as_fd(), self.offset, self.len as u64);
        self.warmth.store(now & !1 | u64::from(is_warm), Ordering::Relaxed);
        is_warm
    }

    /// Returns whether a reader reached the end of the file inside the range.
    pub(crate) fn is_torn(&self) -> bool {
        self.granule.is_torn()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Cleared before another mapping can take the granule (invariant 1): fields drop after this.
        FILES[self.granule.index()].store(ptr::null_mut(), Ordering::Release);
    }
}

/// Returns whether `bytes` are in the mapping of a file.
#[inline]
pub(crate) fn is_of_file(bytes: &[u8]) -> bool {
    let granule = map::range().map(|range| range.granule_of(bytes.as_ptr().addr()));
    matches!(granule, Ok(Some(granule)) if !FILES[granule].load(Ordering::Relaxed).is_null())
}

/// Owner of the memory of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    Unknown,
    File(&'a Mapping),
    /// A frozen block of the pool.
    Block(Block),
}

/// A slice and its origin, which is looked up once, when the slice arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginSlice<'a> {
    bytes: &'a [u8],
    pub(super) origin: Origin<'a>,
}

impl<'a> OriginSlice<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let of_block = |granule| Block::of(bytes, granule).map_or(Origin::Unknown, Origin::Block);
        let granule = map::range().map(|range| range.granule_of(bytes.as_ptr().addr()));
        let origin = match granule {
            // The address of an empty slice has no owner.
            _ if bytes.is_empty() => Origin::Unknown,
            // SAFETY: `bytes` is in the granule of the mapping, so by invariant 2 the mapping lives as long as the
            // borrow.
            Ok(Some(granule)) => match unsafe { FILES[granule].load(Ordering::Acquire).as_ref() } {
                Some(mapping) => Origin::File(mapping),
                None => of_block(Some(granule)),
            },
            Ok(None) => Origin::Unknown,
            // Without a range, the pool is on the heap, and nothing is mapped.
            Err(_) => of_block(None),
        };
        #[cfg(test)]
        LOOKUPS.set(LOOKUPS.get() + 1);
        Self { bytes, origin }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_known(self) -> bool {
        !matches!(self.origin, Origin::Unknown)
    }

    pub(crate) fn file(self) -> Option<(BorrowedFd<'a>, u64)> {
        match self.origin {
            Origin::File(mapping) => Some(mapping.file_at(self.bytes)),
            _ => None,
        }
    }

    /// Returns whether the slice should be sent by `sendfile`: because it is long, or its mapping must not be read.
    #[inline]
    pub(crate) fn is_sent_from_file(self) -> bool {
        matches!(self.origin, Origin::File(mapping) if self.bytes.len() >= SENDFILE_MIN || mapping.len > READ_MAX)
            && Capabilities::get().sendfile().is_yes()
    }

    /// Returns whether the slice follows `bytes` in the same file.
    #[inline]
    pub(crate) fn follows(self, bytes: &[u8]) -> bool {
        // Slices of two mappings are never adjacent: a granule is longer than a mapping.
        bytes.as_ptr_range().end == self.bytes.as_ptr() && matches!(self.origin, Origin::File(_))
    }

    /// Returns whether the slice is in a torn mapping: it may hold zeros that the file never contained.
    #[inline]
    pub(crate) fn is_torn(self) -> bool {
        matches!(self.origin, Origin::File(mapping) if mapping.is_torn())
    }
}

/// The slices of one write with their origins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginSlices<'a> {
    slices: &'a [IoSlice<'a>],
    origins: &'a [Origin<'a>],
}

impl<'a> OriginSlices<'a> {
    /// Looks up the origins and stores them in `origins`, which must be as long as `slices`.
    #[inline]
    pub(crate) fn new(slices: &'a [IoSlice<'a>], origins: &'a mut [Origin<'a>]) -> Self {
        assert!(slices.len() == origins.len(), "internal: {} origins of {} slices", origins.len(), slices.len());
        for (slice, origin) in slices.iter().zip(&mut *origins) {
            *origin = OriginSlice::new(slice).origin;
        }
        Self { slices, origins }
    }

    /// Returns the slices as they were passed.
    pub(crate) fn io_slices(self) -> &'a [IoSlice<'a>] {
        self.slices
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = OriginSlice<'a>> {
        self.slices.iter().zip(self.origins).map(|(bytes, &origin)| OriginSlice { bytes, origin })
    }

    /// Returns whether all slices are adjacent in one file and should be sent by `sendfile`.
    pub(crate) fn is_one_file(self) -> bool {
        let mut pairs = self.iter().zip(self.iter().skip(1));
        self.iter().next().is_some_and(OriginSlice::is_sent_from_file)
            && pairs.all(|(slice, next)| next.follows(slice.bytes))
    }
}

/// Returns whether `bytes` are in a torn mapping: they may hold zeros that the file never contained.
pub(crate) fn is_torn(bytes: &[u8]) -> bool {
    OriginSlice::new(bytes).is_torn()
}

/// Bytes whose owner is kept alive by this value.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    File(Arc<Mapping>),
    Block(#[expect(dead_code, reason = "keeps the block alive")] BlockRef),
}

// SAFETY: the memory is only read, its owner keeps it alive, and both kinds of owner can be sent and shared.
unsafe impl Send for Kept {}
// SAFETY: as for Send.
unsafe impl Sync for Kept {}

impl Kept {
    pub(crate) fn of(slice: OriginSlice<'_>) -> Option<Self> {
        let mut start = NonNull::from(slice.bytes).cast::<u8>();
        let owner = match slice.origin {
            Origin::Unknown => return None,
            Origin::File(mapping) => {
                // The same address with the provenance of the mapping, so that the slice can be extended.
                start = NonNull::new(mapping.granule.start())?.with_addr(start.addr());
                Owner::File(mapping.me.upgrade()?)
            }
            Origin::Block(block) => Owner::Block(block.share()),
        };
        Some(Self { start, len: slice.bytes.len(), owner })
    }

    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.owner {
            Owner::File(mapping) => Some(mapping.file_at(self.as_ref())),
            Owner::Block(_) => None,
        }
    }

    pub(crate) fn is_torn(&self) -> bool {
        matches!(&self.owner, Owner::File(mapping) if mapping.is_torn())
    }

    pub(crate) fn extend(&mut self, next: OriginSlice<'_>) -> bool {
        let fits = matches!(self.owner, Owner::File(_)) && next.follows(self.as_ref());
        if fits {
            self.len += next.bytes.len();
        }
        fits
    }

    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.len, "internal: advancing {n} bytes of {}", self.len);
        // SAFETY: stays inside the kept bytes or one past them.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these bytes were borrowed when they were kept. The owner keeps them readable and unchanged: a block
        // is frozen, a mapped file is under the contract of `Mapping::bytes`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests;
