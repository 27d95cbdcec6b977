//! Provided buffers: the kernel takes a buffer when bytes arrive, so a waiting receive holds no memory
//! ([io_uring_register_buf_ring(3)](https://man7.org/linux/man-pages/man3/io_uring_register_buf_ring.3.html)).
//!
//! Invariants:
//! 1. A buffer belongs to the kernel until a completion names it, then to one [`Chunk`], which gives it back when
//!    dropped.
//! 2. The memory outlives its use by the ring: the owner of the ring keeps a reference until nothing is in flight.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::types::BufRingEntry;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::counters::{Counter, count};

const COUNT_MAX: u16 = 1 << 15;

/// Buffers of one size, and the queue of free buffers that the kernel reads.
pub(crate) struct Provided {
    /// The queue, followed by the buffers.
    start: NonNull<u8>,
    len: usize,
    count: u16,
    size: usize,
    queue: Mutex<Queue>,
    lent: AtomicUsize,
}

/// Buffers in the order they were given: a completion that spans several buffers names only the first.
struct Queue {
    tail: u16,
    by_place: Box<[u16]>,
    places: Box<[u16]>,
}

// SAFETY: the memory is owned; the invariants above and the lock govern access to its parts.
unsafe impl Send for Provided {}
// SAFETY: as for Send.
unsafe impl Sync for Provided {}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provided")
            .field("count", &self.count)
            .field("size", &self.size)
            .field("lent", &self.lent())
            .finish_non_exhaustive()
    }
}

impl Provided {
    /// Maps `count` buffers, rounded up to a power of two, of `size` bytes, and gives all of them to the kernel.
    pub(crate) fn new(count: u16, size: usize) -> io::Result<Arc<Self>> {
        let count = count.clamp(1, COUNT_MAX).next_power_of_two();
        let queue_len = (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(rustix::param::page_size());
        let len = queue_len + usize::from(count) * size;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no other memory.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, flags) }?;
        // After a fork, copy-on-write would separate the parent's pages from the kernel's.
        // SAFETY: the mapping was just made, and is accessed only through this value.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontFork) };
        let provided = Self {
            start: NonNull::new(start.cast()).expect("internal: mapped at zero"),
            len,
            count,
            size,
            queue: Mutex::new(Queue { tail: 0, by_place: (0..count).collect(), places: (0..count).collect() }),
            lent: AtomicUsize::new(0),
        };
        (0..count).for_each(|buffer| provided.give(buffer));
        Ok(Arc::new(provided))
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    pub(crate) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self, buffer: u16) -> NonNull<u8> {
        assert!(buffer < self.count, "internal: buffer {buffer} of {}", self.count);
        let buffers = self.len - usize::from(self.count) * self.size;
        // SAFETY: the number was checked, so the buffer lies inside the mapping.
        unsafe { self.start.add(buffers + usize::from(buffer) * self.size) }
    }

    fn give(&self, buffer: u16) {
        let address = self.buffer(buffer).as_ptr() as u64;
        let mut queue = self.queue();
        let place = queue.tail & (self.count - 1);
        let entries = self.start.cast::<BufRingEntry>();
        // SAFETY: the place is below the count, so the entry lies in the queue.
        let mut entry = unsafe { entries.add(usize::from(place)) };
        // SAFETY: the kernel does not read entries behind the tail, and the lock excludes other threads.
        let entry = unsafe { entry.as_mut() };
        // The last field is not written: in the first entry it is the tail.
        entry.set_addr(address);
        entry.set_len(self.size as u32);
        entry.set_bid(buffer);
        queue.by_place[usize::from(place)] = buffer;
        queue.places[usize::from(buffer)] = place;
        queue.tail = queue.tail.wrapping_add(1);
        // SAFETY: the first entry of the queue.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: the tail is aligned, lies in the mapping, and is written only here, under the lock.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the entry is written before the kernel sees the tail.
        tail.store(queue.tail, Ordering::Release);
    }

    /// Returns the buffer that was given after this one.
    fn next(&self, buffer: u16) -> u16 {
        let queue = self.queue();
        let place = queue.places[usize::from(buffer)].wrapping_add(1) & (self.count - 1);
        queue.by_place[usize::from(place)]
    }

    /// Returns the `len` bytes of a completion, which start in `first`, as one chunk per buffer.
    ///
    /// # Safety
    ///
    /// The completion was just reaped from the ring that uses these buffers, and its bytes are taken only once.
    pub(crate) unsafe fn chunks(self: &Arc<Self>, first: u16, len: usize) -> impl Iterator<Item = Chunk> + use<> {
        let provided = Arc::clone(self);
        let (mut next, mut left) = (Some(first), len);
        std::iter::from_fn(move || {
            let buffer = next?;
            let to = left.min(provided.size);
            left -= to;
            next = (left > 0).then(|| provided.next(buffer));
            provided.lent.fetch_add(1, Ordering::Relaxed);
            Some(Chunk { provided: Arc::clone(&provided), buffer, from: 0, to: to as u32 })
        })
    }
}

impl Drop for Provided {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and no ring uses it any more (invariant 2).
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Received bytes, in a buffer that returns to the kernel on drop.
#[derive(Debug)]
pub(crate) struct Chunk {
    provided: Arc<Provided>,
    buffer: u16,
    from: u32,
    to: u32,
}

impl Chunk {
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.as_ref().len(), "internal: advancing {n} bytes of {self:?}");
        self.from += n as u32;
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        let start = self.provided.buffer(self.buffer);
        // SAFETY: `from <= to <= size`, so this stays inside the buffer.
        let start = unsafe { start.add(self.from as usize) };
        // SAFETY: the kernel filled these bytes and released the buffer (invariant 1).
        unsafe { slice::from_raw_parts(start.as_ptr(), (self.to - self.from) as usize) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.provided.lent.fetch_sub(1, Ordering::Relaxed);
        count(Counter::ReceiveBuffersReturned, 1);
        self.provided.give(self.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_in_the_order_in_which_they_were_given() {
        let provided = Provided::new(3, 100).unwrap();
        assert_eq!(provided.count(), 4);
        // SAFETY: no ring uses these buffers.
        let take = |first, len| unsafe { provided.chunks(first, len) }.collect::<Vec<_>>();
        let mut taken = take(0, 301);
        let lens: Vec<_> = taken.iter().map(|chunk| (chunk.buffer, chunk.to)).collect();
        assert_eq!(lens, [(0, 100), (1, 100), (2, 100), (3, 1)]);
        assert_eq!(provided.lent(), 4);
        // Returned in another order: first 2, then 3, then 0 and 1.
        drop(taken.remove(2));
        drop(taken.pop());
        drop(taken);
        assert_eq!(provided.lent(), 0);
        let taken = take(2, 400);
        assert_eq!(taken.iter().map(|chunk| chunk.buffer).collect::<Vec<_>>(), [2, 3, 0, 1]);
        drop(taken);
        let nothing = take(0, 0);
        assert_eq!((nothing.len(), nothing[0].as_ref().len()), (1, 0));
    }
}
