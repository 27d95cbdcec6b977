//! Pool memory: leases of five sizes that become [`Bytes`] without a copy and return when the last clone drops.
//!
//! A lease too large for every class, or asked for while its class is empty, comes from the heap and counts as a miss.
//!
//! Invariants:
//! 1. A lease owns its memory, exclusively until it is frozen.
//! 2. A lease shows only bytes that were written through it, and lends user code only zeroed memory: what an earlier lease
//!    left in the block stays hidden.
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

pub(crate) use super::slab::{slab_at, slabs};

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
    /// Start of the contents. The bytes before it are headroom.
    from: usize,
    /// End of the contents. `from <= to <= capacity`.
    to: usize,
    /// Spare memory before this offset was zeroed or written through this lease. `clean <= capacity`.
    clean: usize,
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

/// Leases at least `capacity` bytes: from the pool up to 256 KiB while it has free blocks, else from the heap. Fails
/// only if memory is exhausted, which aborts the process as for any allocation.
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
        // SAFETY: all memory of a lease is initialised, and `&mut self` makes this the only
        // reference to it (invariant 1).
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.capacity - self.to) }
    }

    /// Appends the bytes that `fill` writes to the front of the spare memory; `fill` returns their number. Spare memory
    /// that was not yet written is zeroed first.
    ///
    /// # Errors
    ///
    /// Returns the errors of `fill`; nothing is appended then.
    ///
    /// # Panics
    ///
    /// If `fill` reports more than it was offered.
    pub fn read_with(&mut self, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let dirty = self.clean.max(self.to) - self.to;
        self.spare()[dirty..].fill(0);
        self.clean = self.capacity;
        self.read_exactly_with(fill)
    }

    /// As [`read_with`](Self::read_with), for a `fill` that is trusted to report only bytes it has written, as the
    /// kernel does. The memory passed to `fill` is not zeroed and may hold old contents.
    pub(crate) fn read_exactly_with(&mut self, fill: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let n = fill(self.spare())?;
        assert!(n <= self.spare_len(), "{n} bytes do not fit the {} that were offered", self.spare_len());
        self.to += n;
        Ok(n)
    }

    /// Reads at most `max` bytes from `reader` and appends them. Filled bytes are appended whatever `reader` returns.
    ///
    /// # Panics
    ///
    /// If `max` exceeds the spare room, or `reader` replaces the buffer that it is given.
    pub(crate) fn poll_read<R: AsyncRead + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        reader: Pin<&mut R>,
        max: usize,
    ) -> Poll<io::Result<()>> {
        let clean = self.clean.max(self.to) - self.to;
        let spare = &mut self.spare()[..max];
        let start = spare.as_ptr();
        // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the slice is borrowed for as long as the spare memory is.
        let spare = unsafe { slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<MaybeUninit<u8>>(), max) };
        let mut buf = ReadBuf::uninit(spare);
        // SAFETY: all pool memory is initialised (invariant 3). The reader sees only the clean part as initialised.
        unsafe { buf.assume_init(clean.min(max)) };
        let read = reader.poll_read(cx, &mut buf);
        assert_eq!(buf.filled().as_ptr(), start, "the reader has replaced the buffer that it was given");
        let (filled, initialised) = (buf.filled().len(), buf.initialized().len());
        self.clean = self.clean.max(self.to + initialised);
        self.advance(filled);
        read
    }

    /// Start of the spare memory, for the kernel to write to. Call [`advance`](Self::advance) to append the bytes that
    /// it has written.
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
            // SAFETY: made by `alloc_zeroed` with this layout, and freed only here.
            Memory::Heap { layout } => unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}
