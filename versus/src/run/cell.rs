//! A cell: what is asked of a server, when, by how many connections, over which protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::load::Protocol;
use crate::serve::PACE;

/// One measurement of all servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Family and variant: `files/64k`.
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) protocol: Protocol,
    pub(crate) connections: u32,
    /// Requests at once on each connection.
    pub(crate) streams: u32,
    pub(crate) workers: u32,
    #[serde(default, skip_serializing_if = "Arrivals::is_closed")]
    pub(crate) arrivals: Arrivals,
}

/// When requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arrivals {
    /// In a closed loop: a connection sends a request at the end of the response to the one before.
    #[default]
    Closed,
    /// In an open loop: so many a second on all connections together, whether or not responses come.
    Open(u32),
    /// In a closed loop with a new connection for each request.
    Churn,
    /// Once on each connection, which stays open and idle.
    Once,
}

impl Arrivals {
    fn is_closed(&self) -> bool {
        *self == Self::Closed
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// 12 bytes of JSON.
    Hello,
    /// 12 bytes of JSON on a new connection with a full handshake, or one that resumes a session.
    Handshake { resumed: bool },
    /// A file of so many bytes.
    File(u64),
    /// 100 events of 40 bytes, each computed after the one before.
    Tokens,
    /// An endless response of its own for each reader: an event of 40 bytes each 20 ms.
    Paced,
    /// One event for all readers, so many times a second.
    Events(u32),
    /// So many bytes into a file.
    Upload(u64),
    /// A file of so many bytes of another server, whose bytes are relayed.
    Relay(u64),
    /// A response of another server, passed on by a proxy that reads it.
    Proxy(Behind),
    /// The same with TLS between the proxy and the other server.
    ProxyToTls(Behind),
}

/// What the server behind a proxy is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behind {
    Hello,
    File(u64),
    Tokens,
}

impl Behind {
    fn describe(self) -> String {
        match self {
            Self::Hello => "12 bytes of JSON".to_owned(),
            Self::File(len) => format!("a file of {}", size(len)),
            Self::Tokens => "100 tokens one by one".to_owned(),
        }
    }
}

impl Work {
    /// Returns what the server behind a relay or a proxy is asked for; `None` if there is none.
    pub(super) fn behind(self) -> Option<Self> {
        match self {
            Self::Relay(len) => Some(Self::File(len)),
            Self::Proxy(behind) | Self::ProxyToTls(behind) => Some(match behind {
                Behind::Hello => Self::Hello,
                Behind::File(len) => Self::File(len),
                Behind::Tokens => Self::Tokens,
            }),
            _ => None,
        }
    }

    /// Returns whether the server behind a proxy speaks TLS.
    pub(super) fn is_to_tls(self) -> bool {
        matches!(self, Self::ProxyToTls(_))
    }

    /// Returns what the response is.
    pub(super) fn response(self) -> Self {
        self.behind().unwrap_or(self)
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Request,
    Delivery,
}

impl Unit {
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Delivery => "delivery",
        }
    }

    pub(crate) fn many(self) -> &'static str {
        match self {
            Self::Request => "requests",
            Self::Delivery => "deliveries",
        }
    }
}

/// How long the server is left alone before its memory is read. Heaps are trimmed seconds after a burst.
pub(crate) const REST: Duration = Duration::from_secs(13);

/// A server that completes a smaller share of what is offered does not keep up.
pub(crate) const KEEPS_UP: f64 = 0.98;

impl Cell {
    pub(super) fn new(name: impl Into<String>, work: Work, connections: u32) -> Self {
        let (protocol, arrivals) = (Protocol::H1, Arrivals::Closed);
        Self { name: name.into(), work, protocol, connections, streams: 1, workers: 1, arrivals }
    }

    pub(super) fn over(mut self, protocol: Protocol, streams: u32) -> Self {
        (self.protocol, self.streams) = (protocol, streams);
        self
    }

