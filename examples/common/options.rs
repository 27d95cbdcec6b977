//! The command line and the runtime of the two servers.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use tokio::runtime::{Builder, Runtime};

/// What the command line asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Where to listen; port 0 lets the kernel choose.
    pub(crate) listen: SocketAddr,
    /// The directory behind `/f/`, absolute.
    pub(crate) root: PathBuf,
    /// Threads that run the service.
    pub(crate) workers: NonZeroUsize,
}

impl Options {
    /// Reads the command line of `example`; `per_core` is set by an option, where there is such a choice. The error text is ready to be printed: the usage, or what to change.
    pub(crate) fn parse(example: &str, default_port: u16, mut per_core: Option<&mut bool>) -> Result<Self, String> {
        let more = if per_core.is_some() { " [--per-core]" } else { "" };
        let mut usage = format!(
            "usage: cargo run --release --example {example} -- [--listen ADDR] [--root DIR] [--workers N]{more}\n\
             \x20 --listen ADDR   address and port, default 127.0.0.1:{default_port}; port 0 takes a free one\n\
             \x20 --root DIR      directory served under /f/, default the current one\n\
             \x20 --workers N     threads, default the CPUs this process may run on"
        );
        if per_core.is_some() {
            usage += "\n  --per-core      a runtime, a listener and a CPU for each thread, which share nothing";
        }
        let mut listen = SocketAddr::from(([127, 0, 0, 1], default_port));
        let mut root = PathBuf::from(".");
        let mut workers = None;
        let mut args = std::env::args_os().skip(1);
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy().into_owned();
            if let ("--per-core", Some(per_core)) = (&*flag, &mut per_core) {
                **per_core = true;
                continue;
            }
            if !matches!(flag.as_str(), "--listen" | "--root" | "--workers") {
                return Err(usage);
            }
            let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{usage}"))?;
            if flag == "--root" {
                root = value.into();
                continue;
            }
            let value = value.to_string_lossy();
            if flag == "--listen" {
                listen = value.parse().map_err(|_| format!("--listen {value}: not an address like {listen}"))?;
            } else {
                workers = Some(value.parse().map_err(|_| format!("--workers {value}: give a number of at least 1"))?);
            }
        }
        let root = match root.canonicalize() {
            Ok(path) if path.is_dir() => path,
            Ok(path) => return Err(format!("--root {}: this is a file, give a directory", path.display())),
            Err(e) => return Err(format!("--root {}: {e}; give an existing directory", root.display())),
        };
        // Respects the affinity mask, so a pinned process gets as many threads as it has CPUs.
        let workers = workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        Ok(Self { listen, root, workers })
    }
}

/// One thread for one worker, because a runtime of many threads pays for hand-overs it cannot use; else `workers` threads.
pub(crate) fn runtime(workers: NonZeroUsize) -> io::Result<Runtime> {
    match workers.get() {
        1 => Builder::new_current_thread().enable_all().build(),
        n => Builder::new_multi_thread().worker_threads(n).enable_all().build(),
    }
}
