//! Provided buffers: memory that the kernel fills when something arrives, and not before, so that whoever waits holds
//! none ([io_uring_register_buf_ring(3)](https://man7.org/linux/man-pages/man3/io_uring_register_buf_ring.3.html)).
//!
//! Invariants:
//! 1. A buffer belongs to the kernel from the moment it is given until a completion names it, and to one [`Chunk`] from
//!    then until that is dropped, which gives it again.
//! 2. The memory outlives the ring's interest in it: whoever registers it keeps a share until nothing is in flight.

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

/// Most buffers that a ring can be given.
const COUNT_MAX: u16 = 1 << 15;

/// Buffers of one size, and the queue in which the kernel finds those that are free.
pub(crate) struct Provided {
    /// The queue, followed by the buffers.
    start: NonNull<u8>,
    len: usize,
    count: u16,
    size: usize,
    queue: Mutex<Queue>,
    lent: AtomicUsize,
}

/// What was given in which order: a completion that spans several buffers names only the first.
struct Queue {
    tail: u16,
    by_place: Box<[u16]>,
    places: Box<[u16]>,
}

// SAFETY: the memory is owned; who touches which part of it is settled by the invariants above and the lock.
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
    /// Maps `count` buffers, rounded up to a power of two, of `size` bytes, and gives all of them.
    pub(crate) fn new(count: u16, size: usize) -> io::Result<Arc<Self>> {
        let count = count.clamp(1, COUNT_MAX).next_power_of_two();
        let queue_len = (usize::from(count) * size_of::<BufRingEntry>()).next_multiple_of(rustix::param::page_size());
        let len = queue_len + usize::from(count) * size;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory anyone has.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, flags) }?;
        // A child that forks off must not make the kernel and us look at different pages.
        // SAFETY: this is the mapping that was just made, and it is read and written only here.
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

    /// Where the queue is, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Buffers that chunks hold.
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

    /// Lets the kernel have a buffer, behind those it has.
    fn give(&self, buffer: u16) {
        let address = self.buffer(buffer).as_ptr() as u64;
        let mut queue = self.queue();
        let place = queue.tail & (self.count - 1);
        let entries = self.start.cast::<BufRingEntry>();
        // SAFETY: the place is below the count, so the entry lies in the queue.
        let mut entry = unsafe { entries.add(usize::from(place)) };
        // SAFETY: the kernel does not look at an entry behind the tail, and the lock keeps others away.
        let entry = unsafe { entry.as_mut() };
        // Not its last field: in the first entry that is the tail.
        entry.set_addr(address);
        entry.set_len(self.size as u32);
        entry.set_bid(buffer);
        queue.by_place[usize::from(place)] = buffer;
        queue.places[usize::from(buffer)] = place;
        queue.tail = queue.tail.wrapping_add(1);
        // SAFETY: the first entry of the queue.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: the tail is aligned and lies in the mapping, and is written only here, under the lock.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the entry is there before the kernel sees the tail.
        tail.store(queue.tail, Ordering::Release);
    }

    /// The buffer that was given after this one.
    fn next(&self, buffer: u16) -> u16 {
        let queue = self.queue();
        let place = queue.places[usize::from(buffer)].wrapping_add(1) & (self.count - 1);
        queue.by_place[usize::from(place)]
    }

    /// The `len` bytes that a completion has brought, from the start of `first` on, a chunk for each buffer.
    ///
    /// # Safety
    ///
    /// The completion has just been reaped from the ring that these buffers are registered with, and nobody else asks for
    /// it.
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
        // SAFETY: the mapping is ours, and no ring looks at it any more (invariant 2).
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes that have arrived, in a buffer that returns to the kernel when this is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    provided: Arc<Provided>,
    buffer: u16,
    from: u32,
    to: u32,
}

impl Chunk {
    /// Drops the first `n` bytes.
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
        // SAFETY: the kernel has filled these bytes and let go of the buffer (invariant 1).
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
        // SAFETY: no ring knows these buffers, so all of them are ours.
        let take = |first, len| unsafe { provided.chunks(first, len) }.collect::<Vec<_>>();
        let mut taken = take(0, 301);
        let lens: Vec<_> = taken.iter().map(|chunk| (chunk.buffer, chunk.to)).collect();
        assert_eq!(lens, [(0, 100), (1, 100), (2, 100), (3, 1)]);
        assert_eq!(provided.lent(), 4);
        // Given back in another order: first 2, then 3, then 0 and 1.
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
