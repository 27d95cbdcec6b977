//! Prepends a header to files of any size.
//!
//! `cargo run --release --example prepend -- FILE...` reads the header from standard input unless `--header`
//! gives it. For each file it prints the time and how the contents were moved. It stops at the first failure.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use millstream::fs::{Durability, Moved, Prepend, PrependStrategy};

use report::report;

#[path = "common/cli.rs"]
mod cli;
#[path = "common/report.rs"]
mod report;

/// Interval between updates of the progress line.
const TICK: Duration = Duration::from_millis(100);

/// Prepends a header to files.
#[derive(Parser)]
struct Options {
    /// The header, with a line end after it; by default standard input, unchanged.
    #[arg(long, value_name = "TEXT")]
    header: Option<String>,
    /// atomic (a new file), in-place:BYTES (reserved for a header of that length), or insert (whole blocks).
    #[arg(long, value_name = "WAY", default_value = "atomic", value_parser = strategy_of)]
    strategy: PrependStrategy,
    /// full, data or none: durability after a power cut.
    #[arg(long, value_name = "WHAT", default_value = "full", value_parser = durability_of)]
    durability: Durability,
    /// If FILE is a symbolic link, changes its target.
    #[arg(long)]
    follow_link: bool,
    /// The files to change.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

fn strategy_of(name: &str) -> Result<PrependStrategy, String> {
    let reserved = || name.strip_prefix("in-place:")?.parse().ok();
    match name {
        "atomic" => Ok(PrependStrategy::Atomic),
        "insert" => Ok(PrependStrategy::InsertRange),
        _ => Ok(PrependStrategy::InPlace { reserved: reserved().ok_or("give atomic, in-place:BYTES or insert")? }),
    }
}

fn durability_of(name: &str) -> Result<Durability, String> {
    match name {
        "full" => Ok(Durability::Full),
        "data" => Ok(Durability::Data),
        "none" => Ok(Durability::None),
        _ => Err("give full, data or none".to_owned()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

async fn run(options: Options) -> Result<(), String> {
    let header = match options.header {
        Some(header) => Bytes::from(header + "\n"),
        None => {
            let mut header = Vec::new();
            std::io::stdin().lock().read_to_end(&mut header).map_err(|e| format!("standard input: {e}"))?;
            header.into()
        }
    };
    for file in options.files {
        let since = Instant::now();
        let prepend = Prepend::new(&file)
            .strategy(options.strategy)
            .durability(options.durability)
            .follow_link(options.follow_link)
            .on_progress(progress_line());
        let done = prepend.run(header.clone()).await.map_err(|e| report(&e))?;
        let seconds = since.elapsed().as_secs_f64();
        let way = match done.moved() {
            Moved::Stayed => "contents stayed in place".to_owned(),
            way => format!("{way}, {:.1} MB/s", done.body_len() as f64 / seconds / 1e6),
        };
        println!("{}: {} + {} bytes in {seconds:.3} s, {way}", file.display(), header.len(), done.body_len());
    }
    Ok(())
}

/// Returns a callback that overwrites one progress line on standard error, if that is a terminal, and clears it at the
/// end.
fn progress_line() -> impl FnMut(u64, u64) + Send {
    let watched = std::io::stderr().is_terminal();
    let mut last = Instant::now();
    move |moved, of| {
        if watched && (last.elapsed() >= TICK || moved == of) {
            last = Instant::now();
            let percent = moved as f64 / of as f64 * 100.0;
            let text = if moved == of { String::new() } else { format!("{moved} of {of} bytes, {percent:.0} %") };
            // A closed terminal is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{text:50}\r");
        }
    }
}
