//! Prepends a header to files of any size.
//!
//! `cargo run --release --example prepend -- [OPTIONS] FILE...` reads the header from standard input unless `--header`
//! gives it. For each file it prints the time and how the contents were moved. It stops at the first failure.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use millstream::fs::{Durability, Moved, Prepend, PrependStrategy};

use report::report;

#[path = "common/report.rs"]
mod report;

const USAGE: &str = "\
usage: cargo run --release --example prepend -- [OPTIONS] FILE...
  --header TEXT        the header, with a line end after it; by default standard input, unchanged
  --strategy WAY       atomic (default): a new file replaces the old one
                       in-place:BYTES: overwrites the first BYTES, which are reserved for a header of that length
                       insert: the file system inserts blocks; the header length must be a multiple of the block size
  --durability WHAT    full (default), data or none: durability after a power cut
  --follow-link        if FILE is a symbolic link, changes its target";

/// Interval between updates of the progress line.
const TICK: Duration = Duration::from_millis(100);

struct Options {
    files: Vec<PathBuf>,
    header: Option<String>,
    strategy: PrependStrategy,
    durability: Durability,
    follow_link: bool,
}

/// Parses the command line. The error text is complete.
fn parse(mut args: impl Iterator<Item = std::ffi::OsString>) -> Result<Options, String> {
    let (strategy, durability) = (PrependStrategy::default(), Durability::default());
    let mut options = Options { files: Vec::new(), header: None, strategy, durability, follow_link: false };
    while let Some(arg) = args.next() {
        match arg.to_string_lossy().as_ref() {
            "--follow-link" => options.follow_link = true,
            flag @ ("--header" | "--strategy" | "--durability") => {
                let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
                let value = value.to_string_lossy();
                let wrong = || format!("{flag} {value}: no such choice\n{USAGE}");
                match flag {
                    "--header" => options.header = Some(format!("{value}\n")),
                    "--strategy" => options.strategy = strategy_of(&value).ok_or_else(wrong)?,
                    _ => options.durability = durability_of(&value).ok_or_else(wrong)?,
                }
            }
            "--" => options.files.extend(args.by_ref().map(PathBuf::from)),
            flag if flag.starts_with("--") => return Err(USAGE.to_owned()),
            _ => options.files.push(arg.into()),
        }
    }
    if options.files.is_empty() { Err(USAGE.to_owned()) } else { Ok(options) }
}

fn strategy_of(name: &str) -> Option<PrependStrategy> {
    match name {
        "atomic" => Some(PrependStrategy::Atomic),
        "insert" => Some(PrependStrategy::InsertRange),
        other => Some(PrependStrategy::InPlace { reserved: other.strip_prefix("in-place:")?.parse().ok()? }),
    }
}

fn durability_of(name: &str) -> Option<Durability> {
    Some(match name {
        "full" => Durability::Full,
        "data" => Durability::Data,
        "none" => Durability::None,
        _ => return None,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match parse(std::env::args_os().skip(1)) {
        Ok(options) => run(options).await,
        Err(text) => Err(text),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let header = match options.header {
        Some(header) => Bytes::from(header),
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
