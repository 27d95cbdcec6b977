//! Process-wide counters and gauges. Each thread updates its own [shard], in about a nanosecond under any load.

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
        /// A count since the start of the process, documented as a field of [`Snapshot`].
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the fields of Snapshot have them")]
        pub enum Counter { $($name,)+ }

        /// Values that go up and down. One thread may subtract what another thread added.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Gauge { $($gauge,)+ }

        /// Counters and gauges of the process at one moment. Counters only grow: subtract two snapshots to get a rate.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[doc = $doc])+ pub $field: u64,)+
            $($(#[doc = $gauge_doc])+ pub $gauge_field: u64,)+
            /// Bytes that wait in send queues. A queue accounts for what it holds beyond 4 KiB, in steps of 16 KiB.
            pub queued_bytes: u64,
            /// Time since the first snapshot; in a difference, the time between the two snapshots.
            pub elapsed: Duration,
        }

        const COUNTERS: usize = [$(Counter::$name,)+].len();
        /// Gauges follow the counters.
        pub(super) const NUMBERS: usize = COUNTERS + [$(Gauge::$gauge,)+].len();

        impl Snapshot {
            /// Reads all counters and gauges. Concurrent updates may or may not be included.
            pub fn now() -> Self {
                let totals = totals();
                Self {
                    $($field: totals[Counter::$name as usize],)+
                    // Negative if a subtraction is read without its addition on another thread.
                    $($gauge_field: (totals[COUNTERS + Gauge::$gauge as usize] as i64).max(0) as u64,)+
                    queued_bytes: QUEUED.load(Ordering::Relaxed) as u64,
                    elapsed: clock(),
                }
            }

            /// Returns the counts added since `earlier` and the time between. Gauges keep their current values.
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(earlier.$field),)+
                    elapsed: self.elapsed.saturating_sub(earlier.elapsed),
                    ..*self
                }
            }

            /// Returns the counters by name, in field order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_counters().map(|(name, _, value)| (name, value))
            }

            /// Returns the gauges by name, in field order.
            pub fn gauges(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.described_gauges().map(|(name, _, value)| (name, value))
            }

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

/// Bytes accounted by all queues. Shared by all threads, because the queues share one budget.
pub(crate) static QUEUED: AtomicUsize = AtomicUsize::new(0);

