//! Prints which kernel features millstream can use on this machine, and the effect of each missing one. With `--measure`
//! it also prints what each path costs here, and whether `auto` takes the cheapest.
//!
//! `cargo run --release --example doctor -- --measure`. The exit status is 0 whatever is missing: each missing feature
//! has a fallback or a documented refusal.

#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod measure;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use millstream::runtime::{DriverBuilder, Io, driver_info};
use millstream::{Capabilities, Support};

#[path = "../common/cli.rs"]
mod cli;

/// Prints which kernel features millstream can use on this machine, and the effect of each missing one.
#[derive(Parser)]
struct Options {
    /// Measures what each path costs on this machine; needs Linux, and --release
    #[arg(long)]
    measure: bool,

    /// Seconds that --measure takes, about
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, requires = "measure")]
    seconds: f64,

    /// Measures over a pair of virtual interfaces in place of loopback; needs root
    #[arg(long, requires = "measure")]
    veth: bool,

    /// Measures on the way to a machine that runs `doctor --discard`
    #[arg(long, value_name = "ADDR", requires = "measure", conflicts_with = "veth")]
    to: Option<SocketAddr>,

    /// Discards what arrives at this address, for --to on another machine
    #[arg(long, value_name = "ADDR", exclusive = true)]
    discard: Option<SocketAddr>,
}

/// Name of a capability, its getter, and the effect of its absence.
type Check = (&'static str, fn(&Capabilities) -> &Support, &'static str);

const CHECKS: &[Check] = &[
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
    let options = Options::parse();
    cli::exit(match options.discard {
        Some(addr) => discard(addr),
        None => {
            run().map_err(|e| e.to_string()).and_then(|()| if options.measure { measure(&options) } else { Ok(()) })
        }
    })
}

#[cfg(target_os = "linux")]
fn discard(addr: SocketAddr) -> Result<(), String> {
    link::discard_all(addr).map_err(|e| format!("{addr}: {e}"))
}

#[cfg(target_os = "linux")]
fn measure(options: &Options) -> Result<(), String> {
    let link = match options.to {
        Some(addr) => link::Link::Peer(addr),
        None if options.veth => link::Link::Veth(link::Veth::new()?),
        None => link::Link::Loopback,
    };
    println!();
    if cfg!(debug_assertions) {
        println!("This build is not optimized: its figures mean nothing. Use --release.");
    }
    let seconds = std::time::Duration::try_from_secs_f64(options.seconds).map_err(|e| format!("--seconds: {e}"))?;
    measure::run(&link, seconds).map_err(|e| format!("{link}: {e}"))
}

#[cfg(not(target_os = "linux"))]
fn discard(_: SocketAddr) -> Result<(), String> {
    Err("--discard needs Linux".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn measure(_: &Options) -> Result<(), String> {
    Err("--measure needs Linux".to_owned())
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
