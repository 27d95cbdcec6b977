//! Counters of the whole process: added to without locks, read as a [`Snapshot`].
//!
//! Each thread adds to a shard of its own, on cache lines of its own, so that counting costs the hot path a nanosecond
//! whatever the other threads do. Counts only ever grow; take two snapshots and subtract.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// The part of `turn_flushes` for which a socket that was full had room again.
    RoomFlushes => room_flushes,
    /// Writes that went through at once, with what waited before them.
    ThroughFlushes => through_flushes,
    /// Sends of what had gathered because the stream's owner waited for it, by `flushed`.
    AskedFlushes => asked_flushes,
    /// Sends of what had gathered because the stream's owner ended the sending side.
    ShutdownFlushes => shutdown_flushes,
    /// Sends of what had gathered because the stream was dropped.
    DroppedFlushes => dropped_flushes,
    /// Sends of what had gathered because a copy sends behind it.
    CopyFlushes => copy_flushes,
    /// Sends that went by ring, together with those of other streams. Part of `writes`.
    RingSends => ring_sends,
    /// Zero-copy sends that the kernel reports to have copied after all; the stream sends plainly from then on.
    ZeroCopyCopied => zero_copy_copied,
    /// Calls for which the socket had less room than was offered.
    PartialWrites => partial_writes,
    /// Calls for which the socket had no room at all.
    WouldBlock => would_block,
    /// Writes of `vectored::Writer`s that their inner writers took, wholly or in part.
    InnerWrites => inner_writes,
    /// `vectored::Writer`s that went over to a flat buffer, because their inner writer takes one piece, or one record, at
    /// a time.
    FlatWriters => flat_writers,
    /// Connections accepted.
    Accepted => accepted,
    /// Times accepting paused because the process or the machine was out of descriptors.
    AcceptPauses => accept_pauses,
    /// Connections that a server reset at once, because it had as many as it may have, or as one address may.
    ConnectionsRefused => connections_refused,
    /// Connections that a server ended because the head of a request did not come in time.
    HeadsTooSlow => heads_too_slow,
    /// Requests that a server refused because their head was too long: too many fields or too long a path. What HTTP itself
    /// refuses is not counted.
    HeadsTooLarge => heads_too_large,
    /// Request bodies that made no progress while the service waited for them.
    BodiesTooSlow => bodies_too_slow,
    /// Request bodies that were larger than allowed, by what the request announced or by what came.
    BodiesTooLarge => bodies_too_large,
    /// Connections that a server reset because their peer took nothing of what was sent to it. Those that the kernel
    /// gave up first are not counted.
    WritesStalled => writes_stalled,
    /// Connections that a server ended because they had no request for too long.
    IdleEnded => idle_ended,
    /// Answers after which a server closed the connection because much waited to be sent.
    ClosedUnderPressure => closed_under_pressure,
    /// Requests that a server answered 503 because too much waited to be sent.
    RequestsShed => requests_shed,
    /// TLS handshakes that were done in full.
    TlsHandshakes => tls_handshakes,
    /// Those that resumed a session by a ticket.
    TlsResumed => tls_resumed,
    /// Those that failed, took too long, or were none: what came was no TLS. Clients that left without a byte are left out.
    TlsFailures => tls_failures,
    /// Certificates that were read again and are in use.
    TlsReloads => tls_reloads,
    /// Those that were read again and could not be used: the old one stays.
    TlsReloadsRefused => tls_reloads_refused,
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
    /// Calls that had to fetch completions for which their queue had no room.
    RingOverflows => ring_overflows,
    /// Buffers that the kernel has filled for connections that receive by ring.
    ReceiveBuffers => receive_buffers,
    /// Those that it was given back. Equal to `receive_buffers` once everything was read.
    ReceiveBuffersReturned => receive_buffers_returned,
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
    /// Events sent by hubs.
    EventsSent => events_sent,
    /// Events of hubs handed to connections, counted for each reader.
    EventsDelivered => events_delivered,
    /// Events of hubs that readers missed because they were slow, counted for each reader.
    EventsDropped => events_dropped,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.named() {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}

/// What one thread has added. Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Shard([AtomicU64; NAMES.len()]);

impl Shard {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }
}

/// For threads that are ending.
static LAST: Shard = Shard::new();

/// All shards there are, and those whose threads have ended: the next thread goes on with their counts.
struct Shards {
    all: Vec<&'static Shard>,
    free: Vec<&'static Shard>,
}

fn shards() -> MutexGuard<'static, Shards> {
    static SHARDS: Mutex<Shards> = Mutex::new(Shards { all: Vec::new(), free: Vec::new() });
    SHARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard that only this thread adds to.
struct Mine(&'static Shard);

impl Mine {
    fn take() -> Self {
        let mut shards = shards();
        if let Some(shard) = shards.free.pop() {
            return Self(shard);
        }
        // There are as many as there have been threads at a time.
        let shard: &'static Shard = Box::leak(Box::new(Shard::new()));
        shards.all.push(shard);
        Self(shard)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        shards().free.push(self.0);
    }
}

/// Adds `n` to a counter.
#[inline]
pub(crate) fn count(counter: Counter, n: u64) {
    thread_local! {
        static MINE: Mine = Mine::take();
    }
    let mine = MINE.try_with(|mine| {
        let count = &mine.0.0[counter as usize];
        // One writer, so no read-modify-write, which costs ten times as much. Relaxed: counters order nothing.
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    });
    if mine.is_err() {
        LAST.0[counter as usize].fetch_add(n, Ordering::Relaxed);
    }
}

fn total(counter: Counter) -> u64 {
    let shards = shards();
    let all = shards.all.iter().copied().chain([&LAST]);
    all.map(|shard| shard.0[counter as usize].load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
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
    fn shards_share_no_cache_line() {
        assert_eq!((align_of::<Shard>(), size_of::<Shard>() % 128), (128, 0));
    }

    #[test]
    fn threads_that_come_and_go_share_their_shards() {
        for _ in 0..100 {
            std::thread::spawn(|| count(Counter::AcceptPauses, 0)).join().unwrap();
        }
        // Other tests run on threads of their own.
        assert!(shards().all.len() < 80);
    }

    #[test]
    fn the_report_names_every_counter() {
        let report = Snapshot::default().to_string();
        assert_eq!(report.lines().count(), NAMES.len());
        assert!(report.contains("bytes_by_sendfile 0"));
    }
}
