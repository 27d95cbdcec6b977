//! Opens many streams to one URL for some seconds and says how fast events came and what they cost the server.
//!
//! `cargo run --release --example load -- --streams 100 --seconds 5 [--h2] [--pid PID] http://127.0.0.1:8080/tokens`
//!
//! All streams are connected before the clock starts, so the CPU time is that of requests and events, not of accepts.
//! A response that ends is asked for again until the time is over. Everything runs on one thread: pin this program to
//! another CPU than the server's and it disturbs least. Events are the pieces of a body that end in an empty line;
//! the gap between events that arrived in one read is close to zero.

mod connection;
mod histogram;
mod options;
mod report;
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use connection::{Connection, Target};
use options::Options;
use report::Outcome;
use tally::{Ends, Shared};

fn main() -> ExitCode {
    let outcome = Options::parse().and_then(|options| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| format!("the runtime did not start: {e}"))?;
        runtime.block_on(run(&options))
    });
    match outcome {
        Ok(outcome) => {
            print!("{outcome}");
            if outcome.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<Outcome, String> {
    let target = Arc::new(Target::new(&options.url, options.h2)?);
    let mut connections = Vec::with_capacity(options.streams);
    for opened in 0..options.streams {
        let next = match connections.first() {
            Some(Connection::Two(sender)) => Connection::Two(sender.clone()),
            _ => {
                target.connect().await.map_err(|e| format!("{e} (connection {} of {})", opened + 1, options.streams))?
            }
        };
        connections.push(next);
    }

    let tally = Shared::default();
    let cpu_before = options.pid.map(report::cpu_time).transpose()?;
    let started = Instant::now();
    let mut streams = JoinSet::new();
    for connection in connections {
        streams.spawn(stream(target.clone(), connection, tally.clone()));
    }
    let end = tokio::time::sleep(Duration::from_secs(options.seconds));
    tokio::pin!(end);
    // Before the end a stream only leaves because it failed; when none is left there is nothing to wait for.
    loop {
        tokio::select! {
            () = &mut end => break,
            ended = streams.join_next() => match ended {
                Some(Ok(problem)) => tally.with(|t| t.fail(problem)),
                Some(Err(e)) => return Err(format!("a stream of this program panicked: {e}")),
                None => break,
            },
        }
    }
    let elapsed = started.elapsed();
    let cpu_after = options.pid.map(report::cpu_time).transpose()?;
    // Read before the streams are dropped: closing them costs the server time that is not an event's.
    let tally = tally.with(std::mem::take);
    let cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    Ok(Outcome {
        url: options.url.clone(),
        h2: options.h2,
        streams: options.streams,
        pid: options.pid,
        elapsed,
        cpu,
        tally,
    })
}

/// Asks again and again; returns only with what went wrong.
async fn stream(target: Arc<Target>, mut connection: Connection, tally: Shared) -> String {
    let mut answered = false;
    loop {
        if let Err(problem) = response(&target, &mut connection, &tally, &mut answered).await {
            return problem;
        }
    }
}

async fn response(
    target: &Target,
    connection: &mut Connection,
    tally: &Shared,
    answered: &mut bool,
) -> Result<(), String> {
    if connection.is_closed() {
        *connection = target.connect().await?;
        tally.with(|t| t.reconnects += 1);
    }
    connection.ready(target).await?;
    let asked = Instant::now();
    let mut body = connection.get(target).await?;
    let mut ends = Ends::default();
    let mut previous = None;
    while let Some(data) = body.next(target).await? {
        let now = Instant::now();
        let events = ends.count(&data);
        tally.with(|t| {
            t.bytes += data.len() as u64;
            if events == 0 {
                return;
            }
            t.events += events;
            match previous {
                Some(previous) => t.gaps.record(now.duration_since(previous), 1),
                None => t.firsts.record(now.duration_since(asked), 1),
            }
            t.gaps.record(Duration::ZERO, events - 1);
        });
        if events > 0 {
            previous = Some(now);
        }
        if !std::mem::replace(answered, true) {
            tally.with(|t| t.answered += 1);
        }
    }
    tally.with(|t| {
        t.responses += 1;
        t.times.record(asked.elapsed(), 1);
    });
    Ok(())
}
