//! `sim`: the proxy between simulated clients and a simulated upstream, on a clock that is paused, in one thread.
//! Everything that happens follows from a seed.
//!
//! ```sh
//! MILLSTREAM_SIM_SEED=7 cargo test -p millstream-proxy --test sim replay -- --nocapture     # one seed, with its trace
//! MILLSTREAM_SIM_SECONDS=600 cargo test -p millstream-proxy --test sim seeds -- --nocapture # new seeds, ten minutes
//! ```
//!
//! ```text
//!  client ─ Link ─┬─────────────────────────▶ server::serve ─ Proxy ─ UnixStream ═ kernel ═ pump ─ Link ─ upstream
//!                 └─ pump ═ kernel (half of the seeds) ─▲
//! ```
//!
//! The proxy connects by itself, so there are sockets of the kernel between it and its upstream. They pass bytes on
//! without time. All choices follow from the seed, but a replay is not always the same to the byte: the order in which
//! the kernel reports sockets, and the moments at which the runtime asks it, shift bytes by a few milliseconds. A fault
//! that depends on such a shift may need several replays.
//!
//! Not simulated are TLS, resets by the upstream that look other than an end (see `testkit::sim::kernel`), and races
//! between threads.

#![cfg(all(target_os = "linux", not(millstream_portable)))]

mod ask;
mod client1;
mod client2;
mod crowd;
mod script;
mod terms;
mod tunnel;
mod upstream1;
mod upstream2;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use world::{Outcome, run};

/// Seeds of a run without `MILLSTREAM_SIM_SECONDS`.
const SEEDS: u64 = 12;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

/// Runs a seed; prints the command that repeats it if something panics.
fn run_named(seed: u64) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| run(seed, false))).unwrap_or_else(|panic| {
        println!("seed {seed} panics\n    {}", command(seed));
        resume_unwind(panic)
    })
}

fn command(seed: u64) -> String {
    format!("MILLSTREAM_SIM_SEED={seed} cargo test -p millstream-proxy --test sim replay -- --nocapture")
}

#[test]
fn seeds_find_no_fault() {
    let seconds = number("MILLSTREAM_SIM_SECONDS").map(Duration::from_secs);
    let first = number("MILLSTREAM_SIM_SEED").unwrap_or(0);
    let (start, mut seed, mut requests, mut events) = (Instant::now(), first, 0, 0);
    let mut complaints = Vec::new();
    while seconds.map_or(seed < first + SEEDS, |seconds| start.elapsed() < seconds) {
        let outcome = run_named(seed);
        if let Some(fault) = outcome.faults.first() {
            let count = outcome.faults.len();
            complaints.push(format!("seed {seed}: {count} faults, the first {fault}\n    {}\n", command(seed)));
        }
        (requests, events) = (requests + outcome.requests, events + outcome.events);
        seed += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{} seeds in {seconds:.1} s: {requests} requests, {events} events", seed - first);
    assert!(complaints.is_empty(), "{} seeds failed:\n{}", complaints.len(), complaints.concat());
}

/// Prints the trace of one seed.
#[test]
fn replay() {
    let Some(seed) = number("MILLSTREAM_SIM_SEED") else { return };
    let outcome = run(seed, true);
    println!("{}", outcome.text.as_deref().unwrap_or_default());
    println!("seed {seed}: {:016x}, {} events\n{}", outcome.hash, outcome.events, outcome.faults.join("\n"));
    assert!(outcome.faults.is_empty());
}
