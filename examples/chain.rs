//! Writes files durably, each by one chain: open a new one, write, sync, rename.
//!
//! `cargo run --release --example chain -- [--files N] [--size BYTES] [--beside] DIR` writes N files (default 32) of so many
//! bytes (default 4096) into DIR, all at once, and says which way they went and how often the kernel was entered.
//! `--beside` does the same by `tokio::fs`, for comparison. `MILLSTREAM_IO=uring|epoll|auto` chooses the way.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream::chain::Way;
use millstream::fs::OpenOptions;
use millstream::observe::Snapshot;
use millstream::runtime::driver_info;
use millstream::{Chain, Outcome};
use tokio::io::AsyncWriteExt;

const USAGE: &str = "usage: cargo run --release --example chain -- [--files N] [--size BYTES] [--beside] DIR";

struct Options {
    files: usize,
    size: usize,
    beside: bool,
    dir: PathBuf,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { files: 32, size: 4096, beside: false, dir: PathBuf::new() };
    let number = |value: Option<String>| value.and_then(|value| value.parse().ok()).ok_or(USAGE);
    while let Some(arg) = args.next() {
        match &*arg {
            "--files" => options.files = number(args.next())?,
            "--size" => options.size = number(args.next())?,
            "--beside" => options.beside = true,
            flag if flag.starts_with("--") => return Err(USAGE.to_owned()),
            dir if options.dir.as_os_str().is_empty() => options.dir = dir.into(),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if options.dir.as_os_str().is_empty() { Err(USAGE.to_owned()) } else { Ok(options) }
}

/// The file under its first name, and under the one it gets once it is complete.
fn names(dir: &Path, n: usize) -> (PathBuf, PathBuf) {
    (dir.join(format!(".file-{n}.new")), dir.join(format!("file-{n}")))
}

/// Writes all files by chains. Returns the time it took.
async fn by_chains(options: &Options, contents: &Bytes) -> Result<Duration, String> {
    let (start, before) = (Instant::now(), Snapshot::now());
    let new = OpenOptions::new().write(true).create_new(true);
    let chains = (0..options.files).map(|n| {
        let (temp, path) = names(&options.dir, n);
        let chain = Chain::new().open(&temp, new).write(contents.clone()).sync().rename(&temp, &path);
        (path, temp, tokio::spawn(chain.run()))
    });
    let (mut by_ring, mut failed) = (0, 0);
    for (path, temp, chain) in chains.collect::<Vec<_>>() {
        match chain.await.map_err(|e| e.to_string())? {
            Ok(report) => by_ring += usize::from(report.way() == Way::Ring),
            Err(error) => {
                failed += 1;
                let done = error.report().outcomes().iter().filter(|outcome| matches!(outcome, Outcome::Done(_)));
                eprintln!("{}: {error}; {} steps were done", path.display(), done.count());
                // Not if it was there before: then it is another's.
                if error.step() != Some(0) {
                    let _ = std::fs::remove_file(temp);
                }
            }
        }
    }
    let (took, counts) = (start.elapsed(), Snapshot::now().since(&before));
    println!("{} files of {} bytes by chains: {took:.1?}", options.files, options.size);
    println!("  {by_ring} by ring, {} by the blocking pool", options.files - by_ring - failed);
    println!("  io_uring_enter was called {} times for {} entries", counts.ring_enters, counts.ring_submissions);
    println!("  {}", driver_info());
    if failed > 0 { Err(format!("{failed} of {} files failed", options.files)) } else { Ok(took) }
}

/// The same by tokio::fs: a trip to the blocking pool for each call.
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

async fn run(options: &Options) -> Result<(), String> {
    let contents = Bytes::from(vec![b'x'; options.size]);
    let ours = by_chains(options, &contents).await?;
    if options.beside {
        let theirs = by_tokio(options, &contents).await.map_err(|e| e.to_string())?;
        println!("the same by tokio::fs: {theirs:.1?}, {:.2} times as long", theirs.as_secs_f64() / ours.as_secs_f64());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match parse(std::env::args().skip(1)) {
        Ok(options) => run(&options).await,
        Err(usage) => Err(usage),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
