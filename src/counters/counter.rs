//! Counters of the whole process: added to without locks, read as a [`Snapshot`].
//!
//! Each thread adds to a [shard] of its own, on cache lines of its own, so that counting costs the hot path a nanosecond
//! whatever the other threads do. Counts only ever grow; take two snapshots and subtract. Gauges go up and down.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::shard;

macro_rules! counters {
    (
        gauges { $($(#[doc = $gauge_doc:literal])+ $gauge:ident => $gauge_field:ident,)+ }
        $($(#[doc = $doc:literal])+ $name:ident => $field:ident,)+
    ) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter { $($name,)+ }

        /// What goes up and down. Sharded like the counters: what one thread has added another may take away.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Gauge { $($gauge,)+ }

        /// The counters and gauges of the process at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[doc = $doc])+ pub $field: u64,)+
            $($(#[doc = $gauge_doc])+ pub $gauge_field: u64,)+
            /// Bytes that wait in queues to be sent. Queues account for what they hold beyond 4 KiB, in steps of 16 KiB.
            pub queued_bytes: u64,
            /// When it was taken, by a clock that starts with the first snapshot; of a difference, the time between the two.
            pub elapsed: Duration,
        }

        const COUNTERS: usize = [$(Counter::$name,)+].len();
        /// Counters, and gauges behind them.
        pub(super) const NUMBERS: usize = COUNTERS + [$(Gauge::$gauge,)+].len();

        impl Snapshot {
            /// Reads all of them. What is added meanwhile may or may not be included.
            pub fn now() -> Self {
                let totals = totals();
                Self {
                    $($field: totals[Counter::$name as usize],)+
                    // One thread's part may have been read before another's was added to.
                    $($gauge_field: (totals[COUNTERS + Gauge::$gauge as usize] as i64).max(0) as u64,)+
                    queued_bytes: QUEUED.load(Ordering::Relaxed) as u64,
                    elapsed: clock(),
                }
            }

            /// What was added since `earlier`, and how long that took; the gauges are those of now.
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(earlier.$field),)+
                    elapsed: self.elapsed.saturating_sub(earlier.elapsed),
                    ..*self
                }
            }

            /// The counters by name, in the order of the fields.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_counters().map(|(name, _, value)| (name, value))
            }

            /// The gauges by name, in the order of the fields.
            pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_gauges().map(|(name, _, value)| (name, value))
            }

            /// Name, description and value.
            pub(crate) fn described_counters(&self) -> impl Iterator<Item = Described> + use<> {
                [$((stringify!($field), concat!($($doc),+), self.$field),)+].into_iter()
            }

            pub(crate) fn described_gauges(&self) -> impl Iterator<Item = Described> + use<> {
                [
                    $((stringify!($gauge_field), concat!($($gauge_doc),+), self.$gauge_field),)+
                    ("queued_bytes", "Bytes that wait in queues to be sent, in steps of 16 KiB.", self.queued_bytes),
                ]
                .into_iter()
            }
        }
    };
}

type Described = (&'static str, &'static str, u64);

/// Bytes that all queues together account for. Shared by all threads, because the queues have a bound in common.
pub(crate) static QUEUED: AtomicUsize = AtomicUsize::new(0);