    pub(super) fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    pub(super) fn arriving(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = arrivals;
        self
    }

    pub(crate) fn family(&self) -> &str {
        self.name.split_once('/').map_or(&*self.name, |(family, _)| family)
    }

    pub(crate) fn unit(&self) -> Unit {
        if let Work::Events(_) | Work::Paced = self.work { Unit::Delivery } else { Unit::Request }
    }

    /// Returns the requests or deliveries a second that are offered, if the load does not depend on the server.
    pub(crate) fn offered(&self) -> Option<f64> {
        match (self.work, self.arrivals) {
            (Work::Paced, _) => Some(f64::from(self.connections * self.streams) / PACE.as_secs_f64()),
            (_, Arrivals::Open(rate)) => Some(f64::from(rate)),
            _ => None,
        }
    }

    /// Returns whether the cell is about the memory of idle connections.
    pub(crate) fn rests(&self) -> bool {
        self.arrivals == Arrivals::Once
    }

    /// Returns the time of a round where others measure for this time.
    pub(crate) fn time(&self, seconds: f64) -> f64 {
        if self.rests() { REST.as_secs_f64() } else { seconds }
    }

    /// Returns the length of a request's or response's body, whose transfer is counted in fractions.
    pub(crate) fn len(&self) -> Option<u64> {
        match self.work.response() {
            Work::File(len) | Work::Upload(len) => Some(len),
            Work::Tokens => Some(TOKENS),
            _ => None,
        }
    }

    /// Returns whether a pass that counts system calls is worth its time.
    pub(crate) fn counts_calls(&self) -> bool {
        self.connections <= 1000
    }

    pub(crate) fn describe(&self) -> String {
        let what = match self.work {
            Work::Hello => Behind::Hello.describe(),
            Work::Handshake { resumed: false } => "12 bytes of JSON after a full handshake".to_owned(),
            Work::Handshake { resumed: true } => "12 bytes of JSON after a resumed handshake".to_owned(),
            Work::File(len) => Behind::File(len).describe(),
            Work::Tokens => Behind::Tokens.describe(),
            Work::Paced => format!("one token each {} ms", PACE.as_millis()),
            Work::Events(hz) => format!("one event to all readers, {hz} times a second"),
            Work::Upload(len) => format!("{} into a file", size(len)),
            Work::Relay(len) => format!("bytes relayed from a server with a file of {}", size(len)),
            Work::Proxy(behind) => format!("{} through a proxy", behind.describe()),
            Work::ProxyToTls(behind) => format!("{} through a proxy from a server with TLS", behind.describe()),
        };
        let when = match self.arrivals {
            Arrivals::Closed => String::new(),
            Arrivals::Open(rate) => format!(", {rate} requests a second"),
            Arrivals::Churn => ", a new connection each".to_owned(),
            Arrivals::Once => format!(", once, then idle for {} s", REST.as_secs()),
        };
        let protocol = match self.protocol {
            Protocol::H1 => "HTTP/1.1",
            Protocol::H2 => "HTTP/2",
            Protocol::TlsH1 => "HTTP/1.1 over TLS",
            Protocol::TlsH2 => "HTTP/2 over TLS",
        };
        let plural = |n: u32, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let streams = if self.streams > 1 { format!(" × {} streams", self.streams) } else { String::new() };
        format!(
            "{what}{when}, {protocol}, {}{streams}, {}",
            plural(self.connections, "connection"),
            plural(self.workers, "worker")
        )
    }
}

/// Writes a number of bytes as people do: `64 KiB`.
pub(crate) fn size(len: u64) -> String {
    match len {
        0..1024 => format!("{len} B"),
        1024..1_048_576 => format!("{} KiB", len >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", len >> 20),
        _ => format!("{} GiB", len >> 30),
    }
}

/// Bytes of 100 tokens.
pub(super) const TOKENS: u64 = 4000;
