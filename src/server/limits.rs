//! Limits of a server.

mod hook;
mod pressure;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::buf::queue::Queue;
use crate::server::Trusted;
use crate::spread::{Draws, Spread};

pub(super) use hook::Hook;
use hook::{OnRefusal, Streams};
pub(super) use pressure::Pressure;

/// Limits of a [server](super::serve()). All are set by default: the values in the docs of the methods are the
/// defaults.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::server::Limits;
///
/// let limits = Limits::default()
///     .keep_alive(Duration::from_secs(15))
///     .streaming_requests(|head| head.uri.path().starts_with("/upload/"));
/// # drop(limits);
/// ```
///
/// Connections are checked a few times a second: a time limit takes effect up to a second late, and never early.
/// [`Duration::MAX`] is no limit.
#[derive(Clone, Debug)]
#[must_use = "limits do nothing unless given to a server"]
pub struct Limits {
    pub(super) head_time: Duration,
    pub(super) body_progress: Duration,
    pub(super) body_rate: u64,
    pub(super) write_stall: Duration,
    pub(super) write_rate: u64,
    pub(super) keep_alive: Duration,
    pub(super) age: Option<(Draws, Duration)>,
    pub(super) drain_spread: Duration,
    pub(super) half_close: Duration,
    pub(super) half_close_events: bool,
    pub(super) ping_interval: Duration,
    pub(super) ping_timeout: Duration,
    pub(super) head: usize,
    pub(super) uri: usize,
    pub(super) fields: usize,
    pub(super) body: u64,
    pub(super) streaming: Option<Streams>,
    pub(super) on_refusal: Option<OnRefusal>,
    pub(super) retry_after: Draws,
    pub(super) connections: usize,
    pub(super) per_address: usize,
    pub(super) exempt: Trusted,
    pub(super) streams: u32,
    pub(super) stream_window: u32,
    pub(super) connection_window: u32,
    pub(super) adaptive_window: bool,
    pub(super) buffer: usize,
    pub(super) budget: usize,
    pub(super) trim_heap: bool,
}

/// Largest HTTP/2 window, [RFC 9113 §6.9.1](https://www.rfc-editor.org/rfc/rfc9113#section-6.9.1).
const WINDOW_MAX: u32 = i32::MAX as u32;
/// Fields for which HTTP/1 reserves space before it parses a head. `http::HeaderMap` holds few more.
const FIELDS_MAX: usize = 16 << 10;

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(10),
            body_progress: Duration::from_secs(30),
            body_rate: 1 << 10,
            write_stall: Duration::from_secs(30),
            write_rate: 8 << 10,
            keep_alive: Duration::from_secs(75),
            age: None,
            drain_spread: Duration::MAX,
            half_close: Duration::from_secs(1),
            half_close_events: false,
            ping_interval: Duration::from_secs(60),
            ping_timeout: Duration::from_secs(20),
            head: 16 << 10,
            uri: 8 << 10,
            fields: 100,
            body: u64::MAX,
            streaming: None,
            on_refusal: None,
            retry_after: Draws::new(Spread::RETURN),
            connections: 10_000,
            per_address: 1000,
            exempt: Trusted::private(),
            streams: 100,
            stream_window: 3 << 20,
            connection_window: 4 << 20,
            adaptive_window: false,
            buffer: 64 << 10,
            budget: Queue::ALL_MAX,
            trim_heap: true,
        }
    }
}

impl Limits {
    /// Sets the time for the head of a request, from its first byte to its last, for the first request from connecting:
    /// 10 s. An HTTP/1 client that has begun is answered with 408, then the connection is closed.
    ///
    /// Bytes of the next head that arrive with a request do not begin it, nor does an empty line between requests ([RFC
    /// 9112 §2.2](https://www.rfc-editor.org/rfc/rfc9112#section-2.2)): the client is idle until its next byte.
    pub fn head_time(mut self, limit: Duration) -> Self {
        self.head_time = limit;
        self
    }

    /// Sets the time in which a request body that the service waits for must deliver [`body_rate`](Self::body_rate)
    /// bytes, or its end: 30 s. Otherwise reading fails with a [`BodyError`](super::BodyError); if the service fails
    /// with it, the answer is 408. No time passes while the service does not read. Bytes count when they arrive.
    pub fn body_progress(mut self, limit: Duration) -> Self {
        self.body_progress = limit;
        self
    }

