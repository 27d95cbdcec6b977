//! The list of all counters and gauges of the process.

macro_rules! names {
    (
        gauges { $($(#[doc = $gauge_doc:literal])+ $gauge:ident => $gauge_field:ident,)+ }
        $($(#[doc = $doc:literal])+ $name:ident => $field:ident,)+
    ) => {
        /// A count since the start of the process, documented as a field of [`Snapshot`](super::Snapshot).
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the fields of Snapshot have them")]
        pub enum Counter { $($name,)+ }

        /// Values that go up and down, documented as fields of [`Snapshot`](super::Snapshot). One thread may subtract what
        /// another thread added.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the fields of Snapshot have them")]
        pub enum Gauge { $($gauge,)+ }

        pub(super) const COUNTERS: usize = [$(Counter::$name,)+].len();
        /// Gauges follow the counters.
        pub(super) const NUMBERS: usize = COUNTERS + [$(Gauge::$gauge,)+].len();
    };
}

/// Calls a macro with all gauges and counters: their documentation, names, and fields of a `Snapshot`.
#[rustfmt::skip] // It would indent the list three times.
macro_rules! for_all { ($call:ident) => { $call! {
    gauges {
        /// Open connections of `server::serve`.
        OpenConnections => open_connections,
        /// Requests whose response has not ended, as counted by `middleware::Measure`.
        ActiveRequests => active_requests,
        /// Bytes of leased pool memory, in whole blocks.
        PoolBytes => pool_bytes,
        /// Streams of `millstream-resumable` in memory, running or ended.
        KeptStreams => kept_streams,
    }

    /// System calls that sent bytes to sockets: `send`, `sendmsg`, `sendfile` and, for copies, `splice`.
    Writes => writes,
    /// Bytes accepted by the kernel.
    BytesWritten => bytes_written,
    /// The part of `bytes_written` sent by `sendfile`, without a copy through this process.
    BytesBySendfile => bytes_by_sendfile,
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
    /// Responses over HTTP/1 that were left with hyper when they waited for a frame, because hyper held bytes of them,
    /// or because a count of its bytes was not certain. They may be taken over later.
    TakeoversRefused => takeovers_refused,
    /// Connections over HTTP/1 that freed hyper's state because they had no request.
    ConnectionsHibernated => connections_hibernated,
    /// Connections that a server reset at once because of its limit of connections, in total or per address.
    ConnectionsRefused => connections_refused,
    /// Connections that the crate `millstream-proxy-protocol` closed: their PROXY headers were malformed, late or
    /// missing, or their peers were not trusted where that is required.
    ProxyHeadersRefused => proxy_headers_refused,
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
    /// Connections that a server ended because they had reached their age.
    ConnectionsAged => connections_aged,
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
    /// Readers of hubs whose streams ended because they had reached their age.
    ReadersAged => readers_aged,
    /// Invalid ids of hub readers, as in `Last-Event-ID`, that were ignored.
    EventIdsRefused => event_ids_refused,
    /// Comments that kept silent event streams alive, sent by hubs, `sse::KeepAlive`, layers and proxies.
    EventComments => event_comments,
    /// Streams of `millstream-resumable` whose producers were started.
    StreamsStarted => streams_started,
    /// Streams that ended because their producers returned `Ok`.
    StreamsCompleted => streams_completed,
    /// Streams that ended because their producers failed, or sent more than a stream may have.
    StreamsFailed => streams_failed,
    /// Streams that were stopped.
    StreamsStopped => streams_stopped,
    /// Streams that were cancelled because they had no readers.
    StreamsAbandoned => streams_abandoned,
    /// Streams that were cancelled because of their age.
    StreamsExpired => streams_expired,
    /// Requests for a canary path that were ignored: peer not trusted, no token or a wrong one, or no such path.
    CanariesRefused => canaries_refused,
    /// Times that a canary stopped using a path because of its errors or latency.
    BreakerTrips => breaker_trips,
}}}
pub(super) use for_all;

for_all!(names);
