//! What a server puts up with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use crate::buf::Queue;
use crate::server::Trusted;

/// What a [server](super::serve()) puts up with. The defaults are those a reviewer would ask for; [`Default`] has them all
/// on.
///
/// ```
/// use std::time::Duration;
///
/// use millstream::server::Limits;
///
/// let limits = Limits::default()
///     .keep_alive(Duration::from_secs(15))
///     .streaming(|head| head.uri.path().starts_with("/upload/"));
/// # drop(limits);
/// ```
///
/// Times are kept by looking at all connections a few times a second: each is noticed up to a second late and never early.
/// A limit of [`Duration::MAX`] is none.
#[derive(Clone)]
#[must_use = "limits do nothing until a server has them"]
pub struct Limits {
    pub(super) head_time: Duration,
    pub(super) body_progress: Duration,
    pub(super) body_rate: u64,
    pub(super) write_stall: Duration,
    pub(super) write_rate: u64,
    pub(super) keep_alive: Duration,
    pub(super) half_close: Duration,
    pub(super) ping: (Duration, Duration),
    pub(super) head: usize,
    pub(super) uri: usize,
    pub(super) fields: usize,
    pub(super) body: u64,
    pub(super) streaming: Option<Streams>,
    pub(super) connections: usize,
    pub(super) per_address: usize,
    pub(super) exempt: Trusted,
    pub(super) streams: u32,
    pub(super) stream_window: u32,
    pub(super) connection_window: u32,
    pub(super) adaptive_window: bool,
    pub(super) buffer: usize,
    pub(super) budget: usize,
}

/// The largest window of HTTP/2, [RFC 9113 §6.9.1](https://www.rfc-editor.org/rfc/rfc9113#section-6.9.1).
const WINDOW_MAX: u32 = i32::MAX as u32;
/// What HTTP/1 makes room for before it parses a head; `http::HeaderMap` holds few more.
const FIELDS_MAX: usize = 16 << 10;

/// Says of a head whether its body streams.
type Streams = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(10),
            body_progress: Duration::from_secs(30),
            body_rate: 1 << 10,
            write_stall: Duration::from_secs(30),
            write_rate: 8 << 10,
            keep_alive: Duration::from_secs(75),
            half_close: Duration::from_secs(1),
            ping: (Duration::from_secs(60), Duration::from_secs(20)),
            head: 16 << 10,
            uri: 8 << 10,
            fields: 100,
            body: 2 << 20,
            streaming: None,
            connections: 10_000,
            per_address: 1000,
            exempt: Trusted::private(),
            streams: 100,
            stream_window: 64 << 10,
            connection_window: 1 << 20,
            adaptive_window: false,
            buffer: 64 << 10,
            budget: Queue::ALL_MAX,
        }
    }
}

impl Limits {
    /// Time for the head of a request, from its first byte to its last, and from connecting to the whole head of the first
    /// request; 10 s. HTTP/1 clients that have begun are answered 408, then the connection is closed.
    ///
    /// Bytes of a next head that came with the request before it do not begin it: such a client is idle until the next
    /// byte comes.
    pub fn head_time(mut self, limit: Duration) -> Self {
        self.head_time = limit;
        self
    }

    /// Time in which a request body that the service waits for has to bring [`body_rate`](Self::body_rate) bytes, or
    /// its end; 30 s. Else reading it fails with a [`BodyError`](super::BodyError), and if the service
    /// fails with that the client is answered 408. While the service does not ask for more the time stands still,
    /// and bytes that have arrived count whether or not the server has come to read them.
    pub fn body_progress(mut self, limit: Duration) -> Self {
        self.body_progress = limit;
        self
    }

    /// Bytes that a request body has to bring in the time of [`body_progress`](Self::body_progress), at least 1; 1 KiB. For
    /// bodies that [stream](Self::streaming) any byte is enough.
    pub fn body_rate(mut self, bytes: u64) -> Self {
        self.body_rate = bytes.max(1);
        self
    }

    /// Time in which the peer has to take [`write_rate`](Self::write_rate) bytes of what waits for it, or all of it; 30 s. Else
    /// the connection is reset and counted in `writes_stalled`. Of TCP, taken is what the peer acknowledges (`SIOCOUTQ`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)), so a peer that reads slowly and steadily is not reset
    /// even while its receive window keeps closing.
    ///
    /// Holds for event streams and after upgrades as well: while nothing waits, no time passes. Time in which the connection
    /// waits for [a rate of ours](crate::net::SharedPace) does not count. An HTTP/2 client that opens no window while
    /// answers wait for one takes nothing; pings do not help it. One that makes way for another frame of any answer takes
    /// enough. The peer of a Unix socket is watched while more waits than the socket holds.
    pub fn write_stall(mut self, limit: Duration) -> Self {
        self.write_stall = limit;
        self
    }

