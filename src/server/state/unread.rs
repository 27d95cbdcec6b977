//! HTTP/2: bytes of request bodies that were received, and that no service has read.
//!
//! hyper holds these bytes within its windows, and does not report their number. An upper bound is computed here: the
//! bytes received since the last moment when all bodies of the connection were read as far as they had arrived, or since
//! the last check without bodies, less the bytes read from bodies since then, and at most the window of the connection. While the sum over all connections exceeds its part of the budget,
//! connections that hold such bytes are not read.

use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

use crate::buf::charge::Charge;
use crate::counters::{Counter, count};
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Bytes of a connection that do not count: a window of HTTP/2 at its start, and the frames beside bodies.
const FREE: usize = 128 << 10;

/// One part in this many of the budget is for the unread bytes of all connections.
const PART: usize = 2;

/// Sum of what the connections of the process hold.
static ALL: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
pub(in crate::server) struct Unread {
    /// Bodies that have not ended in the upper 32 bits; in the lower 32 bits, those with an unread part.
    bodies: AtomicU64,
    /// Bytes of bodies that were read.
    read: AtomicU64,
    /// Bytes received less bytes read when all bodies were last read, or at the last check without bodies: heads and other
    /// frames count as received, too.
    base: AtomicI64,
    is_closed: AtomicBool,
    /// Waits to read the connection.
    reader: Mutex<Option<Waker>>,
    /// Bytes of the connection that are charged to the budget.
    charge: Mutex<Charge>,
}

impl Default for Unread {
    fn default() -> Self {
        Self {
            bodies: AtomicU64::new(0),
            read: AtomicU64::new(0),
            base: AtomicI64::new(0),
            is_closed: AtomicBool::new(false),
            reader: Mutex::new(None),
            charge: Mutex::new(Charge::new(&ALL)),
        }
    }
}

/// The part of one body in [`Unread`].
#[derive(Debug)]
pub(in crate::server) struct Part {
    is_read: bool,
}

impl Unread {
    /// Returns whether there are bodies that have not ended.
    pub(in crate::server) fn has_bodies(&self) -> bool {
        self.bodies.load(Ordering::Relaxed) >> 32 > 0
    }

    /// Begins a body, a part of which may have arrived.
    pub(in crate::server) fn begin(&self) -> Part {
        self.bodies.fetch_add((1 << 32) + 1, Ordering::Relaxed);
        Part { is_read: false }
    }

    /// Records that `bytes` of a body were read, and that more may have arrived.
    pub(in crate::server) fn read(&self, part: &mut Part, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        if std::mem::take(&mut part.is_read) {
            self.bodies.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that a body was read as far as it has arrived. `received` returns the bytes received on the connection.
    pub(in crate::server) fn catch_up(&self, part: &mut Part, received: impl FnOnce() -> u64) {
        if !std::mem::replace(&mut part.is_read, true) {
            self.subtract(1, received);
        }
    }

    /// Ends a body. The rest of it is discarded.
    pub(in crate::server) fn end(&self, part: Part, received: impl FnOnce() -> u64) {
        self.subtract((1 << 32) + u64::from(!part.is_read), received);
    }

    fn subtract(&self, bodies: u64, received: impl FnOnce() -> u64) {
        let left = self.bodies.fetch_sub(bodies, Ordering::SeqCst) - bodies;
        if left as u32 == 0 {
            self.base.store(self.difference(received()), Ordering::Relaxed);
            self.open();
        }
    }

    /// Stops reading the connection, until all its bodies are read as far as they have arrived. Returns whether it was
    /// read before.
    fn close(&self) -> bool {
        let was_open = !self.is_closed.swap(true, Ordering::SeqCst);
        // The last body may have been read meanwhile.
        if self.bodies.load(Ordering::SeqCst) as u32 == 0 {
            self.open();
        }
        was_open
    }

    /// Reads the connection again.
    fn open(&self) {
        if self.is_closed.load(Ordering::SeqCst) {
            let reader = {
                let mut reader = lock(&self.reader);
                self.is_closed.store(false, Ordering::SeqCst);
                reader.take()
            };
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }

    /// Waits until the connection may be read.
    pub(in crate::server) fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_closed.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut reader = lock(&self.reader);
        if !self.is_closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        *reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn difference(&self, received: u64) -> i64 {
        received.wrapping_sub(self.read.load(Ordering::Relaxed)) as i64
    }

    /// Updates the budget for the bytes that the connection holds after `received` bytes, `window` at most, and stops or
    /// resumes reading the connection. It is read while it `owes`: a response of it waits until the client opens a window, and the service
    /// may wait for the response.
    pub(in crate::server) fn bound(&self, received: u64, window: usize, budget: usize, owes: bool) {
        if !self.has_bodies() {
            self.base.store(self.difference(received), Ordering::Relaxed);
        }
        let held = self.held(received).min(window);
        lock(&self.charge).set(held);
        if owes || ALL.load(Ordering::Relaxed) <= budget / PART {
            self.open();
        } else if held > 0 && self.close() {
            count(Counter::ReadsPaused, 1);
        }
    }

    /// Takes the connection, which is over, out of the budget.
    pub(in crate::server) fn release(&self) {
        lock(&self.charge).set(0);
    }

    /// Returns the unread bytes that count for the budget, of `received` on the connection.
    fn held(&self, received: u64) -> usize {
        if self.bodies.load(Ordering::Relaxed) as u32 == 0 {
            return 0;
        }
        let held = self.difference(received) - self.base.load(Ordering::Relaxed);
        usize::try_from(held).unwrap_or(0).saturating_sub(FREE)
    }
}

#[cfg(test)]
mod tests;
