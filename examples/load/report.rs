//! Numbers of a run, and the server's CPU time.

use std::fmt;
use std::time::Duration;

use http::Uri;
use measuring::cpus;
use measuring::latencies::Latencies;

use super::tally::Tally;

/// Returns the CPU time of the server, in steps of 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration, String> {
    cpus::of_process(pid).map_err(|e| format!("--pid {pid}: {e}; give the running server's process id"))
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) url: Uri,
    pub(crate) h2: bool,
    pub(crate) streams: usize,
    pub(crate) pid: Option<u32>,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Option<Duration>,
    pub(crate) tally: Tally,
}

impl Outcome {
    /// Fails if a stream has failed, or has not been answered.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { tally, streams, elapsed, .. } = self;
        match (tally.failed, streams - tally.answered) {
            (0, 0) => Ok(()),
            (0, late) => Err(format!("{late} of {streams} streams had no answer after {:.1} s", elapsed.as_secs_f64())),
            (failed, _) => Err(format!("{failed} of {streams} streams failed")),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, elapsed, .. } = self;
        let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
        let protocol = if self.h2 { "one HTTP/2 connection" } else { "HTTP/1.1" };
        writeln!(f, "{}: {} streams, {protocol}, {:.1} s", self.url, self.streams, elapsed.as_secs_f64())?;
        writeln!(f, "events       {:>12}   {:>12.1} /s", tally.events, per_second(tally.events))?;
        writeln!(f, "bytes        {:>12}   {:>12.2} MB/s", tally.bytes, per_second(tally.bytes) / 1e6)?;
        if tally.events > 0 {
            quantiles(f, "event gap", &tally.gaps)?;
            quantiles(f, "first event", &tally.firsts)?;
        }
        if tally.responses > 0 {
            writeln!(f, "responses    {:>12}   {:>12.1} /s", tally.responses, per_second(tally.responses))?;
            quantiles(f, "response", &tally.times)?;
        }
        if let (Some(pid), Some(cpu)) = (self.pid, self.cpu) {
            write!(f, "cpu of {pid:<8}{:>9.2} s", cpu.as_secs_f64())?;
            for (count, name) in [(tally.events, "event"), (tally.responses, "response")] {
                if count > 0 {
                    write!(f, "   {:>9.2} µs/{name}", cpu.as_secs_f64() * 1e6 / count as f64)?;
                }
            }
            writeln!(f)?;
        }
        if tally.reconnects > 0 {
            writeln!(f, "reconnects   {:>12}", tally.reconnects)?;
        }
        if let Some(problem) = &tally.problem {
            writeln!(f, "FAILED       {:>12} streams, the first: {problem}", tally.failed)?;
        }
        let silent = self.streams - tally.answered;
        if silent > tally.failed {
            let why = if self.h2 {
                "servers limit the streams of one connection, often to 100 or 200; use fewer"
            } else {
                "the server was too slow to answer them all; use fewer streams or more seconds"
            };
            writeln!(f, "UNANSWERED   {silent:>12} streams: {why}")?;
        }
        Ok(())
    }
}

fn quantiles(f: &mut fmt::Formatter<'_>, name: &str, latencies: &Latencies) -> fmt::Result {
    let show = |share| latencies.quantile(share).map_or_else(|| "-".to_owned(), |d| format!("{d:.2?}"));
    writeln!(f, "{name:<13}p50 {:>12}  p99 {:>12}", show(0.5), show(0.99))
}
