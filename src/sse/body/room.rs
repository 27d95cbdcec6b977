//! Accounting of the log pages held by the readers of the process.
//!
//! A page is held until its reader has taken it, which may take long. So new pages become smaller as more bytes are
//! held. Readers do not wait for each other: when no room is left, each page has one event.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buf::charge::Charge;
use crate::buf::queue::Queue;

/// Maximum size of all pages together, in bytes.
pub(super) const ALL_MAX: usize = Queue::ALL_MAX / 8;
/// A page may use one part in this many of the remaining room.
const PART: usize = 128;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// Number of bytes that one reader holds or has requested. They also count as bytes to be sent.
#[derive(Debug)]
pub(super) struct Room(Charge);

impl Default for Room {
    fn default() -> Self {
        Self(Charge::new(&HELD))
    }
}

impl Room {
    pub(super) fn for_page() -> Self {
        let pages = ALL_MAX.saturating_sub(HELD.load(Ordering::Relaxed));
        let queues = Queue::ALL_MAX.saturating_sub(Queue::all());
        let mut room = Self::default();
        room.set(pages.min(queues) / PART);
        room
    }

    pub(in crate::sse) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub(in crate::sse) fn set(&mut self, bytes: usize) {
        self.0.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_get_smaller_and_never_more_than_all_of_them() {
        let mut rooms: Vec<Room> = (0..10_000).map(|_| Room::for_page()).collect();
        let sum: usize = rooms.iter().map(Room::bytes).sum();
        assert!(sum <= ALL_MAX && sum > ALL_MAX - ALL_MAX / 100, "{sum}");
        assert!(rooms[0].bytes() <= ALL_MAX / PART && rooms[0].bytes() > ALL_MAX / PART / 2);
        assert!(rooms[200].bytes() > 32 << 10, "{}", rooms[200].bytes());
        assert!(rooms.is_sorted_by_key(|room| usize::MAX - room.bytes()));
        rooms[0].set(2 * ALL_MAX);
        assert_eq!(Room::for_page().bytes(), 0);
        drop(rooms);
        assert_eq!(Room::for_page().bytes(), ALL_MAX / PART);
    }
}
