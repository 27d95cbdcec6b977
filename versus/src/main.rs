//! Runs millstream beside stock hyper and axum, and beside nginx, haproxy, Go and others where they are installed, and writes a
//! report for this machine.
//!
//! `cargo run --release -p versus -- --quick` takes three to four minutes; `--help` lists the options. Each server is a process
//! of its own, pinned to CPUs that the load does not use. Servers take turns in short rounds, so that other load on the
//! machine affects all of them; ratios are of one round, and their medians come with an interval.

use std::process::ExitCode;

use clap::Parser;
#[cfg(feature = "tls-aws-lc-rs")]
use tokio_rustls::rustls::crypto::aws_lc_rs as cryptography;
#[cfg(not(feature = "tls-aws-lc-rs"))]
use tokio_rustls::rustls::crypto::ring as cryptography;

#[path = "../../examples/common/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the servers use a part of what the examples share")]
mod common;
mod load;
mod options;
mod report;
mod run;
mod serve;

use common::cli;
use options::{Args, Command};
use report::Purpose;

fn main() -> ExitCode {
    let args = Args::parse();
    // Both ends and all contenders in Rust have the same cryptography.
    cryptography::default_provider().install_default().expect("called first");
    cli::exit(match args.command {
        None => run::run(&args.run, report::write),
        Some(Command::Compare { before, after }) => report::compare(&before, &after),
        Some(Command::Numbers { run, into, print, check }) => {
            let purpose = match (print, check) {
                (true, _) => Purpose::Print,
                (_, true) => Purpose::Check,
                _ => Purpose::Write,
            };
            report::numbers(&run, &into, purpose)
        }
        Some(Command::Page { run }) => report::page_again(&run),
        Some(Command::Serve(options)) => serve::serve(&options),
        Some(Command::Exec(options)) => run::exec(&options),
    })
}

/// Prints to stdout. A reader that has gone, such as `head`, is no error.
fn say(text: impl std::fmt::Display) {
    use std::io::Write;
    let _ = write!(std::io::stdout().lock(), "{text}");
}
