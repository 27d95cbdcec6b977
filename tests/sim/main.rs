//! `sim`: the server over a simulated network, on a clock that is paused, in one thread. Everything that happens follows
//! from a seed.
//!
//! ```sh
//! MILLSTREAM_SIM_SEED=7 cargo test --test sim replay -- --nocapture    # one seed, with its trace
//! MILLSTREAM_SIM_SECONDS=600 cargo test --test sim seeds -- --nocapture # new seeds for ten minutes
//! ```

mod answer;
mod client;
mod endings;
mod events;
mod service;
mod world;

use std::env;
use std::time::{Duration, Instant};

use world::{Outcome, run};

/// Seeds of a run without `MILLSTREAM_SIM_SECONDS`.
const SEEDS: u64 = 20;
/// Seeds that run twice.
const SAME: u64 = 4;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

/// Returns what the server did wrong, with the command that repeats it.
fn complaint(seed: u64, outcome: &Outcome) -> Option<String> {
    let first = outcome.faults.first()?;
    let command = format!("MILLSTREAM_SIM_SEED={seed} cargo test --test sim replay -- --nocapture");
    Some(format!("seed {seed}: {} faults, the first {first}\n    {command}\n", outcome.faults.len()))
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..SAME {
        let (one, other) = (run(seed, true), run(seed, true));
        let different =
            one.text.iter().zip(&other.text).find_map(|(one, other)| {
                one.lines().zip(other.lines()).enumerate().find(|(_, (one, other))| one != other)
            });
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}: {different:?}");
    }
}

#[test]
fn seeds_find_no_fault() {
    let seconds = number("MILLSTREAM_SIM_SECONDS").map(Duration::from_secs);
    let first = number("MILLSTREAM_SIM_SEED").unwrap_or(0);
    let (start, mut seed, mut hours, mut requests, mut events) = (Instant::now(), first, 0.0, 0, 0);
    let mut complaints = Vec::new();
    while seconds.map_or(seed < first + SEEDS, |seconds| start.elapsed() < seconds) {
        let outcome = run(seed, false);
        complaints.extend(complaint(seed, &outcome));
        hours += outcome.connection_hours;
        (requests, events) = (requests + outcome.requests, events + outcome.events);
        seed += 1;
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} seeds in {:.1} s: {hours:.0} connection-hours, {:.0} a minute; {requests} requests, {events} events",
        seed - first,
        minutes * 60.0,
        hours / minutes
    );
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
