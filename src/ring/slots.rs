//! The programs of a driver, and whether their futures still exist.
//!
//! ```text
//!            insert            submitted             last completion
//!   Free ───────────▶ Queued ───────────▶ InFlight ─────────────────▶ Ended ──poll──▶ Free
//!                       │                    │ orphan                    │ orphan
//!                       └──────orphan───▶ (returned to be dropped) ◀─────┘
//!                                            │ InFlight and orphaned: the last completion returns it to be dropped
//! ```
//!
//! Invariants:
//! 1. A program in flight leaves its slot only after its last owed completion; otherwise it is leaked.
//! 2. A key names one use of a slot: the generation changes whenever the slot is freed. Completions with an old key,
//!    and completions that are not owed, have no effect.
//! 3. Nothing is dropped here, since a drop may run code of users: values to drop are returned.

use std::task::Waker;

use super::key::{INDEX_MAX, Key};
use crate::ops::program::Program;

#[derive(Debug)]
pub(crate) enum Ended {
    Finished(Box<Program>),
    /// The rest must run by plain calls; names the step that the ring refused, if any.
    Fallback(Box<Program>, Option<usize>),
    /// The result is unknown. Its memory is leaked.
    Lost,
}

#[derive(Debug)]
enum SlotState {
    Free,
    Queued { program: Box<Program>, waker: Option<Waker> },
    InFlight { program: Box<Program>, waker: Option<Waker>, orphaned: bool },
    Ended(Ended),
}

#[derive(Debug)]
pub(super) enum Orphan {
    /// The program was not in flight: drop it.
    Free(Option<Box<Program>>),
    /// The program stays until its last completion: cancel it.
    InFlight,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<(u32, SlotState)>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, program: Box<Program>) -> Key {
        let state = SlotState::Queued { program, waker: None };
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.1 = state;
            return Key::new(index, slot.0);
        }
        let index = self.slots.len() as u32;
        assert!(index < INDEX_MAX, "internal: four million operations at once");
        self.slots.push((0, state));
        Key::new(index, 0)
    }

    fn get(&mut self, key: Key) -> Option<&mut SlotState> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.0 == key.generation).map(|slot| &mut slot.1)
    }

    fn release(&mut self, key: Key) -> SlotState {
        let slot = &mut self.slots[key.index as usize];
        // A generation repeats after four billion uses; no completion is that late.
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(key.index);
        std::mem::replace(&mut slot.1, SlotState::Free)
    }

    pub(super) fn queued(&mut self, key: Key) -> Option<&mut Program> {
        match self.get(key)? {
            SlotState::Queued { program, .. } => Some(program),
            _ => None,
        }
    }

    pub(super) fn in_flight(&mut self, key: Key) -> Option<&mut Program> {
        match self.get(key)? {
            SlotState::InFlight { program, .. } => Some(program),
            _ => None,
        }
    }

    pub(super) fn is_orphan(&mut self, key: Key) -> bool {
        matches!(self.get(key), Some(SlotState::InFlight { orphaned: true, .. }))
    }

    pub(super) fn submitted(&mut self, key: Key) {
        let Some(state) = self.get(key) else { return };
        *state = match std::mem::replace(state, SlotState::Free) {
            SlotState::Queued { program, waker } => SlotState::InFlight { program, waker, orphaned: false },
            other => other,
        };
    }

    /// Queues a program again after its last completion. Returns it instead if its future was dropped.
    pub(super) fn requeue(&mut self, key: Key) -> Option<Box<Program>> {
        let state = self.get(key)?;
        match std::mem::replace(state, SlotState::Free) {
            SlotState::InFlight { program, orphaned: true, .. } => {
                self.release(key);
                Some(program)
            }
            SlotState::InFlight { program, waker, .. } => {
                *state = SlotState::Queued { program, waker };
                None
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Ends a program. Returns the task to wake, or the end itself if the future was dropped.
    pub(super) fn end(&mut self, key: Key, end: impl FnOnce(Box<Program>) -> Ended) -> (Option<Waker>, Option<Ended>) {
        let Some(state) = self.get(key) else { return (None, None) };
        match std::mem::replace(state, SlotState::Free) {
            SlotState::InFlight { program, orphaned: true, .. } => {
                self.release(key);
                (None, Some(end(program)))
            }
            SlotState::InFlight { program, waker, .. } | SlotState::Queued { program, waker } => {
                *state = SlotState::Ended(end(program));
                (waker, None)
            }
            other => {
                *state = other;
                (None, None)
            }
        }
    }

    /// Returns the end of a program, or stores the waker. Returns the waker that is no longer needed.
    pub(super) fn poll(&mut self, key: Key, new: Waker) -> Result<Ended, Option<Waker>> {
        match self.get(key) {
            Some(SlotState::Queued { waker, .. } | SlotState::InFlight { waker, .. }) => Err(waker.replace(new)),
            _ => match self.release(key) {
                SlotState::Ended(ended) => Ok(ended),
                _ => unreachable!("internal: a program was taken twice"),
            },
        }
    }

    pub(super) fn orphan(&mut self, key: Key) -> Orphan {
        match self.get(key) {
            Some(SlotState::InFlight { orphaned, waker, .. }) => {
                *orphaned = true;
                // Dropping a waker may run any code, but wakers of runtimes run none of ours.
                *waker = None;
                Orphan::InFlight
            }
            Some(SlotState::Queued { .. } | SlotState::Ended(_)) => match self.release(key) {
                SlotState::Queued { program, .. }
                | SlotState::Ended(Ended::Finished(program) | Ended::Fallback(program, _)) => {
                    Orphan::Free(Some(program))
                }
                _ => Orphan::Free(None),
            },
            _ => Orphan::Free(None),
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        let busy = |state: &SlotState| matches!(state, SlotState::Queued { .. } | SlotState::InFlight { .. });
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| busy(&slot.1));
        slots.map(|(index, slot)| Key::new(index as u32, slot.0)).collect()
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests;
