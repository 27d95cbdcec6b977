//! Copies a file, shows progress, and prints the path that the bytes took.
//!
//! `cargo run --release --example cp -- SRC DST`, where `-` is standard input or output. An existing target is
//! overwritten in place, so a failed copy leaves a partial file.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use millstream::copy::{Copier, CopyReport};
use tokio::fs::File;

use report::report;

#[path = "common/cli.rs"]
mod cli;
#[path = "common/report.rs"]
mod report;

/// Copies a file, and prints the path that the bytes took.
#[derive(Parser)]
struct Options {
    /// The file to copy, or - for standard input.
    from: OsString,
    /// The file to write, created or overwritten, or - for standard output.
    to: OsString,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Options { from, to } = Options::parse();
    cli::exit(run(&from, &to).await)
}

async fn run(from: &OsString, to: &OsString) -> Result<(), String> {
    let failed = |name: &OsStr| {
        let name = name.display().to_string();
        move |e: std::io::Error| format!("{name}: {e}")
    };
    let mut source = match from.to_str() {
        Some("-") => own(std::io::stdin()).map_err(failed(from))?,
        _ => File::open(from).await.map_err(failed(from))?,
    };
    let status = source.metadata().await.map_err(failed(from))?;
    if status.is_dir() {
        return Err(format!("{}: this is a directory, give a file", from.display()));
    }
    let mut target = match to.to_str() {
        Some("-") => own(std::io::stdout()).map_err(failed(to))?,
        _ => {
            // Not truncated at once, because it may be the source.
            let target = File::options().write(true).create(true).truncate(false).open(to).await.map_err(failed(to))?;
            let other = target.metadata().await.map_err(failed(to))?;
            if is_same(&status, &other) {
                return Err(format!("{} and {} are the same file", from.display(), to.display()));
            }
            if other.is_file() {
                target.set_len(0).await.map_err(failed(to))?;
            }
            target
        }
    };
    let bar = bar();
    let shown = bar.clone();
    let since = Instant::now();
    let mut copy = Copier::new().on_progress(move |bytes, of| {
        if let Some(of) = of {
            shown.set_length(of);
        }
        shown.set_position(bytes);
    });
    let copied = copy.run(&mut source, &mut target).await;
    bar.finish_and_clear();
    let report = copied.map_err(|e| format!("{} to {}: {}", from.display(), to.display(), report(&e)))?;
    eprintln!("{}", told(&report, since.elapsed().as_secs_f64()));
    Ok(())
}

/// Duplicates a standard stream into a tokio file; std keeps its own descriptor.
fn own(stream: impl AsFd) -> std::io::Result<File> {
    let fd: OwnedFd = stream.as_fd().try_clone_to_owned()?;
    Ok(File::from_std(fd.into()))
}

fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino()) && one.is_file()
}

/// Returns a progress bar on standard error, hidden unless that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bytes} of {total_bytes} [{bar:40}] {bytes_per_sec}, {eta}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn told(report: &CopyReport, seconds: f64) -> String {
    let rate = report.bytes as f64 / seconds.max(1e-9) / 1e6;
    let mut text = format!("{} bytes in {seconds:.3} s, {rate:.1} MB/s, by {}", report.bytes, report.path);
    if let Some(refused) = report.refused {
        text += &format!("; {refused} was refused");
    }
    text
}