    /// Bytes that the peer has to take in the time of [`write_stall`](Self::write_stall) while at least as many wait for it,
    /// at least 1; 8 KiB, which is 273 bytes per second. With 1, every byte that is taken is enough.
    pub fn write_rate(mut self, bytes: u64) -> Self {
        self.write_rate = bytes.max(1);
        self
    }

    /// Time that a connection is kept without a request after the last answer was handed over; 75 s. HTTP/2 clients are told
    /// by GOAWAY. For tunnels (`CONNECT` over HTTP/2) it is the time without a byte.
    ///
    /// Behind a load balancer this must be longer than the time for which that keeps idle connections, commonly 60 s: else it
    /// may send a request on a connection that is just being closed, and answer 502.
    pub fn keep_alive(mut self, limit: Duration) -> Self {
        self.keep_alive = limit;
        self
    }

    /// HTTP/1 without TLS: time for which an answer goes on without sending anything after the client has ended its side of
    /// the connection; 1 s. Then the connection is reset and the body is dropped. Zero ends the answer at once.
    ///
    /// A client such as `nc -N` sends its request, ends its side (`shutdown(SHUT_WR)`) and reads the answer. TCP does not tell
    /// such a client from one that has closed the connection until something is sent to it. So a longer time serves
    /// half-closed clients of slow services, and a shorter one frees earlier what silent answers to clients that have left hold;
    /// in a chain of servers the times of all add up. A
    /// reset, and the close of a Unix socket, end the answer at once whatever this time is, and so does the `close_notify` of TLS.
    pub fn half_close(mut self, limit: Duration) -> Self {
        self.half_close = limit;
        self
    }

    /// HTTP/2: time without anything received after which a PING is sent, and time for its answer; 60 s and 20 s. A
    /// connection whose peer does not answer is closed. So a dead peer of a stream on which nothing is sent is noticed, also
    /// behind a proxy that keeps the TCP connection alive.
    pub fn ping(mut self, interval: Duration, timeout: Duration) -> Self {
        self.ping = (interval, timeout);
        self
    }

    /// Bytes of a request head, at least 1; 16 KiB. Of HTTP/1 exactly what was sent, from the method to the empty line; a
    /// head beyond it is answered 431, and no more than that and a read's worth is buffered of it. Of HTTP/2 the decoded
    /// list, [RFC 9113 §6.5.2](https://www.rfc-editor.org/rfc/rfc9113#section-6.5.2).
    pub fn head(mut self, bytes: usize) -> Self {
        self.head = bytes.max(1);
        self
    }

    /// Bytes of a request's path and query; 8 KiB. Beyond: 414, if the whole head is within [`head`](Self::head).
    pub fn uri(mut self, bytes: usize) -> Self {
        self.uri = bytes;
        self
    }

    /// Header fields of a request; 100, 16 384 at most. Beyond: 431. More than 100 cost HTTP/1 an allocation for each request.
    pub fn fields(mut self, count: usize) -> Self {
        self.fields = count.min(FIELDS_MAX);
        self
    }

    /// Bytes of a request body, without its framing, unless the request [streams](Self::streaming); 2 MiB. A request that
    /// announces more is answered 413 before the service sees it. A body that grows beyond fails with
    /// a [`BodyError`](super::BodyError), and if the service fails with that the answer is 413. The
    /// connection is not used again.
    pub fn body(mut self, bytes: u64) -> Self {
        self.body = bytes;
        self
    }

    /// Says by their heads which requests stream: their bodies have no limit of size, and have to bring only a byte in
    /// the time of [`body_progress`](Self::body_progress). Where a client may be silent for longer in the middle of a body, as
    /// in calls of gRPC that go both ways, raise that time.
    ///
    /// Unless this is set, calls of gRPC over HTTP/2 stream: requests with a content type of `application/grpc`. A gRPC
    /// server limits each message. But any client can send that content type, also to a handler that collects whole bodies
    /// and leaves their size to this limit. A server with such handlers names by path what streams, or nothing at all:
    /// `streaming(|_| false)`.
    pub fn streaming(mut self, streams: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.streaming = Some(Arc::new(streams));
        self
    }