    /// Sets the bytes that a request body must deliver in the time of [`body_progress`](Self::body_progress): 1 KiB, at
    /// least 1. For bodies that [stream](Self::streaming_requests) one byte is enough.
    pub fn body_rate(mut self, bytes: u64) -> Self {
        self.body_rate = bytes.max(1);
        self
    }

    /// Sets the time in which the peer must take [`write_rate`](Self::write_rate) of the bytes that wait for it, or all
    /// of them: 30 s. Otherwise the connection is reset and counted in `writes_stalled`. TCP peers take bytes by
    /// acknowledging them (`SIOCOUTQ`, [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)), so a peer that
    /// reads slowly and steadily is not reset even while its receive window keeps closing.
    ///
    /// Also holds for event streams and after upgrades: no time passes while nothing waits, or while a
    /// [pace](crate::net::SharedPace) delays the bytes. An HTTP/2 client that opens no window takes nothing, even if it
    /// answers pings; one more frame of any response is enough. A Unix socket is checked while more bytes wait than it
    /// holds.
    pub fn write_stall(mut self, limit: Duration) -> Self {
        self.write_stall = limit;
        self
    }

    /// Sets the bytes that the peer must take in the time of [`write_stall`](Self::write_stall) while at least as many
    /// wait: 8 KiB, which is 273 bytes per second, at least 1.
    pub fn write_rate(mut self, bytes: u64) -> Self {
        self.write_rate = bytes.max(1);
        self
    }

    /// Sets the time that a connection is kept without a request after the last response was handed over: 75 s. HTTP/2
    /// clients receive GOAWAY. For tunnels (`CONNECT` over HTTP/2) it is the time without a byte.
    ///
    /// Behind a load balancer it must be longer than the balancer keeps idle connections, commonly 60 s. Otherwise the
    /// balancer may send a request on a connection that is being closed, and answer with 502.
    pub fn keep_alive(mut self, limit: Duration) -> Self {
        self.keep_alive = limit;
        self
    }

    /// Sets the age at which a connection ends, a range from which each gets its own or one time for all, and the time that
    /// its requests then have to finish: no limit. With a range, connections that came together do not leave together.
    ///
    /// At its age a connection drains, as when the server [drains](super::Server::drain): it is closed if it is idle,
    /// HTTP/2 clients receive GOAWAY, the next response of HTTP/1 has `Connection: close`, and endless responses and tasks
    /// with a [`DrainSignal`](super::DrainSignal) are told to end. After the `grace` it is reset.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millstream::server::Limits;
    ///
    /// let seconds = Duration::from_secs;
    /// let limits = Limits::default().age(seconds(1500)..=seconds(2100), seconds(30));
    /// # drop(limits);
    /// ```
    pub fn age(mut self, age: impl Into<Spread>, grace: Duration) -> Self {
        self.age = Some((Draws::new(age), grace));
        self
    }

    /// Sets the longest time over which a server that [drains](super::Server::drain) tells endless responses, and tasks
    /// with a [`DrainSignal`](super::DrainSignal), to end: no limit. Zero tells all at once.
    ///
    /// They are told one after another, so that their clients do not reconnect together: about 100 in a second, or faster,
    /// so that the last one has a fifth of the deadline to end, and a second at least. With a deadline of 10 s, 3 are told
    /// within 30 ms, and 800 or more within 8 s. The responses of all [cores](super::serve_cores()) count together.
    pub fn drain_spread(mut self, longest: Duration) -> Self {
        self.drain_spread = longest;
        self
    }

    /// HTTP/1 without TLS: sets the time for which a response may stay silent after the client has ended its side of
    /// the connection: 1 s. Then the connection is reset and the body dropped. Zero ends the response at once.
    ///
    /// A client such as `nc -N` ends its side (`shutdown(SHUT_WR)`) after its request and reads the response. For TCP
    /// it looks like a client that has closed the connection, until something is sent. A longer time serves half-closed
    /// clients of slow services; a shorter one frees silent responses to clients that have left. In a chain of servers
    /// the times add up. A reset, the close of a Unix socket and the `close_notify` of TLS end the response at once.
    pub fn half_close(mut self, limit: Duration) -> Self {
        self.half_close = limit;
        self
    }

