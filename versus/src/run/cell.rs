//! The matrix: what is asked of a server, by how many connections, over which protocol.

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::load::Protocol;

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
    /// One event for all readers, so many times a second.
    Events(u32),
    /// So many bytes into a file.
    Upload(u64),
    /// A file of so many bytes of another server, whose bytes are relayed.
    Relay(u64),
    /// A response of another server, passed on by a proxy that reads it.
    Proxy(Behind),
}

/// What the server behind a proxy is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Behind {
    Hello,
    File(u64),
    Tokens,
}

impl Work {
    /// Returns what the server behind a relay or a proxy is asked for; `None` if there is none.
    pub(super) fn behind(self) -> Option<Self> {
        match self {
            Self::Relay(len) | Self::Proxy(Behind::File(len)) => Some(Self::File(len)),
            Self::Proxy(Behind::Hello) => Some(Self::Hello),
            Self::Proxy(Behind::Tokens) => Some(Self::Tokens),
            _ => None,
        }
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

impl Cell {
    fn new(name: impl Into<String>, work: Work, connections: u32) -> Self {
        Self { name: name.into(), work, protocol: Protocol::H1, connections, streams: 1, workers: 1 }
    }

    fn over(mut self, protocol: Protocol, streams: u32) -> Self {
        (self.protocol, self.streams) = (protocol, streams);
        self
    }

    fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn family(&self) -> &str {
        self.name.split_once('/').map_or(&*self.name, |(family, _)| family)
    }

    pub(crate) fn unit(&self) -> Unit {
        if let Work::Events(_) = self.work { Unit::Delivery } else { Unit::Request }
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
            Work::Hello => "12 bytes of JSON".to_owned(),
            Work::Handshake { resumed: false } => "12 bytes of JSON after a full handshake".to_owned(),
            Work::Handshake { resumed: true } => "12 bytes of JSON after a resumed handshake".to_owned(),
            Work::File(len) => format!("a file of {}", size(len)),
            Work::Tokens => "100 tokens one by one".to_owned(),
            Work::Events(hz) => format!("one event to all readers, {hz} times a second"),
            Work::Upload(len) => format!("{} into a file", size(len)),
            Work::Relay(len) => format!("bytes relayed from a server with a file of {}", size(len)),
            Work::Proxy(Behind::Hello) => "12 bytes of JSON through a proxy".to_owned(),
            Work::Proxy(Behind::File(len)) => format!("a file of {} through a proxy", size(len)),
            Work::Proxy(Behind::Tokens) => "100 tokens one by one through a proxy".to_owned(),
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
            "{what}, {protocol}, {}{streams}, {}",
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

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns the cells of a plan.
pub(super) fn matrix(plan: &Plan, cpus: usize) -> Vec<Cell> {
    let cells = if plan.sweep { sweep(cpus) } else { whole(cpus) };
    let quick = |cell: &Cell| !plan.quick || if plan.sweep { cell.workers == 1 } else { QUICK.contains(&&*cell.name) };
    let wanted = |cell: &Cell| plan.only.is_empty() || plan.only.iter().any(|only| cell.name.contains(only.as_str()));
    cells.into_iter().filter(|cell| quick(cell) && wanted(cell)).collect()
}

/// Cells of `--quick`.
const QUICK: [&str; 18] = [
    "json/64",
    "files/1k",
    "files/64k",
    "files/1m",
    "tokens/1",
    "tokens/64",
    "tokens/1000",
    "events/100",
    "events/500",
    "uploads/1m",
    "relay/1m",
    "proxy/1m",
    "http2/64k",
    "http2/tokens",
    "tls/64k",
    "connections/1",
    "connections/100",
    "connections/1000",
];

fn whole(cpus: usize) -> Vec<Cell> {
    use Protocol::{H2, TlsH1, TlsH2};
    use Work::{Events, File, Handshake, Hello, Proxy, Relay, Tokens, Upload};
    let mut cells = vec![
        Cell::new("json/1", Hello, 1),
        Cell::new("json/64", Hello, 64),
        Cell::new("files/1k", File(KIB), 64),
        Cell::new("files/10k", File(10 * KIB), 64),
        Cell::new("files/64k", File(64 * KIB), 64),
        Cell::new("files/1m", File(MIB), 16),
        Cell::new("files/16m", File(16 * MIB), 8),
        Cell::new("files/1g", File(1024 * MIB), 2),
        Cell::new("tokens/1", Tokens, 1),
        Cell::new("tokens/10", Tokens, 10),
        Cell::new("tokens/64", Tokens, 64),
        Cell::new("tokens/1000", Tokens, 1000),
        Cell::new("tokens/10000", Tokens, 10_000),
        Cell::new("events/1", Events(1000), 1),
        Cell::new("events/10", Events(500), 10),
        Cell::new("events/100", Events(100), 100),
        Cell::new("events/500", Events(50), 500),
        Cell::new("events/5000", Events(10), 5000),
        Cell::new("events/10000", Events(5), 10_000),
        Cell::new("uploads/64k", Upload(64 * KIB), 16),
        Cell::new("uploads/1m", Upload(MIB), 16),
        Cell::new("uploads/64m", Upload(64 * MIB), 4),
        Cell::new("relay/64k", Relay(64 * KIB), 16),
        Cell::new("relay/1m", Relay(MIB), 16),
        Cell::new("relay/64m", Relay(64 * MIB), 4),
        Cell::new("proxy/json", Proxy(Behind::Hello), 64),
        Cell::new("proxy/1m", Proxy(Behind::File(MIB)), 16),
        Cell::new("proxy/tokens", Proxy(Behind::Tokens), 64),
        Cell::new("http2/json", Hello, 4).over(H2, 16),
        Cell::new("http2/64k", File(64 * KIB), 4).over(H2, 16),
        Cell::new("http2/16m", File(16 * MIB), 2).over(H2, 4),
        Cell::new("http2/tokens", Tokens, 4).over(H2, 16),
        Cell::new("tls/handshakes", Handshake { resumed: false }, 16).over(TlsH1, 1),
        Cell::new("tls/resumed", Handshake { resumed: true }, 16).over(TlsH1, 1),
        Cell::new("tls/1k", File(KIB), 64).over(TlsH1, 1),
        Cell::new("tls/10k", File(10 * KIB), 64).over(TlsH1, 1),
        Cell::new("tls/64k", File(64 * KIB), 64).over(TlsH1, 1),
        Cell::new("tls/16m", File(16 * MIB), 4).over(TlsH1, 1),
        Cell::new("tls/100m", File(100 * MIB), 2).over(TlsH1, 1),
        Cell::new("tls/tokens", Tokens, 64).over(TlsH1, 1),
        Cell::new("tls/http2-64k", File(64 * KIB), 4).over(TlsH2, 16),
    ];
    cells.extend(
        [1, 10, 100, 1000, 10_000].map(|count| Cell::new(format!("connections/{count}"), File(10 * KIB), count)),
    );
    cells.extend(workers(cpus).map(|count| Cell::new(format!("workers/{count}"), File(10 * KIB), 64).workers(count)));
    cells
}

/// Cells whose frontier shows what a setting changes.
fn sweep(cpus: usize) -> Vec<Cell> {
    let mut cells = vec![
        Cell::new("files/64k", Work::File(64 * KIB), 64),
        Cell::new("files/16m", Work::File(16 * MIB), 8),
        Cell::new("tokens/1", Work::Tokens, 1),
        Cell::new("tokens/64", Work::Tokens, 64),
        Cell::new("http2/tokens", Work::Tokens, 4).over(Protocol::H2, 16),
        Cell::new("events/500", Work::Events(50), 500),
    ];
    let more = workers(cpus).filter(|&count| count > 1);
    cells.extend(more.map(|count| Cell::new(format!("workers/{count}"), Work::File(10 * KIB), 64).workers(count)));
    cells
}

/// Returns 1, 2, 4 … and the number of CPUs.
fn workers(cpus: usize) -> impl Iterator<Item = u32> {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let powers = std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(move |&n| n < cpus);
    powers.chain([cpus])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own_and_the_quick_ones_exist() {
        let plan = |quick, sweep| Plan { quick, sweep, ..Plan::default() };
        for cpus in [1, 2, 3, 96] {
            let cells = matrix(&plan(false, false), cpus);
            let mut names: Vec<_> = cells.iter().map(|cell| cell.name.clone()).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), cells.len());
            assert_eq!(matrix(&plan(true, false), cpus).len(), QUICK.len());
            assert!(!matrix(&plan(true, true), cpus).is_empty());
        }
        assert_eq!(workers(6).collect::<Vec<_>>(), [1, 2, 4, 6]);
        assert_eq!(workers(1).collect::<Vec<_>>(), [1]);
        let only = Plan { only: vec!["tls".to_owned(), "files/1k".to_owned()], ..Plan::default() };
        assert!(matrix(&only, 2).iter().all(|cell| cell.family() == "tls" || cell.name == "files/1k"));
    }
}
