//! Samples of a sliding window, in slots of time and in shards that threads do not share. The first thread that finds a
//! slot outdated empties it. Concurrent samples of the shard may be lost or counted in the wrong slot.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const SLOTS: usize = 8;
/// Two buckets to an octave, from 64 µs to 50 s. The last has no upper bound.
const BUCKETS: usize = 40;
const FIRST_BUCKET: Duration = Duration::from_micros(64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) answered: u64,
    pub(super) slow: u64,
    pub(super) failed: u64,
}

struct Slot {
    /// Generation and number of the slot; 0 for none.
    tag: AtomicU64,
    answered: AtomicU32,
    slow: AtomicU32,
    failed: AtomicU32,
    buckets: [AtomicU32; BUCKETS],
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shard([Slot; SLOTS]);

impl Shard {
    fn new() -> Self {
        let slot = || Slot {
            tag: AtomicU64::new(0),
            answered: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        };
        Self(std::array::from_fn(|_| slot()))
    }
}

pub(super) struct Window {
    slot_nanos: AtomicU64,
    shards: Box<[Shard]>,
}

impl Window {
    pub(super) fn new(window: Duration, shards: usize) -> Self {
        let shards = (0..shards.max(1)).map(|_| Shard::new()).collect();
        Self { slot_nanos: AtomicU64::new(slot_nanos(window)), shards }
    }

    /// Changes the length. Slots get other numbers, so the caller begins a generation.
    pub(super) fn set_length(&self, window: Duration) {
        self.slot_nanos.store(slot_nanos(window), Ordering::Relaxed);
    }

    fn number(&self, now: Duration) -> u64 {
        (super::nanos(now) / self.slot_nanos.load(Ordering::Relaxed)) & ((1 << 40) - 1)
    }

    /// Returns the slot of `now`, or `None` if the window has moved on.
    fn slot(&self, generation: u32, now: Duration, shard: usize) -> Option<&Slot> {
        let number = self.number(now);
        let slot = &self.shards[shard % self.shards.len()].0[number as usize % SLOTS];
        let tag = tag(generation, number);
        let found = slot.tag.load(Ordering::Relaxed);
        if found != tag {
            if found > tag && found >> 40 == tag >> 40 {
                return None;
            }
            if slot.tag.compare_exchange(found, tag, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                for count in [&slot.answered, &slot.slow, &slot.failed].into_iter().chain(&slot.buckets) {
                    count.store(0, Ordering::Relaxed);
                }
            }
        }
        Some(slot)
    }

    /// Counts a response, and returns the count of the slot in this shard.
    pub(super) fn answered(&self, generation: u32, latency: Duration, slow: bool, now: Duration, shard: usize) -> u32 {
        let Some(slot) = self.slot(generation, now, shard) else { return 1 };
        slot.buckets[bucket(latency)].fetch_add(1, Ordering::Relaxed);
        if slow {
            slot.slow.fetch_add(1, Ordering::Relaxed);
        }
        slot.answered.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    pub(super) fn failed(&self, generation: u32, now: Duration, shard: usize) {
        if let Some(slot) = self.slot(generation, now, shard) {
            slot.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn slots(&self, generation: u32, now: Duration) -> impl Iterator<Item = &Slot> {
        let last = tag(generation, self.number(now));
        let first = tag(generation, self.number(now).saturating_sub(SLOTS as u64 - 1));
        let all = self.shards.iter().flat_map(|shard| &shard.0);
        all.filter(move |slot| (first..=last).contains(&slot.tag.load(Ordering::Relaxed)))
    }

    pub(super) fn sums(&self, generation: u32, now: Duration) -> Sums {
        let mut sums = Sums::default();
        for slot in self.slots(generation, now) {
            sums.answered += u64::from(slot.answered.load(Ordering::Relaxed));
            sums.slow += u64::from(slot.slow.load(Ordering::Relaxed));
            sums.failed += u64::from(slot.failed.load(Ordering::Relaxed));
        }
        sums
    }

    /// Returns the latency that the share `q` of the responses does not exceed, rounded up to the bound of its bucket.
    pub(super) fn quantile(&self, generation: u32, now: Duration, q: f64) -> Option<Duration> {
        let mut counts = [0u64; BUCKETS];
        for slot in self.slots(generation, now) {
            for (sum, count) in counts.iter_mut().zip(&slot.buckets) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
        let total: u64 = counts.iter().sum();
        let rank = ((total as f64 * q).ceil() as u64).max(1);
        let mut below = 0;
        let at = counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(bound(at))
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("slot_nanos", &self.slot_nanos).finish_non_exhaustive()
    }
}

fn slot_nanos(window: Duration) -> u64 {
    super::nanos(window / SLOTS as u32).max(1)
}

/// 24 bits of generation, never 0, and 40 bits of slot number.
fn tag(generation: u32, number: u64) -> u64 {
    u64::from(generation % 0xff_ffff + 1) << 40 | number
}

fn bucket(latency: Duration) -> usize {
    let units = (latency.as_nanos() / FIRST_BUCKET.as_nanos()).min(u128::from(u32::MAX)) as u32;
    let Some(octave) = units.checked_ilog2() else { return 0 };
    let half = if octave == 0 { 0 } else { units >> (octave - 1) & 1 };
    (1 + 2 * octave as usize + half as usize).min(BUCKETS - 1)
}

/// Upper bound of a bucket, exclusive.
fn bound(bucket: usize) -> Duration {
    let Some(at) = bucket.checked_sub(1) else { return FIRST_BUCKET };
    let octave = FIRST_BUCKET * (1 << (at / 2));
    if at < 2 || at % 2 == 1 { octave * 2 } else { octave * 3 / 2 }
}

#[cfg(test)]
mod tests;
