//! The load: requests in a closed or an open loop on each connection, or readers of endless streams of events.
//!
//! HTTP/1.1 without TLS is spoken by [`raw`], which costs little beside the server; HTTP/2 and TLS by hyper's client in
//! [`client`]. Both report through a [`Gauge`], so that the clock, the CPU time of the server and the counts are read at
//! the same moments, while the load runs on.

mod arrivals;
pub(crate) mod client;
mod events;
mod raw;
mod upload;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measuring::latencies::Latencies;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    H1,
    H2,
    TlsH1,
    TlsH2,
}

impl Protocol {
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::TlsH1 | Self::TlsH2)
    }

    pub(crate) fn is_h2(self) -> bool {
        matches!(self, Self::H2 | Self::TlsH2)
    }
}

/// What every connection of one thread of the load does.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) path: String,
    /// Number of the first connection, which uploads are named after.
    pub(crate) first: u32,
    pub(crate) connections: u32,
    /// Requests at once on each connection, more than one with HTTP/2 only.
    pub(crate) streams: u32,
    pub(crate) task: Task,
}

/// What a connection asks for, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    /// A closed loop: a request follows the response to the one before.
    Get,
    /// A closed loop of requests with this body, whose path ends with the number of the connection.
    Put(&'static [u8]),
    /// An open loop: so many requests a second, due at times that the seed decides. Latencies count from these times.
    Open { rate: f64, seed: u64 },
    /// A closed loop with a new connection for each request.
    Churn,
    /// The same with TLS, whose session is that of the connection before, or a new one.
    Handshakes { resumed: bool },
    /// One request. The connection stays open.
    Once,
    /// One request with an endless response of events.
    Events,
}

impl Task {
    /// Returns the body of each request.
    fn body(self) -> &'static [u8] {
        if let Self::Put(body) = self { body } else { &[] }
    }
}

/// Phases of a round after the first, 0, in which connections are made.
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// What the load reports while it runs.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    phase: AtomicU8,
    /// Connections that have got a response, or the first event.
    answered: AtomicU32,
    /// Responses or events.
    done: AtomicU64,
    /// Bytes of bodies, in the direction that is measured. Shared with bodies that hyper sends.
    bytes: Arc<AtomicU64>,
    /// Requests of an open loop that were due.
    offered: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// The counts of a gauge at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) done: u64,
    pub(crate) bytes: u64,
    pub(crate) offered: u64,
}

impl Gauge {
    pub(crate) fn start_measuring(&self) {
        self.phase.store(MEASURE, Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.phase.store(STOP, Relaxed);
    }

    pub(crate) fn count(&self) -> Count {
        Count { done: self.done.load(Relaxed), bytes: self.bytes.load(Relaxed), offered: self.offered.load(Relaxed) }
    }

    pub(crate) fn answered(&self) -> u32 {
        self.answered.load(Relaxed)
    }

    /// Returns why the load has failed, if it has.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn fail(&self, problem: impl ToString) {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem.to_string());
        self.stop();
    }

    fn is_measuring(&self) -> bool {
        self.phase.load(Relaxed) == MEASURE
    }

    fn is_stopped(&self) -> bool {
        self.phase.load(Relaxed) == STOP
    }

    fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a request of an open loop that is due.
    fn offer(&self) {
        self.offered.fetch_add(1, Relaxed);
    }

    /// Counts a response or an event that took this long.
    fn complete(&self, latency: Duration, latencies: &mut Latencies, first: &mut bool) {
        self.done.fetch_add(1, Relaxed);
        if !std::mem::replace(first, true) {
            self.answered.fetch_add(1, Relaxed);
        }
        if self.is_measuring() {
            latencies.record(latency, 1);
        }
    }
}

/// Runs a job until the gauge is stopped. Returns the latencies of the measured time; failures go to the gauge.
pub(crate) fn run(job: &Job, gauge: &Gauge) -> Latencies {
    let ran = match job.protocol {
        Protocol::H1 => raw::run(job, gauge).map_err(|e| e.to_string()),
        _ => client::run(job, gauge),
    };
    ran.unwrap_or_else(|problem| {
        gauge.fail(problem);
        Latencies::default()
    })
}
