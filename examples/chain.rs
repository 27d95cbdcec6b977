//! Writes files durably, each with one chain of operations: open a new file, write, sync, rename.
//!
//! `cargo run --release --example chain -- [--files N] [--size BYTES] [--beside] DIR` writes N files (default 32) of
//! BYTES bytes (default 4096) into DIR, all at once. It prints how many used io_uring and how many the blocking pool,
//! and the number of `io_uring_enter` calls. `--beside` also writes them with `tokio::fs` for comparison: ten rounds of
//! both, in alternating order, with median and range. `MILLSTREAM_IO=uring|epoll|auto` selects the driver.
//!
//! Only one run at a time may use DIR: a run overwrites the temporary files of a killed one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use measuring::statistics::quantile;
use millstream::fs::OpenOptions;
use millstream::fs::chain::ChainPath;
use millstream::fs::chain::{Chain, StepOutcome};
use millstream::metrics::Snapshot;
use millstream::runtime::driver_info;
use tokio::io::AsyncWriteExt;

use report::report;

#[path = "common/cli.rs"]
mod cli;
#[path = "common/report.rs"]
mod report;

/// Writes files durably, all at once, each by one chain: open, write, sync, rename.
#[derive(Parser)]
struct Options {
    /// Number of files.
    #[arg(long, value_name = "N", default_value_t = 32)]
    files: usize,
    /// Bytes of each file.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    size: usize,
    /// Also writes them with tokio::fs, in alternating rounds, and prints medians.
    #[arg(long)]
    beside: bool,
    /// Directory to write into.
    dir: PathBuf,
}

const ROUNDS: usize = 10;

/// Returns the temporary name of a file and its final name.
fn names(dir: &Path, n: usize) -> (PathBuf, PathBuf) {
    (dir.join(format!(".file-{n}.new")), dir.join(format!("file-{n}")))
}

/// Writes all files with chains. Returns the time taken and the number of files written by io_uring.
async fn by_chains(options: &Options, contents: &Bytes) -> Result<(Duration, usize), String> {
    let start = Instant::now();
    let new = OpenOptions::new().write(true).create(true).truncate(true);
    let chains = (0..options.files).map(|n| {
        let (temp, path) = names(&options.dir, n);
        let chain = Chain::new().open(&temp, new).write(contents.clone()).sync().rename(&temp, &path);
        (path, temp, tokio::spawn(chain.run()))
    });
    let (mut by_ring, mut failed) = (0, 0);
    for (path, temp, chain) in chains.collect::<Vec<_>>() {
        match chain.await.map_err(|e| e.to_string())? {
            Ok(done) => by_ring += usize::from(done.path() == ChainPath::Ring),
            Err(error) => {
                failed += 1;
                let done = error.report().outcomes().iter().filter(|outcome| matches!(outcome, StepOutcome::Done(_)));
                eprintln!("{}: {}; {} steps were done", path.display(), report(&error), done.count());
                let _ = std::fs::remove_file(temp);
            }
        }
    }
    let took = start.elapsed();
    if failed > 0 { Err(format!("{failed} of {} files failed", options.files)) } else { Ok((took, by_ring)) }
}

/// Does the same with `tokio::fs`, which uses the blocking pool for each call.
async fn by_tokio(options: &Options, contents: &Bytes) -> io::Result<Duration> {
    let start = Instant::now();
    let files = (0..options.files).map(|n| {
        let ((temp, path), contents) = (names(&options.dir, n), contents.clone());
        tokio::spawn(async move {
            let mut file = tokio::fs::File::create(&temp).await?;
            file.write_all(&contents).await?;
            file.sync_all().await?;
            tokio::fs::rename(temp, path).await
        })
    });
    for file in files.collect::<Vec<_>>() {
        file.await.map_err(io::Error::other)??;
    }
    Ok(start.elapsed())
}

async fn once(options: &Options, contents: &Bytes) -> Result<(), String> {
    let before = Snapshot::now();
    let (took, by_ring) = by_chains(options, contents).await?;
    let counts = Snapshot::now().since(&before);
    println!("{} files of {} bytes by chains: {took:.1?}", options.files, options.size);
    println!("  {by_ring} by ring, {} by the blocking pool", options.files - by_ring);
    println!("  io_uring_enter was called {} times for {} entries", counts.ring_enters, counts.ring_submissions);
    println!("  {}", driver_info());
    Ok(())
}

/// Runs both variants [`ROUNDS`] times and prints a comparison.
async fn beside(options: &Options, contents: &Bytes) -> Result<(), String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for chains in [round % 2 == 0, round % 2 == 1] {
            match chains {
                true => ours.push(by_chains(options, contents).await?.0),
                false => theirs.push(by_tokio(options, contents).await.map_err(|e| format!("tokio::fs: {e}"))?),
            }
        }
    }
    println!("{ROUNDS} rounds of {} files of {} bytes; {}", options.files, options.size, driver_info());
    let ours = show("chains", &ours);
    let theirs = show("tokio::fs", &theirs);
    println!("  tokio::fs takes {:.2} times as long", theirs.as_secs_f64() / ours.as_secs_f64());
    Ok(())
}

fn show(name: &str, times: &[Duration]) -> Duration {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    let [least, median, most] = [0.0, 0.5, 1.0].map(|share| Duration::from_secs_f64(quantile(&seconds, share)));
    println!("  {name:<9} median {median:.1?}, {least:.1?} to {most:.1?}");
    median
}

async fn run(options: &Options) -> Result<(), String> {
    let contents = Bytes::from(vec![b'x'; options.size]);
    if options.beside { beside(options, &contents).await } else { once(options, &contents).await }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(&Options::parse()).await)
}
