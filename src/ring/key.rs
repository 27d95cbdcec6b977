//! Keys of completions, in the 64 bits that the kernel returns.
//!
//! ```text
//!  63 ......... 32  31      30 ...... 9  8      7 .. 0
//!  generation       timer   index        limit  step
//! ```

/// One use of a slot in the table of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(super) index: u32,
    pub(super) generation: u32,
}

const STEP_BITS: u32 = 8;
const LIMIT_BIT: u64 = 1 << STEP_BITS;
const INDEX_BITS: u32 = 22;
/// Marks the timer, the only entry without a slot.
const TIMER: u64 = 1 << 31;
/// The step that, combined with the limit bit, marks a cancel.
const CANCEL_STEP: u64 = (1 << STEP_BITS) - 1;
pub(super) const STEPS_MAX: usize = CANCEL_STEP as usize;
pub(super) const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;

/// Origin of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// A step of a program, or its time limit.
    Step {
        key: Key,
        step: usize,
        is_limit: bool,
    },
    Cancel(Key),
    /// The timer that repeats cancels.
    Timer,
}

impl Key {
    pub(super) fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index) << (STEP_BITS + 1)
    }
}

impl About {
    pub(super) fn user_data(self) -> u64 {
        match self {
            Self::Step { key, step, is_limit } => {
                debug_assert!(step < STEPS_MAX);
                key.bits() | if is_limit { LIMIT_BIT } else { 0 } | step as u64
            }
            Self::Cancel(key) => key.bits() | LIMIT_BIT | CANCEL_STEP,
            Self::Timer => TIMER,
        }
    }

    pub(super) fn parse(user_data: u64) -> Self {
        let key = Key::new((user_data >> (STEP_BITS + 1)) as u32 & INDEX_MAX, (user_data >> 32) as u32);
        let step = user_data & (LIMIT_BIT - 1);
        let is_limit = user_data & LIMIT_BIT != 0;
        match step {
            _ if user_data & TIMER != 0 => Self::Timer,
            CANCEL_STEP if is_limit => Self::Cancel(key),
            _ => Self::Step { key, step: step as usize, is_limit },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_round_trip() {
        for key in [Key::new(0, 0), Key::new(INDEX_MAX, u32::MAX), Key::new(5, 7)] {
            let steps = [(0, false), (STEPS_MAX - 1, true), (7, false), (1, false), (2, false)];
            let steps = steps.map(|(step, is_limit)| About::Step { key, step, is_limit });
            for about in steps.into_iter().chain([About::Cancel(key), About::Timer]) {
                assert_eq!(About::parse(about.user_data()), about);
            }
        }
    }
}
