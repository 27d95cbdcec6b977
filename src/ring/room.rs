//! Shares of a ring's capacity: completions, and places in its table of files.
//!
//! ```text
//!  completion queue  ├─ control: cancels, the timer ─┤── programs that may wait ──┤── other programs ──┤
//!                      an eighth                       a quarter                    the rest
//!  table of files                                    ├── half of it ──────────────┤── half of it ─────┤
//! ```
//!
//! Invariants:
//! 1. A program takes its maximum when it is admitted and returns it when it ends, so later steps always find room.
//! 2. Programs never use the room of control entries, so everything in flight can be cancelled at any time.
//! 3. Programs that may wait for a peer without bound never use the room of programs that do not.

use crate::ops::program::Need;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) used: usize,
    pub(super) limit: usize,
}

impl Share {
    fn new(limit: usize) -> Self {
        Self { used: 0, limit }
    }

    pub(super) fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) control: Share,
    /// Completions of programs that do not wait for a peer.
    swift: Share,
    waiting: Share,
    swift_places: Share,
    waiting_places: Share,
}

impl Room {
    pub(super) fn new(completions: usize, places: usize) -> Self {
        let (control, waiting) = (completions / 8, completions / 4);
        Self {
            control: Share::new(control),
            swift: Share::new(completions - control - waiting),
            waiting: Share::new(waiting),
            swift_places: Share::new(places - places / 2),
            waiting_places: Share::new(places / 2),
        }
    }

    /// Returns the number of units shared by all programs that may wait.
    pub(super) fn units(&self) -> usize {
        self.waiting.limit
    }

    /// Returns the number of units of one such program. They guarantee that it finds completions and places.
    pub(super) fn units_of(&self, need: Need) -> usize {
        need.completions.max((need.places * self.waiting.limit).div_ceil(self.waiting_places.limit.max(1)))
    }

    fn shares(&mut self, waits: bool) -> (&mut Share, &mut Share) {
        match waits {
            true => (&mut self.waiting, &mut self.waiting_places),
            false => (&mut self.swift, &mut self.swift_places),
        }
    }

    pub(super) fn could_take(&mut self, need: Need) -> bool {
        let (completions, places) = self.shares(need.waits);
        need.completions <= completions.limit && need.places <= places.limit
    }

    /// Takes the room of a program if available. Returns whether it was.
    pub(super) fn take(&mut self, need: Need) -> bool {
        let (completions, places) = self.shares(need.waits);
        let fits = need.completions <= completions.left() && need.places <= places.left();
        if fits {
            completions.used += need.completions;
            places.used += need.places;
        }
        fits
    }

    pub(super) fn give(&mut self, need: Need) {
        let (completions, places) = self.shares(need.waits);
        completions.used -= need.completions;
        places.used -= need.places;
    }
}

#[cfg(test)]
mod tests;