counters! {
    gauges {
        /// Connections that `http::serve` runs.
        OpenConnections => open_connections,
        /// Requests whose response has not ended yet, as `http::layer::Measure` counts them.
        ActiveRequests => active_requests,
        /// Bytes of pool memory that are leased, by the sizes of their blocks.
        PoolBytes => pool_bytes,
    }

    /// System calls that sent bytes to sockets of ours: `send`, `sendmsg`, `sendfile` and, for copies, `splice`.
    Writes => writes,
    /// Bytes the kernel took from us.
    BytesWritten => bytes_written,
    /// The part of `bytes_written` that went by `sendfile`, without entering this process.
    BytesBySendfile => bytes_by_sendfile,
    /// The part of `bytes_written` that went by ring, together with those of other streams.
    BytesByRing => bytes_by_ring,
    /// Writes by callers that were queued to leave later, together.
    Gathered => gathered,
    /// Bytes that were copied into a queue.
    BytesCopied => bytes_copied,
    /// Bytes that were queued by reference.
    BytesHeld => bytes_held,
    /// FlushCounts of a stream's queue at the end of a turn.
    TurnFlushes => turn_flushes,
    /// The part of `turn_flushes` for which a socket that was full had room again.
    RoomFlushes => room_flushes,
    /// The part of `turn_flushes` that a thread did in the place of a runtime that did not come to it in time, because a task
    /// blocked or computed, or because nothing drove the runtime.
    LateFlushes => late_flushes,
    /// Times that thread has woken up.
    LateLooks => late_looks,
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
    /// System calls that asked a socket for bytes, those included that found none.
    Reads => reads,
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
    /// Connections that a server reset because their peer took nothing of what waited for it, or too little.
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
    /// Requests whose response has ended, in whatever way, as `http::layer::Measure` counts them.
    Requests => requests,
    /// The part of `requests` that was answered with a status of 500 or above.
    ServerErrors => server_errors,
    /// The part of `requests` whose service or body failed.
    ResponsesFailed => responses_failed,
    /// The part of `requests` that the client or the server gave up before the body had ended.
    ResponsesAborted => responses_aborted,
    /// Data frames of measured responses.
    Frames => frames,
    /// Bytes of those frames.
    BodyBytes => body_bytes,
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
    /// Gaps that readers of hubs were told.
    EventGaps => event_gaps,
    /// Ids of readers of hubs, as in `Last-Event-ID`, that were ignored because they can be none.
    EventIdsRefused => event_ids_refused,
    /// Requests that asked a canary for a path and were not heard: not trusted, no token or a wrong one, no such path.
    CanariesRefused => canaries_refused,
    /// Times a canary gave a path up because it did badly.
    BreakerTrips => breaker_trips,
}

impl Snapshot {
    /// `count`, one of the fields, as a rate: of a difference, how many there were in a second; 0 where no time has passed.
    ///
    /// ```
    /// # use millstream::metrics::Snapshot;
    /// let earlier = Snapshot::now();
    /// // Some time later:
    /// let lately = Snapshot::now().since(&earlier);
    /// println!("{:.0} requests a second", lately.per_second(lately.requests));
    /// ```
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.named().chain(self.gauges()) {
            writeln!(f, "{name} {value}")?;
        }
        Ok(())
    }
}

/// Adds `n` to a counter.
#[inline]
pub(crate) fn count(counter: Counter, n: u64) {
    shard::with(|shard, adder| adder.add(&shard.numbers[counter as usize], n));
}

impl Gauge {
    /// Adds `n`; whoever does takes it away later.
    #[inline]
    pub(crate) fn add(self, n: u64) {
        shard::with(|shard, adder| adder.add(&shard.numbers[COUNTERS + self as usize], n));
    }

    #[inline]
    pub(crate) fn take(self, n: u64) {
        self.add(n.wrapping_neg());
    }
}

/// Something that is counted for as long as it lives.
#[derive(Debug)]
pub(crate) struct Present(Gauge);

impl Present {
    pub(crate) fn in_(gauge: Gauge) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.take(1);
    }
}

fn totals() -> [u64; NUMBERS] {
    let mut totals = [0u64; NUMBERS];
    shard::each(|shard| {
        for (total, part) in totals.iter_mut().zip(&shard.numbers) {
            *total = total.wrapping_add(part.load(Ordering::Relaxed));
        }
    });
    totals
}

fn clock() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
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
    fn what_one_thread_adds_to_a_gauge_another_takes_away() {
        let present: Vec<_> = (0..50).map(|_| Present::in_(Gauge::OpenConnections)).collect();
        let with = Snapshot::now();
        assert!(with.open_connections >= 50);
        std::thread::spawn(move || drop(present)).join().unwrap();
        let without = Snapshot::now();
        assert!(without.open_connections <= with.open_connections - 50);
        assert_eq!(without.since(&with).open_connections, without.open_connections, "no difference: it is one of now");
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let lately = Snapshot { requests: 30, elapsed: Duration::from_millis(1500), ..Snapshot::default() };
        assert_eq!(lately.per_second(lately.requests), 20.0);
        assert_eq!(Snapshot::default().per_second(5), 0.0);
    }

    #[test]
    fn the_report_names_every_number() {
        let report = Snapshot::default().to_string();
        assert_eq!(report.lines().count(), NUMBERS + 1);
        assert!(report.contains("bytes_by_sendfile 0") && report.contains("pool_bytes 0"));
    }
}
