//! Prediction of writes that are the only ones of their turns, and so need not wait for others.
//!
//! Waiting costs two checks by the flusher, each with a poll of the runtime's driver, and saves a call only if another
//! write follows. A stream whose last turns had one write each gets credit: that many writes leave at once, before one
//! waits again to see whether the pattern holds. Each turn with one write doubles the credit; another write in the turn
//! takes it.

use std::time::{Duration, Instant};

/// Number of successive turns with one write before any leaves at once.
const STREAK_MIN: u32 = 2;

/// Number of successive turns that count at most. Of `2^STREAK_MAX` writes one waits.
const STREAK_MAX: u32 = 6;

/// A write that follows another sooner counts as one of the same turn. Turns of a single busy stream may be shorter: its
/// writes gather, as without credit. Writes of one turn may be further apart, if much is computed between them: these
/// leave one by one until the credit is spent.
const TURN_MIN: Duration = Duration::from_micros(20);

#[derive(Debug, Default)]
pub(super) struct SingleWrites {
    /// Number of successive flushes at the end of a turn that sent one write.
    streak: u32,
    /// Number of writes that may leave at once.
    credit: u32,
    /// The last write that left at once while there was credit.
    last: Option<Instant>,
}

impl SingleWrites {
    /// Records a flush at the end of a turn, of `writes` gathered writes.
    pub(super) fn flushed(&mut self, writes: u64) {
        self.streak = if writes == 1 { (self.streak + 1).min(STREAK_MAX) } else { 0 };
        self.credit = if self.streak >= STREAK_MIN { (1 << self.streak) - 1 } else { 0 };
    }

    #[inline]
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Returns whether a write leaves at once. An answer always does.
    #[inline]
    pub(super) fn leaves_at_once(&mut self, is_answer: bool) -> bool {
        if self.credit == 0 { is_answer } else { self.spend(is_answer, Instant::now()) }
    }

    fn spend(&mut self, is_answer: bool, now: Instant) -> bool {
        let follows = self.last.replace(now).is_some_and(|last| now.duration_since(last) < TURN_MIN);
        if is_answer {
            return true;
        }
        if follows {
            *self = Self::default();
            return false;
        }
        self.credit -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(1);

    /// Writes once in each of `turns` turns. Returns how many left at once.
    fn single(writes: &mut SingleWrites, now: &mut Instant, turns: u32) -> u32 {
        let mut at_once = 0;
        for _ in 0..turns {
            *now += TURN;
            match writes.has_credit() && writes.spend(false, *now) {
                true => at_once += 1,
                false => writes.flushed(1),
            }
        }
        at_once
    }

    #[test]
    fn of_turns_with_one_write_each_few_wait() {
        let (mut writes, mut now) = (SingleWrites::default(), Instant::now());
        assert_eq!(single(&mut writes, &mut now, 2), 0, "no pattern yet");
        assert_eq!(single(&mut writes, &mut now, 4), 3);
        assert_eq!(single(&mut writes, &mut now, 8 + 16 + 32 + 64), 7 + 15 + 31 + 63);
        assert_eq!(single(&mut writes, &mut now, 640), 630);
    }

    #[test]
    fn another_write_in_a_turn_takes_the_credit() {
        let (mut writes, mut now) = (SingleWrites::default(), Instant::now());
        single(&mut writes, &mut now, 6);
        now += TURN;
        assert!(writes.spend(false, now));
        assert!(!writes.spend(false, now + TURN_MIN / 2), "it gathers with those that follow");
        assert!(!writes.has_credit());
        writes.flushed(1);
        assert!(!writes.has_credit(), "two turns are needed again");
        single(&mut writes, &mut now, 6);
        writes.flushed(2);
        assert!(!writes.has_credit(), "a write that waited was not alone");
    }

    #[test]
    fn an_answer_leaves_at_once_and_costs_nothing() {
        let (mut writes, mut now) = (SingleWrites::default(), Instant::now());
        assert!(writes.leaves_at_once(true) && !writes.leaves_at_once(false));
        single(&mut writes, &mut now, 2);
        now += TURN;
        let credit = writes.credit;
        assert!(writes.spend(true, now));
        assert_eq!(writes.credit, credit);
        assert!(!writes.spend(false, now), "the write behind an answer gathers");
    }
}