counters! {
    gauges {
        /// Open connections of `server::serve`.
        OpenConnections => open_connections,
        /// Requests whose response has not ended, as counted by `middleware::Measure`.
        ActiveRequests => active_requests,
        /// Bytes of leased pool memory, in whole blocks.
        PoolBytes => pool_bytes,
    }

    /// System calls that sent bytes to sockets: `send`, `sendmsg`, `sendfile` and, for copies, `splice`.
    Writes => writes,
    /// Bytes accepted by the kernel.
    BytesWritten => bytes_written,
    /// The part of `bytes_written` sent by `sendfile`, without a copy through this process.
    BytesBySendfile => bytes_by_sendfile,
    /// The part of `bytes_written` sent through io_uring, in batches with other streams.
    BytesByRing => bytes_by_ring,
    /// Writes that were queued to be sent later in one call.
    Gathered => gathered,
    /// Bytes copied into send queues.
    BytesCopied => bytes_copied,
    /// Bytes queued by reference.
    BytesHeld => bytes_held,
    /// Flushes of a stream's queue at the end of a poll turn.
    TurnFlushes => turn_flushes,
    /// The part of `turn_flushes` that ran because a full socket became writable.
    RoomFlushes => room_flushes,
    /// The part of `turn_flushes` done by the backstop thread because the runtime was late or not driven.
    LateFlushes => late_flushes,
    /// Wake-ups of the backstop thread.
    LateLooks => late_looks,
    /// Writes that were sent at once, together with the bytes queued before them.
    ThroughFlushes => through_flushes,
    /// Flushes of queued bytes that the stream's owner waited for, by `flushed`.
    AskedFlushes => asked_flushes,
    /// Flushes of queued bytes because the stream's owner shut down the sending side.
    ShutdownFlushes => shutdown_flushes,
    /// Flushes of queued bytes because the stream was dropped.
    DroppedFlushes => dropped_flushes,
    /// Flushes of queued bytes because a copy sends after them.
    CopyFlushes => copy_flushes,
    /// Sends through io_uring, in batches with other streams. Part of `writes`.
    RingSends => ring_sends,
    /// Zero-copy sends for which the kernel reported a copy. The stream uses plain sends from then on.
    ZeroCopyCopied => zero_copy_copied,
    /// Calls for which the socket accepted less than was offered.
    PartialWrites => partial_writes,
    /// Calls for which the socket accepted nothing.
    WouldBlock => would_block,
    /// System calls that read from sockets, including those that found no bytes.
    Reads => reads,
    /// Writes of `codec::Writer`s that their inner writers accepted, in whole or in part.
    InnerWrites => inner_writes,
    /// `codec::Writer`s that switched to a flat buffer: their inner writer takes one slice or one record at a time.
    FlatWriters => flat_writers,
    /// Connections accepted.
    Accepted => accepted,
    /// Times that accepting paused because the process or the machine was out of descriptors.
    AcceptPauses => accept_pauses,
    /// Responses over HTTP/1 whose bodies a server took over from hyper.
    ResponsesTakenOver => responses_taken_over,
    /// Responses over HTTP/1 that were left with hyper when they waited for a frame, because hyper held bytes of them, or
    /// because a count of its bytes was not certain. They may be taken over later.
    TakeoversRefused => takeovers_refused,
    /// Connections over HTTP/1 that freed hyper's state because they had no request.
    ConnectionsHibernated => connections_hibernated,
    /// Connections that a server reset at once because of its limit of connections, in total or per address.
    ConnectionsRefused => connections_refused,
    /// Connections that a server ended because the head of a request did not arrive in time.
    HeadsTooSlow => heads_too_slow,
    /// Requests that a server, not HTTP itself, refused because of too many header fields or too long a path.
    HeadsTooLarge => heads_too_large,
    /// Request bodies that made no progress while the service waited for them.
    BodiesTooSlow => bodies_too_slow,
    /// Request bodies larger than allowed, by their declared or their actual length.
    BodiesTooLarge => bodies_too_large,
    /// Connections that a server reset because the peer read nothing, or too slowly.
    WritesStalled => writes_stalled,
    /// Connections that a server ended because they were idle for too long.
    IdleEnded => idle_ended,
    /// Responses after which a server closed the connection because too many bytes were queued.
    ClosedUnderPressure => closed_under_pressure,
    /// Requests that a server answered with 503 because too many bytes were queued.
    RequestsShed => requests_shed,
    /// Times at which a server stopped reading an HTTP/2 connection because services did not read the request bodies.
    ReadsPaused => reads_paused,
    /// Full TLS handshakes.
    TlsHandshakes => tls_handshakes,
    /// TLS handshakes that resumed a session by a ticket.
    TlsResumed => tls_resumed,
    /// TLS connections whose keys were handed to the kernel, which encrypts what is sent on them.
    TlsByKernel => tls_by_kernel,
    /// TLS handshakes that failed, timed out or were not TLS, except clients that left without a byte.
    TlsFailures => tls_failures,
    /// Certificates that were reloaded and put into use.
    TlsReloads => tls_reloads,
    /// Reloaded certificates that could not be used. The old ones stay in use.
    TlsReloadsRefused => tls_reloads_refused,
    /// Requests whose response has ended, with any outcome, as counted by `middleware::Measure`.
    Requests => requests,
    /// The part of `requests` answered with a status of 500 or above.
    ServerErrors => server_errors,
    /// The part of `requests` whose service or body failed.
    ResponsesFailed => responses_failed,
    /// The part of `requests` that the client or the server gave up before the end of the body.
    ResponsesAborted => responses_aborted,
    /// Data frames of measured responses.
    Frames => frames,
    /// Body bytes of measured responses.
    BodyBytes => body_bytes,
    /// Queued bytes that were lost because the stream closed or the peer went away.
    BytesLost => bytes_lost,
    /// Leases served from pool memory.
    PoolHits => pool_hits,
    /// Leases served from the heap.
    PoolMisses => pool_misses,
    /// Responses that failed because their file shrank.
    TornFiles => torn_files,
    /// Steps of file bodies that were read ahead on the blocking pool because they were not in the page cache.
    ColdSteps => cold_steps,
    /// Programs of file operations, of one or more steps, that ran on the blocking pool.
    PoolPrograms => pool_programs,
    /// Calls of `io_uring_enter`.
    RingEnters => ring_enters,
    /// Entries submitted to a ring, including those of cancels and timeouts.
    RingSubmissions => ring_submissions,
    /// Completions reaped from a ring. Equal to `ring_submissions` once nothing is in flight.
    RingCompletions => ring_completions,
    /// Calls that fetched completions for which the completion queue had no room.
    RingOverflows => ring_overflows,
    /// Buffers that the kernel filled for connections that receive through io_uring.
    ReceiveBuffers => receive_buffers,
    /// Receive buffers returned to the kernel. Equal to `receive_buffers` once everything was read.
    ReceiveBuffersReturned => receive_buffers_returned,
    /// Completions that no operation waited for. Always 0, unless the kernel is at fault.
    RingStrays => ring_strays,
    /// Operations that the kernel refused on a ring but did by plain call. Later ones use the plain call.
    RingDemotions => ring_demotions,
    /// Rings that could not be set up; see `runtime::driver_info`. Their threads use the blocking pool.
    RingsRefused => rings_refused,
    /// Rings that were given up while in use, or closed because their runtime ended.
    RingsClosed => rings_closed,
    /// Programs whose memory was leaked because the kernel did not report its release.
    RingLeaks => ring_leaks,
    /// Bytes copied by sharing the blocks of a file.
    CopiedByClone => copied_by_clone,
    /// Bytes copied by `copy_file_range`.
    CopiedByRange => copied_by_range,
    /// Bytes copied by `sendfile`.
    CopiedBySendfile => copied_by_sendfile,
    /// Bytes copied by `splice`.
    CopiedBySplice => copied_by_splice,
    /// Bytes copied by reading and writing.
    CopiedByPump => copied_by_pump,
    /// Copy strategies, other than clones, that the kernel refused. The copy used another.
    CopyDemotions => copy_demotions,
    /// Pipes created for copies. Most copies reuse a pipe.
    PipesMade => pipes_made,
    /// Pipes of copies that were closed, because they held bytes or because enough others were idle.
    PipesClosed => pipes_closed,
    /// Events sent by hubs.
    EventsSent => events_sent,
    /// Events of hubs handed to connections, counted once for each reader.
    EventsDelivered => events_delivered,
    /// Events of hubs that readers missed because they were slow, counted once for each reader.
    EventsDropped => events_dropped,
    /// Gaps reported to readers of hubs.
    EventGaps => event_gaps,
    /// Invalid ids of hub readers, as in `Last-Event-ID`, that were ignored.
    EventIdsRefused => event_ids_refused,
    /// Requests for a canary path that were ignored: peer not trusted, no token or a wrong one, or no such path.
    CanariesRefused => canaries_refused,
    /// Times that a canary stopped using a path because of its errors or latency.
    BreakerTrips => breaker_trips,
}

