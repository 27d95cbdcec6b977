//! Counters of the whole process: added to without locks, read as a [`Snapshot`].
//!
//! Each thread adds to one of a few shards, each on cache lines of its own, so that counting costs the hot path a
//! nanosecond or two whatever the other threads do. Counts only ever grow; take two snapshots and subtract.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident => $field:ident,)+) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($name,)+ }

        /// The counters of the process at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot { $($(#[$doc])+ pub $field: u64,)+ }

        const NAMES: &[&str] = &[$(stringify!($field),)+];

        impl Snapshot {
            /// Reads all counters. Adds that happen meanwhile may or may not be included.
            pub fn now() -> Self {
                Self { $($field: total(Counter::$name),)+ }
            }

            /// What was added since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)+ }
            }

            /// The counters by name, in the order of the fields.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                NAMES.iter().copied().zip([$(self.$field,)+])
            }
        }
    };
}

counters! {
    /// System calls that sent bytes to sockets of ours: `send`, `sendmsg`, `sendfile` and, for copies, `splice`.
    Writes => writes,
    /// Bytes the kernel took from us.
    BytesWritten => bytes_written,
    /// The part of `bytes_written` that went by `sendfile`, without entering this process.
    BytesBySendfile => bytes_by_sendfile,
    /// Writes by callers that were queued to leave later, together.
    Gathered => gathered,
    /// Bytes that were copied into a queue.
    BytesCopied => bytes_copied,
    /// Bytes that were queued by reference.
    BytesHeld => bytes_held,
    /// Flushes of a stream's queue at the end of a turn.
    TurnFlushes => turn_flushes,
    /// Calls for which the socket had less room than was offered.
    PartialWrites => partial_writes,
    /// Calls for which the socket had no room at all.
    WouldBlock => would_block,
    /// Connections accepted.
    Accepted => accepted,
    /// Times accepting paused because the process or the machine was out of descriptors.
    AcceptPauses => accept_pauses,
    /// Bytes that were queued on streams which closed, or whose peer went away, before the bytes could leave.
    BytesLost => bytes_lost,
    /// Leases served from pool memory.
    PoolHits => pool_hits,
    /// Leases served from the heap.
    PoolMisses => pool_misses,
    /// Responses that failed because their file shrank.
    TornFiles => torn_files,
    /// Steps of file bodies that were read ahead on the blocking pool because they were not in the page cache.
    ColdSteps => cold_steps,
    /// Programs of file operations, of one step or more, that ran on the blocking pool.
    PoolPrograms => pool_programs,
    /// Calls of `io_uring_enter`.
    RingEnters => ring_enters,
    /// Entries handed to a ring, those of cancels and time limits included.
    RingSubmissions => ring_submissions,
    /// Completions reaped from a ring. Equal to `ring_submissions` once nothing is in flight.
    RingCompletions => ring_completions,
    /// Completions that nobody was waiting for; always 0, unless the kernel errs.
    RingStrays => ring_strays,
    /// Operations that the kernel refused by ring and did by plain call, which is used from then on.
    RingDemotions => ring_demotions,
    /// Rings that could not be made: operations of their threads go to the blocking pool. The reason is in
    /// `runtime::driver_info`.
    RingsRefused => rings_refused,
    /// Rings that were given up while they were in use, or because their runtime ended.
    RingsClosed => rings_closed,
    /// Programs whose memory was leaked because the kernel never said that it had finished with it.
    RingLeaks => ring_leaks,
    /// Bytes that copies have brought to their targets by sharing the blocks of a file.
    CopiedByClone => copied_by_clone,
    /// Bytes that copies have brought to their targets by `copy_file_range`.
    CopiedByRange => copied_by_range,
    /// Bytes that copies have brought to their targets by `sendfile`.
    CopiedBySendfile => copied_by_sendfile,
    /// Bytes that copies have brought to their targets by `splice`.
    CopiedBySplice => copied_by_splice,
    /// Bytes that copies have brought to their targets by reading and writing them.
    CopiedByPump => copied_by_pump,
    /// Ways that the kernel refused to a copy, which went on by another. Clones are left out: few file systems know them.
    CopyDemotions => copy_demotions,
    /// Pipes that were made for copies; most copies use one that was made before.
    PipesMade => pipes_made,
    /// Pipes of copies that were closed, with bytes in them or because enough others were idle.
    PipesClosed => pipes_closed,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.named() {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}

const SHARDS: usize = 16;

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shard([AtomicU64; NAMES.len()]);

static COUNTS: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; NAMES.len()]) }; SHARDS];

/// Adds `n` to a counter.
#[inline]
pub(crate) fn count(counter: Counter, n: u64) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    // Relaxed: counters order nothing.
    let shard = MINE.try_with(|mine| *mine).unwrap_or(0);
    COUNTS[shard].0[counter as usize].fetch_add(n, Ordering::Relaxed);
}

fn total(counter: Counter) -> u64 {
    COUNTS.iter().map(|shard| shard.0[counter as usize].load(Ordering::Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_add_is_summed() {
        let before = Snapshot::now();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| count(Counter::AcceptPauses, 2)));
            }
        });
        assert_eq!(Snapshot::now().since(&before).accept_pauses, 4000);
    }

    #[test]
    fn the_report_names_every_counter() {
        let report = Snapshot::default().to_string();
        assert_eq!(report.lines().count(), NAMES.len());
        assert!(report.contains("bytes_by_sendfile 0"));
    }
}