    /// HTTP/1 without TLS: sets whether a stream of events (`text/event-stream`) also goes on for
    /// [`half_close`](Self::half_close) after the client has ended its side: `false`. Such a response ends once it was
    /// silent for 5 ms, because nearly all clients of a stream that end their side have left.
    pub fn half_close_events(mut self, go_on: bool) -> Self {
        self.half_close_events = go_on;
        self
    }

    /// HTTP/2: sets the time without a received byte after which a PING is sent: 60 s. This detects a dead peer of a
    /// silent stream, even behind a proxy. Zero sends none.
    pub fn http2_ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// HTTP/2: sets the time for the answer to a [PING](Self::http2_ping_interval), after which the connection is
    /// closed: 20 s.
    pub fn http2_ping_timeout(mut self, limit: Duration) -> Self {
        self.ping_timeout = limit;
        self
    }

    /// Sets the bytes of a request head: 16 KiB, at least 1. For HTTP/1 they are counted as sent, up to the empty line;
    /// a larger head is answered with 431, and at most one read beyond the limit is buffered. For HTTP/2 they are those
    /// of the decoded list, [RFC 9113 §6.5.2](https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2).
    pub fn head(mut self, bytes: usize) -> Self {
        self.head = bytes.max(1);
        self
    }

    /// Sets the bytes of a request's path and query: 8 KiB. Beyond it: 414, if the head is within [`head`](Self::head).
    pub fn uri(mut self, bytes: usize) -> Self {
        self.uri = bytes;
        self
    }

    /// Sets the header fields of a request: 100, at most 16 384. Beyond it: 431. HTTP/1 allocates for more than 100.
    pub fn fields(mut self, count: usize) -> Self {
        self.fields = count.min(FIELDS_MAX);
        self
    }

    /// Sets the bytes of a request body, without its framing, unless the request [streams](Self::streaming_requests): no
    /// limit. The service reads the body, and limits what it keeps: axum's extractors take 2 MiB (`DefaultBodyLimit`), and
    /// tonic 4 MiB a message. Set this limit for a service that collects bodies and has none of its own.
    ///
    /// A body beyond the limit fails with a [`BodyError`](super::BodyError) when it is read; one whose `Content-Length` is
    /// larger fails before its first byte. If the service fails with that error, the answer is 413. The connection is
    /// closed.
    pub fn body(mut self, bytes: u64) -> Self {
        self.body = bytes;
        self
    }

