//! Origins: addresses that know where their bytes came from.
//!
//! hyper passes the addresses of a body to the stream and never reads what is there. So when a body is a slice of a
//! [`Mapping`], the stream finds the file behind the address and sends from the file; when it lies in pool memory, the
//! stream keeps a share of the block instead of a copy. Everyone else (TLS, compression, logs) just reads the bytes.
//!
//! Invariants:
//! 1. `FILES[granule]` points at the [`Mapping`] that owns the granule from before the first slice of it can exist
//!    until after the last is gone.
//! 2. Slices of a granule are only made by [`Mapping::bytes`], whose `Bytes` own a share of the mapping. So whoever
//!    holds a `&[u8]` that lies in a granule also keeps its mapping alive, for as long as the borrow lasts.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use bytes::Bytes;

use super::slab::{Block, BlockRef};
use crate::sys::caps::Capabilities;
use crate::sys::map;
use crate::sys::map::{GRANULE, GRANULES, Granule};

/// Longest mapping in bytes, whatever its offset: a granule less the page that an unaligned start needs.
pub(crate) const WINDOW: usize = GRANULE - (64 << 10);

/// Slices of files at least this long are sent by `sendfile`: at 10 KiB it cost 8 % more than `sendmsg` from the mapping,
/// at 16 KiB 10 % less, at 64 KiB 13 % less (loopback, Linux 6.18).
const SENDFILE_MIN: usize = 16 << 10;
/// Mappings longer than this are never read when they are sent, not even for a few bytes: reading maps pages that then
/// count as this process's memory.
const READ_MAX: usize = 256 << 10;

static FILES: [AtomicPtr<Mapping>; GRANULES] = [const { AtomicPtr::new(ptr::null_mut()) }; GRANULES];

