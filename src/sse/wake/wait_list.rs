//! The readers of a hub in one runtime, and which of them wait.

use std::mem;
use std::task::Waker;

use crate::sync::guarded;

/// Calls a waker. A panic, which was already reported, must not affect the other readers.
pub(in crate::sse) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

#[derive(Debug)]
pub(in crate::sse) struct Waiting {
    place: usize,
    /// Tick at which it is woken.
    due: u64,
    pub(in crate::sse) waker: Waker,
}

#[derive(Debug, Default)]
pub(super) struct WaitList {
    waiting: Vec<Waiting>,
    spare: Vec<Waiting>,
    /// Last index in `waiting` of each place, which may be stale.
    at: Vec<usize>,
    free: Vec<usize>,
    tick: u64,
}

impl WaitList {
    /// Returns the place of a new reader.
    pub(in crate::sse) fn join(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.at.push(0);
            self.at.len() - 1
        })
    }

    /// Returns the number of readers, waiting or not.
    pub(in crate::sse) fn len(&self) -> usize {
        self.at.len() - self.free.len()
    }

    fn position(&self, place: usize) -> Option<usize> {
        let at = self.at[place];
        self.waiting.get(at).is_some_and(|waiting| waiting.place == place).then_some(at)
    }

    /// Returns the number of ticks so far.
    pub(super) fn ticks(&self) -> u64 {
        self.tick
    }

    /// Adds or replaces the waker of a reader. Returns the one before, to be dropped without the lock.
    pub(in crate::sse) fn wait(&mut self, place: usize, due: u64, waker: &Waker) -> Option<Waker> {
        if let Some(at) = self.position(place) {
            let kept = &mut self.waiting[at];
            kept.due = due;
            return (!kept.waker.will_wake(waker)).then(|| mem::replace(&mut kept.waker, waker.clone()));
        }
        self.at[place] = self.waiting.len();
        self.waiting.push(Waiting { place, due, waker: waker.clone() });
        None
    }

    /// Removes the waker of a reader, if it waits.
    pub(super) fn stop_waiting(&mut self, place: usize) -> Option<Waker> {
        self.position(place).map(|at| {
            let left = self.waiting.swap_remove(at);
            if let Some(moved) = self.waiting.get(at) {
                self.at[moved.place] = at;
            }
            left.waker
        })
    }

    pub(in crate::sse) fn leave(&mut self, place: usize) -> Option<Waker> {
        let left = self.stop_waiting(place);
        self.free.push(place);
        if self.len() == 0 {
            *self = Self { tick: self.tick, ..Self::default() };
        }
        left
    }

    /// Removes all waiting readers. Their empty vector is returned to [`reuse`](Self::reuse).
    pub(in crate::sse) fn take(&mut self) -> Vec<Waiting> {
        let spare = mem::take(&mut self.spare);
        mem::replace(&mut self.waiting, spare)
    }

    pub(super) fn reuse(&mut self, spare: Vec<Waiting>) {
        self.spare = spare;
    }

    /// Advances the tick. Returns the wakers of the readers that are due, which keep waiting.
    pub(super) fn tick(&mut self) -> Vec<Waker> {
        self.tick += 1;
        let due = self.waiting.iter().filter(|waiting| waiting.due <= self.tick);
        due.map(|waiting| waiting.waker.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