impl Snapshot {
    /// Returns `count`, a field of a difference by [`since`](Self::since), as a rate per second, or 0 without time.
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
pub fn count(counter: Counter, n: u64) {
    shard::with(|shard, adder| adder.add(&shard.numbers[counter as usize], n));
}

impl Gauge {
    /// Adds `n`. The caller subtracts it later.
    #[inline]
    pub(crate) fn add(self, n: u64) {
        shard::with(|shard, adder| adder.add(&shard.numbers[COUNTERS + self as usize], n));
    }

    #[inline]
    pub(crate) fn take(self, n: u64) {
        self.add(n.wrapping_neg());
    }
}

/// Counts one object in a gauge until it is dropped.
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
    fn counts_of_all_threads_are_summed() {
        let before = Snapshot::now();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..100).for_each(|_| count(Counter::AcceptPauses, 2)));
            }
        });
        assert_eq!(Snapshot::now().since(&before).accept_pauses, 4000);
    }

    #[test]
    fn one_thread_may_subtract_from_a_gauge_what_another_added() {
        let present: Vec<_> = (0..50).map(|_| Present::in_(Gauge::OpenConnections)).collect();
        let with = Snapshot::now();
        assert!(with.open_connections >= 50);
        std::thread::spawn(move || drop(present)).join().unwrap();
        let without = Snapshot::now();
        assert!(without.open_connections <= with.open_connections - 50);
        assert_eq!(without.since(&with).open_connections, without.open_connections, "a gauge keeps its current value");
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
