//! Prints which kernel features millstream can use on this machine, and the effect of each missing one.
//!
//! `cargo run --example doctor`. The exit status is 0 whatever is missing: each missing feature has a fallback or a
//! documented refusal.

use std::process::ExitCode;

use clap::Parser;
use millstream::runtime::{DriverBuilder, Io, driver_info};
use millstream::{Capabilities, Support};

#[path = "common/cli.rs"]
mod cli;

/// Prints which kernel features millstream can use on this machine, and the effect of each missing one.
#[derive(Parser)]
struct Options {}

/// Name of a capability, its getter, and the effect of its absence.
type Check = (&'static str, fn(&Capabilities) -> &Support, &'static str);

const CHECKS: [Check; 6] = [
    (
        "sendfile",
        Capabilities::sendfile,
        "File bodies are copied to the socket from their mapping: same bytes, more CPU time per MB. Usual causes: a \
         seccomp profile, or a sandbox such as gVisor.",
    ),
    (
        "read_nowait",
        Capabilities::read_nowait,
        "A small file that has no mapping is read on the blocking pool, one thread hop each, even if the page cache has \
         it. Usual cause: Linux before 4.14.",
    ),
    (
        "openat2",
        Capabilities::openat2,
        "Directories are not served at all. No other call confines a path to a directory during renames, and a \
         weaker check would be unsafe. Needs Linux 5.6; container runtimes with an old seccomp \
         profile block it, then update the runtime or allow the call.",
    ),
    (
        "cachestat",
        Capabilities::cachestat,
        "Whether a file is in memory cannot be asked, so each file is read once on the blocking pool to be sure. Needs \
         Linux 6.5.",
    ),
    (
        "mapping",
        Capabilities::mapping,
        "File bodies are read into pool memory and copied to the socket; sendfile is not used for them. Usual causes: \
         a limit on address space (ulimit -v), or a SIGBUS handler that could not be installed.",
    ),
    (
        "io_uring",
        Capabilities::io_uring,
        "Operations on files go to the blocking pool, one thread hop for each call or chain: same answers, more CPU time \
         when many come at once. Usual causes: a container's seccomp profile (Docker and containerd block io_uring by \
         default), sysctl kernel.io_uring_disabled, a limit on locked memory (ulimit -l) too small for even 32 entries, \
         or a kernel whose io_uring lacks features of Linux 5.12.",
    ),
];

fn main() -> ExitCode {
    let Options {} = Options::parse();
    cli::exit(run().map_err(|e| e.to_string()))
}

fn run() -> std::io::Result<()> {
    let capabilities = Capabilities::get();
    println!("{capabilities}");
    let missing: Vec<&Check> = CHECKS.iter().filter(|(_, ask, _)| !ask(capabilities).is_yes()).collect();
    if missing.is_empty() {
        println!("Nothing is missing: every path millstream has is open here.");
    }
    for (name, ask, meaning) in missing {
        println!("{name}: {}\n  {meaning}", ask(capabilities));
    }
    files()
}

/// Reads from a file and prints the driver that did it.
fn files() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Selects io_uring if available, unless the environment selects a driver.
        if std::env::var_os("MILLSTREAM_IO").is_none() {
            DriverBuilder::new().io(Io::Uring).install()?;
        }
        millstream::fs::File::open(std::env::current_exe()?).await?.read_at(0, 4096).await?;
        println!("files: {}", driver_info());
        Ok(())
    })
}