/// A range of a file, mapped for reading.
///
/// Reading it is always legal. Where the file has become shorter, readers see zeros and the mapping is
/// [torn](Self::is_torn); what was read then must not leave as if it were whole.
#[derive(Debug)]
pub(crate) struct Mapping {
    granule: Granule,
    /// Where the range starts in the granule: its offset in the file need not be page-aligned.
    skip: usize,
    len: usize,
    file: Arc<File>,
    offset: u64,
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`. `len` must be in `1..=WINDOW`.
    pub(crate) fn new(file: Arc<File>, offset: u64, len: usize) -> io::Result<Arc<Self>> {
        assert!((1..=WINDOW).contains(&len), "internal: a mapping of {len} bytes");
        if !Capabilities::get().mapping().is_yes() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let range = map::range().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
        let mut granule = range.take()?;
        let skip = (offset % rustix::param::page_size() as u64) as usize;
        granule.map_file(file.as_fd(), offset - skip as u64, skip + len)?;
        let mapping = Arc::new(Self { granule, skip, len, file, offset });
        FILES[mapping.granule.index()].store(Arc::as_ptr(&mapping).cast_mut(), Ordering::Release);
        Ok(mapping)
    }

    /// The range as [`Bytes`], without a copy.
    ///
    /// # Safety contract
    ///
    /// While these bytes or slices of them live, nothing may write to the range of the file in place: references to them
    /// would see it change. This is not an `unsafe fn` because no caller in this crate can see to it. The public API passes
    /// the contract on to the user, who can choose bodies that are not mapped.
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
        // SAFETY: mapped for reading while the granule lives, that is while `self` does. That nothing writes to the file
        // meanwhile is the contract of `bytes`.
        unsafe { slice::from_raw_parts(start, self.len) }
    }

    /// Whether a reader met the end of the file inside the range.
    pub(crate) fn is_torn(&self) -> bool {
        self.granule.is_torn()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the granule can be taken by another mapping (invariant 1): fields drop after this.
        FILES[self.granule.index()].store(ptr::null_mut(), Ordering::Release);
    }
}

/// The file behind `bytes` and where in it they start, for as long as `bytes` is borrowed.
#[inline]
pub(crate) fn file_of(bytes: &[u8]) -> Option<(BorrowedFd<'_>, u64)> {
    let (mapping, at) = mapping_of(bytes)?;
    Some((mapping.file.as_fd(), mapping.offset + at as u64))
}

/// The frozen block of the pool that `bytes` lie in.
#[inline]
pub(crate) fn block_of(bytes: &[u8]) -> Option<Block> {
    Block::of(bytes, granule_of(bytes)?)
}

/// Whether [`Kept::of`] would keep `bytes`.
#[inline]
pub(crate) fn is_known(bytes: &[u8]) -> bool {
    granule_of(bytes).is_some_and(|granule| pointer_in(granule).is_some() || Block::of(bytes, granule).is_some())
}

/// Whether a slice is to be sent by `sendfile` from the file behind it: if it is long enough that this costs less than
/// copying it from the mapping, or if nothing of the mapping is to be read.
#[inline]
pub(crate) fn is_sent_from_file(bytes: &[u8]) -> bool {
    granule_of(bytes).is_some()
        && Capabilities::get().sendfile().is_yes()
        && mapping_of(bytes).is_some_and(|(mapping, _)| bytes.len() >= SENDFILE_MIN || mapping.len > READ_MAX)
}

/// Whether `next` directly follows `bytes` in a mapped file.
#[inline]
pub(crate) fn follows(bytes: &[u8], next: &[u8]) -> bool {
    // Slices of two mappings do not touch: a granule is longer than a mapping.
    bytes.as_ptr_range().end == next.as_ptr() && granule_of(next).is_some_and(|granule| pointer_in(granule).is_some())
}

/// Whether `slices` are one piece of a file that is to be sent from it.
#[inline]
pub(crate) fn is_one_file(slices: &[IoSlice<'_>]) -> bool {
    let mut pairs = slices.iter().zip(slices.iter().skip(1));
    slices.first().is_some_and(|first| is_sent_from_file(first)) && pairs.all(|(bytes, next)| follows(bytes, next))
}

/// Whether `bytes` lie in a mapping that somebody found torn: they may hold zeros that no file ever had.
#[inline]
pub(crate) fn is_torn(bytes: &[u8]) -> bool {
    map::range().is_ok_and(|range| range.is_torn_at(bytes.as_ptr().addr()))
}

/// The granule that `bytes` lie in; none for no bytes, whose address says nothing about their owner.
#[inline]
fn granule_of(bytes: &[u8]) -> Option<usize> {
    if bytes.is_empty() {
        return None;
    }
    map::range().ok()?.granule_of(bytes.as_ptr().addr())
}

/// The mapping in a granule, as [`Arc::as_ptr`] gave it.
#[inline]
fn pointer_in(granule: usize) -> Option<NonNull<Mapping>> {
    NonNull::new(FILES[granule].load(Ordering::Acquire))
}

#[inline]
fn mapping_of(bytes: &[u8]) -> Option<(&Mapping, usize)> {
    let mapping = pointer_in(granule_of(bytes)?)?;
    // SAFETY: `bytes` lies in the granule of this mapping, so by invariant 2 the mapping lives as long as the borrow.
    let mapping: &Mapping = unsafe { mapping.as_ref() };
    let at = bytes.as_ptr().addr().checked_sub(mapping.as_slice().as_ptr().addr())?;
    // A slice cannot reach beyond the allocation it was cut from; this is a check on this file, not on the caller.
    debug_assert!(at + bytes.len() <= mapping.len);
    Some((mapping, at))
}

/// Bytes kept by a share in their origin, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Kept {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    File(#[expect(dead_code, reason = "held for its share in the mapping")] Arc<Mapping>),
    Block(#[expect(dead_code, reason = "held for its share in the block")] BlockRef),
}

// SAFETY: the memory is only read, its owner keeps it alive, and both kinds of owner can be sent and shared.
unsafe impl Send for Kept {}
// SAFETY: as for Send.
unsafe impl Sync for Kept {}

impl Kept {
    /// Keeps `bytes` if they lie in a mapped file or in a block of the pool that is frozen.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let granule = granule_of(bytes)?;
        let mut start = NonNull::from(bytes).cast::<u8>();
        let owner = match pointer_in(granule) {
            Some(mapping) => {
                // The pointer itself is used, not one made from a reference to the mapping: that could not reach the count.
                // SAFETY: the pointer comes from `Arc::as_ptr` of an `Arc` that lives (invariant 2).
                unsafe { Arc::increment_strong_count(mapping.as_ptr()) };
                // SAFETY: takes over the count that was just added.
                let mapping = unsafe { Arc::from_raw(mapping.as_ptr()) };
                // The same address by way of the mapping, so that it can be extended to what follows.
                if let Some(granule) = NonNull::new(mapping.granule.start()) {
                    start = granule.with_addr(start.addr());
                }
                Owner::File(mapping)
            }
            None => Owner::Block(BlockRef::of(bytes, granule)?),
        };
        Some(Self { start, len: bytes.len(), owner })
    }

    /// The file behind the bytes and where in it they start, if they are a mapped file's.
    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.owner {
            Owner::File(_) => file_of(self.as_ref()),
            Owner::Block(_) => None,
        }
    }

    /// Keeps `next` too, if it directly follows in the same mapped file. Says whether that is so.
    pub(crate) fn extend(&mut self, next: &[u8]) -> bool {
        let fits = matches!(self.owner, Owner::File(_)) && follows(self.as_ref(), next);
        if fits {
            self.len += next.len();
        }
        fits
    }

    /// Drops the first `n` bytes.
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.len, "internal: advancing {n} bytes of {}", self.len);
        // SAFETY: stays inside the kept bytes or one past them.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: these bytes were borrowed when they were kept. The owner keeps them readable, and unchanged: a block is
        // frozen, a mapped file is under the contract of `Mapping::bytes`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::pool;
    use std::io::Write;

    fn file(len: usize) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        // By repeating: miri takes microseconds for each step of a loop.
        let mut bytes = (0..=250).collect::<Vec<u8>>().repeat(len / 251 + 1);
        bytes.truncate(len);
        file.write_all(&bytes).unwrap();
        Arc::new(file)
    }

    #[test]
    fn a_slice_of_a_mapping_leads_to_its_file() {
        let f = file(100_000);
        let mapping = Mapping::new(Arc::clone(&f), 5000, 90_000).unwrap();
        let bytes = mapping.bytes();
        drop(mapping);
        assert_eq!(bytes.len(), 90_000);
        assert_eq!(bytes[0], (5000 % 251) as u8);
        let slice = bytes.slice(1000..2000);
        drop(bytes);
        let (_, offset) = file_of(&slice).unwrap();
        assert_eq!(offset, 6000);
        let kept = Kept::of(&slice).unwrap();
        drop(slice);
        assert_eq!(kept.as_ref()[0], (6000 % 251) as u8);
        assert_eq!(kept.file().unwrap().1, 6000);
        assert_eq!(Arc::strong_count(&f), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&f), 1, "the mapping is gone with its last share");
    }

    #[test]
    fn strangers_have_no_origin() {
        let local = vec![1, 2, 3];
        assert!(file_of(&local).is_none());
        assert!(Kept::of(&local).is_none());
        assert!(Kept::of(&[]).is_none());
        let mut lease = pool::lease(512);
        lease.extend_from_slice(&[1; 512]);
        assert!(Kept::of(&lease.freeze()[512..]).is_none(), "no bytes, no owner");
    }

    #[test]
    fn a_block_of_the_pool_is_kept_until_its_last_share() {
        let mut lease = pool::lease(4096);
        lease.extend_from_slice(&[7; 4096]);
        let address = lease.as_ref().as_ptr();
        let bytes = lease.freeze();
        let kept = Kept::of(&bytes[100..200]).unwrap();
        assert!(kept.file().is_none());
        drop(bytes);
        let others: Vec<_> = (0..100).map(|_| pool::lease(4096)).collect();
        assert!(others.iter().all(|o| o.as_ref().as_ptr() != address), "leased anew while a share lived");
        assert_eq!(kept.as_ref(), &[7; 100]);
    }

    #[test]
    fn keeping_and_dropping_leaves_no_granule_behind() {
        let range = map::range().unwrap();
        let f = file(10_000);
        drop(Mapping::new(Arc::clone(&f), 0, 10_000).unwrap());
        let before = range.available();
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            let bytes = Mapping::new(Arc::clone(&f), 0, 10_000).unwrap().bytes();
            drop(Kept::of(&bytes));
        }
        // Other tests of this process hold a few granules at any moment.
        assert!(range.available() + 16 >= before);
    }
}