    /// Sets a hook that adds fields and a body to what the server answers itself, such as those of CORS or an error page:
    /// 400 for a wrong `Host`, 408 for a late head, 413 and 408 for a service that fails with a
    /// [`BodyError`](super::BodyError), 414, 431 and 503. The server closes the connection of HTTP/1 afterwards, and sets
    /// the status, `Connection` and `Content-Length`. The hook is not called for gRPC requests, nor for heads that hyper cannot parse
    /// or finds too long: hyper answers these with an empty 400 or 431.
    ///
    /// ```
    /// use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HeaderValue};
    /// use millstream::server::Limits;
    ///
    /// let limits = Limits::default().on_refusal(|response| {
    ///     response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    ///     response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    ///     *response.body_mut() = response.status().to_string().into();
    /// });
    /// ```
    pub fn on_refusal(mut self, hook: impl Fn(&mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.on_refusal = Some(Hook(Arc::new(hook)));
        self
    }

    /// Sets the time that [`Retry-After`](https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3) of the server's own 503
    /// names: a range, from which each response gets its own, or one time for all, in whole seconds: 1 s to 3 s.
    pub fn retry_after(mut self, time: impl Into<Spread>) -> Self {
        self.retry_after = Draws::new(time);
        self
    }

    /// Selects the requests that stream, by their heads. Their bodies have no size limit, and must deliver one byte in
    /// the time of [`body_progress`](Self::body_progress); raise that time for clients that pause longer, as in
    /// bidirectional gRPC calls.
    ///
    /// By default gRPC calls over HTTP/2 stream, by their content type `application/grpc`: a gRPC server limits each
    /// message. Any client can send that content type, also to a handler that collects whole bodies and relies on this
    /// limit. A server with such handlers selects by path, or nothing: `streaming_requests(|_| false)`.
    pub fn streaming_requests(mut self, streams: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.streaming = Some(Hook(Arc::new(streams)));
        self
    }

    /// Sets the number of open connections on all [cores](super::serve_cores()), upgraded ones included: 10 000.
    ///
    /// Further connections are answered with 503, or GOAWAY over HTTP/2, and closed. They are reset over TLS, if the
    /// client sends nothing for a second, or if many are being refused. They are counted in
    /// [`connections_refused`](crate::counters::Snapshot::connections_refused) and logged at most once in 10 s.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// Sets the number of open connections from one IPv4 address or IPv6 network of 64 bits: 1000, a tenth of
    /// [`connections`](Self::connections), so that no client takes all. Further ones are refused as described there.
    /// Private networks, where load balancers are, are [exempt](Self::exempt).
    pub fn per_address(mut self, count: usize) -> Self {
        self.per_address = count;
        self
    }

    /// Sets the networks exempt from [`per_address`](Self::per_address): [`Trusted::private`]. Add the networks of
    /// proxies with public addresses by [`Trusted::and`]. Unix sockets are always exempt.
    pub fn exempt(mut self, networks: Trusted) -> Self {
        self.exempt = networks;
        self
    }

    /// HTTP/2: sets the number of concurrent requests of a connection: 100.
    pub fn http2_streams(mut self, count: u32) -> Self {
        self.streams = count;
        self
    }

    /// HTTP/2: sets the bytes of a request body in flight before the service reads them: 3 MiB, at most 2 GiB. A client
    /// at a distance sends this much in each round trip: with 50 ms, 60 MB/s. Keep it below
    /// [`http2_connection_window`](Self::http2_connection_window), so that an unread body does not stall others.
    ///
    /// A service that reads slower than the client sends lets the server hold this much of each body. Connections that
    /// hold more than 128 KiB are not read further while those of the process hold half of the [`budget`](Self::budget);
    /// they count in [`reads_paused`](crate::counters::Snapshot::reads_paused).
    pub fn http2_stream_window(mut self, bytes: u32) -> Self {
        self.stream_window = bytes.min(WINDOW_MAX);
        self
    }

    /// HTTP/2: sets the [`http2_stream_window`](Self::http2_stream_window) of all bodies of a connection together: 4 MiB.
    pub fn http2_connection_window(mut self, bytes: u32) -> Self {
        self.connection_window = bytes.min(WINDOW_MAX);
        self
    }

    /// HTTP/2: sets whether both windows, in place of the fixed ones, grow from 64 KiB to the bytes of a round trip, at
    /// most 16 MiB: off. Both windows are equal then, so one body that is not read stalls all others of its connection.
    pub fn http2_adaptive_window(mut self, on: bool) -> Self {
        self.adaptive_window = on;
        self
    }

    /// Sets the bytes of a response that HTTP holds before it waits for the stream, besides the current body frame: 64
    /// KiB, at least 8 KiB; for HTTP/2 for each request. The stream holds up to the listener's
    /// [`high_mark`](crate::net::TcpListenerBuilder::high_mark): 64 KiB, and 32 KiB until it takes more.
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes.max(8 << 10);
        self
    }

    /// Sets the bytes that all streams of the process may queue: 256 MiB, also the maximum of all
    /// send queues. From 90 % on responses carry `Connection: close`, or GOAWAY is sent.
    /// From 95 % on new requests are answered with 503 and `Retry-After`, and the connection is closed. A stream counts
    /// what it holds beyond 4 KiB, in steps of 16 KiB. Bytes within [`buffer`](Self::buffer) do not count. The
    /// [log](crate::sse::log::Log::replay) bytes held by readers of a [`Hub`](crate::sse::Hub) count: up to 32 MiB and
    /// one event each. So do request bodies over HTTP/2 that no service has read, beyond 128 KiB of each connection.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = bytes;
        self
    }

    /// Sets whether memory that the heap does not use returns to the system after a burst of connections
    /// ([malloc_trim(3)](https://man7.org/linux/man-pages/man3/malloc_trim.3.html)): on. This happens once 256
    /// connections have ended or come to rest and few others do, at most each 10 s. It takes about 0.4 ms for each MB on
    /// a thread of the blocking pool, and other threads that allocate wait for it in part. Without glibc, or with
    /// another global allocator, it has no effect.
    pub fn trim_heap(mut self, on: bool) -> Self {
        self.trim_heap = on;
        self
    }
}

impl Limits {
    #[inline]
    pub(super) fn pressure(&self) -> Pressure {
        Pressure::of(Queue::all(), self.budget)
    }
}
