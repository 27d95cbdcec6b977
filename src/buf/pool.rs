//! Pool memory: leases of five sizes that become [`Bytes`] without a copy and return when the last clone drops. A lease
//! larger than every class, or whose class has no free block, comes from the heap and counts as a miss.
//!
//! Invariants:
//! 1. A lease owns its memory, exclusively until it is frozen.
//! 2. A lease exposes only bytes that were written through it, and lends user code only zeroed memory: contents of
//!    earlier leases stay hidden.
//! 3. All memory of a lease is initialised.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::NonNull;
use std::slice;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use super::slab::{self, LINE, SIZES, Slab};
use crate::counters::{Counter, count};

enum Memory {
    Block { slab: &'static Slab, index: u32 },
    Heap { layout: Layout },
}

/// A fixed amount of memory that is written front to back, then frozen into [`Bytes`].
///
/// Created by [`lease`]. The streams of this crate recognise frozen leases and queue them by reference.
pub struct Lease {
    start: NonNull<u8>,
    capacity: usize,
    /// Start of the contents; the bytes before it are headroom.
    from: usize,
    /// End of the contents. `from <= to <= capacity`.
    to: usize,
    /// Spare memory before this offset was zeroed or written through this lease. `clean <= capacity`.
    clean: usize,
    memory: Memory,
}

// SAFETY: a lease owns its memory like a `Box<[u8]>`; returning a block uses locks and atomics.
unsafe impl Send for Lease {}
// SAFETY: a shared lease only gives read access to the memory.
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

/// Leases at least `capacity` bytes: from the pool up to 256 KiB while it has free blocks, otherwise from the heap.
/// Aborts the process if memory is exhausted, like any allocation.
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

/// Does the same as [`lease`], with `headroom` bytes before the contents, so that [`Lease::prepend`] can add a header
/// without moving the body.
pub fn lease_with_headroom(capacity: usize, headroom: usize) -> Lease {
    let need = capacity.checked_add(headroom).expect("capacity overflow");
    if let Some(class) = SIZES.iter().position(|&size| size >= need)
        && let Some((slab, index)) = slab::lease(class)
    {
        count(Counter::PoolHits, 1);
        return Lease {
            start: slab.block(index),
            capacity: SIZES[class],
            from: headroom,
            to: headroom,
            clean: 0,
            memory: Memory::Block { slab, index },
        };
    }
    count(Counter::PoolMisses, 1);
    let layout = Layout::from_size_align(need.max(LINE), LINE).expect("capacity overflow");
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
    let capacity = layout.size();
    Lease { start, capacity, from: headroom, to: headroom, clean: capacity, memory: Memory::Heap { layout } }
}

/// As [`lease`], but waits for other tests that hold all blocks of the class.
#[cfg(test)]
pub(crate) fn lease_block(capacity: usize) -> Lease {
    loop {
        let lease = lease(capacity);
        if let Memory::Block { .. } = lease.memory {
            return lease;
        }
        std::thread::yield_now();
    }
}

impl Lease {
    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Returns whether no bytes were written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that can still be appended.
    pub fn spare_len(&self) -> usize {
        self.capacity - self.to
    }

    /// Returns the spare memory, which may hold old contents.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        // SAFETY: `to..capacity` lies inside the memory of this lease.
        let start = unsafe { self.start.add(self.to) };
        // SAFETY: all memory of a lease is initialised, and `&mut self` makes this the only reference to it (invariant
        // 1).
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.capacity - self.to) }
    }

    /// Appends the bytes that `fill` writes to the front of the spare memory; `fill` returns their number. Unwritten
    /// spare memory is zeroed first.
    ///
    /// # Errors
    ///
    /// Returns the errors of `fill`; nothing is appended then.
    ///
    /// # Panics
    ///
    /// Panics if `fill` returns more than the length of its buffer.
    pub fn read_with(&mut self, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let dirty = self.clean.max(self.to) - self.to;
        self.spare()[dirty..].fill(0);
        self.clean = self.capacity;
        self.read_exactly_with(fill)
    }

    /// Does the same as [`read_with`](Self::read_with) for a `fill` that is trusted to return only the number of bytes
    /// it has written, as the kernel does. Its buffer is not zeroed and may hold old contents.
    pub(crate) fn read_exactly_with(&mut self, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let n = fill(self.spare())?;
        assert!(n <= self.spare_len(), "{n} bytes do not fit the {} that were offered", self.spare_len());
        self.to += n;
        Ok(n)
    }

    /// Reads at most `max` bytes from `reader` and appends them, even if `reader` then returns an error. Panics if
    /// `max` exceeds the spare memory, or if `reader` replaces its buffer.
    #[doc(hidden)]
    pub fn poll_read<R: AsyncRead + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        reader: Pin<&mut R>,
        max: usize,
    ) -> Poll<io::Result<()>> {
        let clean = self.clean.max(self.to) - self.to;
        let spare = &mut self.spare()[..max];
        let start = spare.as_ptr();
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the slice borrows the spare memory.
        let spare = unsafe { slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<MaybeUninit<u8>>(), max) };
        let mut buf = ReadBuf::uninit(spare);
        // SAFETY: all pool memory is initialised (invariant 3). The reader sees only the clean part as initialised.
        unsafe { buf.assume_init(clean.min(max)) };
        let read = reader.poll_read(cx, &mut buf);
        assert_eq!(buf.filled().as_ptr(), start, "the reader replaced the buffer of `poll_read`");
        let (filled, initialised) = (buf.filled().len(), buf.initialized().len());
        self.clean = self.clean.max(self.to + initialised);
        self.advance(filled);
        read
    }

    /// Appends the first `n` bytes of the spare memory, which were written.
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "internal: {n} bytes were written where {} fit", self.spare_len());
        self.to += n;
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` is longer than the [spare memory](Self::spare_len).
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].copy_from_slice(bytes);
        self.to += bytes.len();
    }

    /// Returns the contents, to be changed in place.
    #[doc(hidden)]
    pub fn contents(&mut self) -> &mut [u8] {
        // SAFETY: `from..to` lies inside the memory of this lease.
        let start = unsafe { self.start.add(self.from) };
        // SAFETY: as in `spare`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.to - self.from) }
    }

    /// Puts `head` in front of the contents without moving them.
    ///
    /// # Panics
    ///
    /// Panics if `head` is longer than the headroom.
    pub fn prepend(&mut self, head: &[u8]) {
        assert!(head.len() <= self.from, "{} bytes do not fit {} of headroom", head.len(), self.from);
        let at = self.from - head.len();
        // SAFETY: `at..from` lies inside the memory of this lease.
        let start = unsafe { self.start.add(at) };
        // SAFETY: as in `spare`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), head.len()) }.copy_from_slice(head);
        self.from = at;
    }

    /// Returns the contents as [`Bytes`], without a copy. The memory returns to the pool when the last clone drops.
    ///
    /// The memory is not written to afterwards, and the streams and queues of this crate keep slices of it by
    /// reference. They copy slices of a lease that is not frozen.
    pub fn freeze(self) -> Bytes {
        if self.is_empty() {
            return Bytes::new();
        }
        if let Memory::Block { slab, index } = self.memory {
            slab.freeze(index);
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `from..to` lies inside the memory of this lease.
        let start = unsafe { self.start.add(self.from) };
        // SAFETY: initialised, and not written while `self` is borrowed (invariant 1).
        unsafe { slice::from_raw_parts(start.as_ptr(), self.len()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.memory {
            Memory::Block { slab, index } => slab.release(index),
            // SAFETY: allocated by `alloc_zeroed` with this layout, and freed only here.
            Memory::Heap { layout } => unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}