    /// Connections at a time, upgraded ones included; 10 000. For a server on several [cores](super::serve_cores()) the number
    /// of all of them together.
    ///
    /// More are answered 503, over HTTP/2 with GOAWAY, and closed. If their client sends nothing for a second, if many are
    /// being answered so, and over TLS, they are reset. Refused connections are counted in
    /// [`Snapshot::connections_refused`](crate::counters::Snapshot::connections_refused) and logged, at most once in 10 s.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count;
        self
    }

    /// Connections at a time from one IPv4 address or IPv6 network of 64 bits; 1000, a tenth of
    /// [`connections`](Self::connections), so that no client alone takes all of them. More are refused as described there.
    ///
    /// The limit is for clients that connect directly. Addresses that many clients share are [exempt](Self::exempt): by
    /// default those of private networks, where load balancers are. Add the networks of proxies with public addresses.
    pub fn per_address(mut self, count: usize) -> Self {
        self.per_address = count;
        self
    }

    /// The networks from which [`per_address`](Self::per_address) does not count; [`Trusted::private`]. Unix sockets are
    /// always exempt.
    ///
    /// ```
    /// use millstream::server::{Limits, Trusted};
    ///
    /// // The proxies of a content delivery network, besides the private networks.
    /// let proxies: Trusted = "192.0.2.0/24, 2001:db8::/32".parse()?;
    /// let limits = Limits::default().per_address(200).exempt(Trusted::private().and(proxies));
    /// # drop(limits);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn exempt(mut self, networks: Trusted) -> Self {
        self.exempt = networks;
        self
    }

    /// HTTP/2: requests of a connection at a time; 100.
    pub fn streams(mut self, count: u32) -> Self {
        self.streams = count;
        self
    }

    /// HTTP/2: bytes of a request body that may be on their way before the service has read them; 64 KiB, 2 GiB at
    /// most. Keep it below [`connection_window`](Self::connection_window), so that a body which is not read stalls no other.
    pub fn stream_window(mut self, bytes: u32) -> Self {
        self.stream_window = bytes.min(WINDOW_MAX);
        self
    }

    /// HTTP/2: as [`stream_window`](Self::stream_window), of all bodies of a connection together; 1 MiB.
    pub fn connection_window(mut self, bytes: u32) -> Self {
        self.connection_window = bytes.min(WINDOW_MAX);
        self
    }

    /// HTTP/2: whether both windows grow to what the connection can carry in a round trip, to 16 MiB at most, for uploads
    /// from far away; off. They begin at 64 KiB then, whatever they are set to. With a round trip of 50 ms the first 16 MiB
    /// took 0.5 s, 13.6 s with the windows that are the default.
    pub fn adaptive_window(mut self, on: bool) -> Self {
        self.adaptive_window = on;
        self
    }

    /// Bytes of answer that HTTP holds before it waits for the stream, besides the body frame in hand, at least 8 KiB; 64 KiB.
    /// For HTTP/2 of each request. What the stream itself holds is the listener's
    /// [`high_mark`](crate::net::TcpListenerBuilder::high_mark): 64 KiB, and 32 KiB until it takes more.
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes.max(8 << 10);
        self
    }

    /// Bytes that may wait to be sent on all streams of the process together; 256 MiB, which is also the most that
    /// [queues](crate::buf::Queue::all_are_full) take. From 90 % on answers carry `Connection: close`, or GOAWAY;
    /// from 95 % on new requests are answered 503 with `Retry-After`, and the connection is closed. Both end by
    /// themselves. What a stream holds beyond its first 4 KiB counts, in steps of 16 KiB; what HTTP holds before it is
    /// bounded by [`buffer`](Self::buffer) and does not count. What readers of a [`Hub`](crate::sse::Hub) hold of its
    /// [log](crate::sse::log::Log::replay) counts as well: at most 32 MiB and one event for each of them.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = bytes;
        self
    }
}

/// How much of a budget is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pressure {
    None,
    /// 90 %.
    High,
    /// 95 %.
    Full,
}

impl Pressure {
    fn of(used: usize, budget: usize) -> Self {
        // In whole percents, which cannot overflow.
        let percent = budget / 100;
        match used {
            used if used >= budget - 5 * percent => Self::Full,
            used if used >= budget - 10 * percent => Self::High,
            _ => Self::None,
        }
    }
}

impl Limits {
    /// What the queues of the process hold, against the budget.
    #[inline]
    pub(super) fn pressure(&self) -> Pressure {
        Pressure::of(Queue::all(), self.budget)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("head_time", &self.head_time)
            .field("body_progress", &self.body_progress)
            .field("body_rate", &self.body_rate)
            .field("write_stall", &self.write_stall)
            .field("write_rate", &self.write_rate)
            .field("keep_alive", &self.keep_alive)
            .field("half_close", &self.half_close)
            .field("ping", &self.ping)
            .field("head", &self.head)
            .field("uri", &self.uri)
            .field("fields", &self.fields)
            .field("body", &self.body)
            .field("connections", &self.connections)
            .field("per_address", &self.per_address)
            .field("exempt", &self.exempt)
            .field("streams", &self.streams)
            .field("stream_window", &self.stream_window)
            .field("connection_window", &self.connection_window)
            .field("adaptive_window", &self.adaptive_window)
            .field("buffer", &self.buffer)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
