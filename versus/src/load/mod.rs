//! The load: a closed loop on each connection, or readers of an endless stream of events.
//!
//! HTTP/1.1 without TLS is spoken by [`raw`], which costs little beside the server; HTTP/2 and TLS by hyper's client in
//! [`client`]. Both report through a [`Gauge`], so that the clock, the CPU time of the server and the counts are read at
//! the same moments, while the load runs on.

pub(crate) mod client;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
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
    /// Bytes that each request sends.
    pub(crate) upload: Option<&'static [u8]>,
    /// Whether responses are endless streams of events.
    pub(crate) events: bool,
    /// Whether each request has a connection of its own, and then whether it resumes the session of the one before.
    pub(crate) handshakes: Option<bool>,
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
    /// Bytes of bodies, in the direction that is measured.
    bytes: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// The counts of a gauge at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) done: u64,
    pub(crate) bytes: u64,
}

impl Gauge {
    pub(crate) fn start_measuring(&self) {
        self.phase.store(MEASURE, Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.phase.store(STOP, Relaxed);
    }

    pub(crate) fn count(&self) -> Count {
        Count { done: self.done.load(Relaxed), bytes: self.bytes.load(Relaxed) }
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
