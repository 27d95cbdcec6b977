//! Opens many streams to one URL for some seconds. Prints the event rate, the gaps, and the server's CPU time.
//!
//! `cargo run --release --example load -- --streams 100 --seconds 5 http://127.0.0.1:8080/tokens`
//!
//! All streams connect before the clock starts, so the CPU time is that of requests and events, not of accepts. A
//! response that ends is requested again until the time is over. The client runs on one thread: pin it to a CPU that
//! the server does not use. An event is a piece of a body that ends in an empty line; the gap between events of one
//! read is close to zero.

#[path = "../common/cli.rs"]
mod cli;
mod connection;
mod options;
mod report;
mod tally;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use measuring::client::Sender;
use tokio::task::JoinSet;

use connection::Server;
use options::Options;
use report::Outcome;
use tally::{Ends, Shared};

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = cli::runtime(NonZeroUsize::MIN).and_then(|runtime| runtime.block_on(run(&options)));
    cli::exit(outcome.and_then(|outcome| {
        print!("{outcome}");
        outcome.check()
    }))
}

async fn run(options: &Options) -> Result<Outcome, String> {
    let server = Arc::new(Server::new(&options.url, options.h2)?);
    let mut connections = Vec::with_capacity(options.streams as usize);
    for opened in 0..options.streams {
        let next = match connections.first().and_then(Sender::another) {
            Some(sender) => sender,
            None => {
                server.connect().await.map_err(|e| format!("{e} (connection {} of {})", opened + 1, options.streams))?
            }
        };
        connections.push(next);
    }

    let tally = Shared::default();
    let cpu_before = options.pid.map(report::cpu_time).transpose()?;
    let started = Instant::now();
    let mut streams = JoinSet::new();
    for connection in connections {
        streams.spawn(stream(server.clone(), connection, tally.clone()));
    }
    let end = tokio::time::sleep(Duration::from_secs(options.seconds));
    tokio::pin!(end);
    // Before the end, a stream task returns only if it failed; without any left there is nothing to measure.
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
    // Read before the streams are dropped: closing them costs server time that no event caused.
    let tally = tally.with(std::mem::take);
    let cpu = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    Ok(Outcome {
        url: options.url.clone(),
        h2: options.h2,
        streams: options.streams as usize,
        pid: options.pid,
        elapsed,
        cpu,
        tally,
    })
}

/// Repeats the request. Returns only on failure, with its reason.
async fn stream(server: Arc<Server>, mut connection: Sender, tally: Shared) -> String {
    let mut answered = false;
    loop {
        if let Err(problem) = response(&server, &mut connection, &tally, &mut answered).await {
            return problem;
        }
    }
}

async fn response(server: &Server, connection: &mut Sender, tally: &Shared, answered: &mut bool) -> Result<(), String> {
    if connection.is_closed() {
        *connection = server.connect().await?;
        tally.with(|t| t.reconnects += 1);
    }
    connection.ready().await.map_err(|e| server.problem(&e))?;
    let asked = Instant::now();
    let mut body = server.get(connection).await?;
    let mut ends = Ends::default();
    let mut previous = None;
    while let Some(data) = body.next(server).await? {
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
