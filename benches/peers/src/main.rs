//! Echo, relay and file copy by tokio, tokio-uring, monoio, compio and millstream, measured by turns.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml -- run [--quick] [--only echo|relay|file] [--rounds N]`
//!
//! The runner starts itself once more for each contender and round, as `peers serve JOB WAY ...`: a server of one thread,
//! pinned to one CPU. The load comes from the runner, pinned to another, and is the same for all. A server tells its own
//! CPU time, that of its blocking pool and of the kernel's workers for its ring included.

mod child;
mod echo;
mod file;
mod options;
mod relay;
mod strace;
mod table;
mod ways;

use std::io;
use std::process::ExitCode;

use measuring::cpus;
use options::{Command, Options};
use table::Section;
use ways::Job;

fn main() -> ExitCode {
    let done = match options::parse() {
        Ok(Command::Run(options)) => run(&options),
        Ok(Command::Serve { way, args }) => child::serve(way, &args),
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    cpus::pin_load()?;
    let mut sections: Vec<Section> = Vec::new();
    if options.wants(Job::Echo) {
        for connections in echo::CONNECTIONS {
            sections.push(echo::measure(options, connections)?);
        }
    }
    if options.wants(Job::Relay) {
        sections.push(relay::measure(options)?);
    }
    if options.wants(Job::File) {
        sections.push(file::measure(options)?);
    }
    let bars = echo::bars(&sections);
    println!("{}", table::head(options, cpus::ends()?));
    sections.iter().for_each(|section| println!("{section}"));
    if !bars.is_empty() {
        println!();
    }
    bars.iter().for_each(|bar| println!("{bar}"));
    Ok(())
}
