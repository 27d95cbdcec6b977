//! Command line and runtime of both servers.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use millstream::middleware::AllowedHostsLayer;
use tokio::runtime::{Builder, Runtime};

#[derive(Debug)]
pub(crate) struct Options {
    /// Address to listen on; with port 0 the kernel chooses the port.
    pub(crate) listen: SocketAddr,
    /// Absolute path of the directory served under `/f/`.
    pub(crate) root: PathBuf,
    /// Number of threads that run the service.
    pub(crate) workers: NonZeroUsize,
}

#[derive(Debug)]
pub(crate) struct More {
    /// Whether each thread has its own runtime.
    pub(crate) per_core: bool,
    pub(crate) metrics: SocketAddr,
    /// Whether the metrics address may be other than loopback.
    pub(crate) metrics_anywhere: bool,
    /// Accepted hosts, in addition to IP addresses and `localhost`.
    pub(crate) hosts: AllowedHostsLayer,
}

impl Default for More {
    fn default() -> Self {
        Self {
            per_core: false,
            metrics: SocketAddr::from(([127, 0, 0, 1], 0)),
            metrics_anywhere: false,
            hosts: AllowedHostsLayer::local(),
        }
    }
}

const USAGE_OF_MORE: &str = "
  --per-core      a separate runtime, listener and CPU for each thread
  --metrics ADDR  address of GET /metrics, default 127.0.0.1:0; must be a loopback address
  --metrics-anywhere   permits other addresses; restrict access to them yourself
  --host NAME     an accepted host besides IP addresses and localhost; may be repeated";

impl Options {
    /// Parses the command line of `example`; options of this example alone go into `more`. The error text is complete:
    /// the usage, or the value to change.
    pub(crate) fn parse(example: &str, default_port: u16, mut more: Option<&mut More>) -> Result<Self, String> {
        let (short, long) = match more {
            Some(_) => (" [--per-core] [--metrics ADDR] [--metrics-anywhere] [--host NAME]", USAGE_OF_MORE),
            None => ("", ""),
        };
        let usage = format!(
            "usage: cargo run --release --example {example} -- [--listen ADDR] [--root DIR] [--workers N]{short}\n\
             \x20 --listen ADDR   address and port, default 127.0.0.1:{default_port}; port 0 takes a free one\n\
             \x20 --root DIR      directory served under /f/, default the current one\n\
             \x20 --workers N     threads, default the CPUs this process may run on{long}"
        );
        let mut listen = SocketAddr::from(([127, 0, 0, 1], default_port));
        let mut root = PathBuf::from(".");
        let mut workers = None;
        let mut args = std::env::args_os().skip(1);
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy().into_owned();
            match (&*flag, &mut more) {
                ("--per-core", Some(more)) => more.per_core = true,
                ("--metrics-anywhere", Some(more)) => more.metrics_anywhere = true,
                ("--listen" | "--root" | "--workers", _) | ("--metrics" | "--host", Some(_)) => {
                    let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{usage}"))?;
                    let text = value.to_string_lossy();
                    let address = || text.parse().map_err(|_| format!("{flag} {text}: not an address like {listen}"));
                    match (&*flag, &mut more) {
                        ("--listen", _) => listen = address()?,
                        ("--metrics", Some(more)) => more.metrics = address()?,
                        ("--host", Some(more)) => {
                            more.hosts = more.hosts.clone().and(&text).map_err(|e| e.to_string())?;
                        }
                        ("--workers", _) => {
                            let number = text.parse();
                            workers = Some(number.map_err(|_| format!("{flag} {text}: give a number of at least 1"))?);
                        }
                        _ => root = value.into(),
                    }
                }
                _ => return Err(usage),
            }
        }
        let root = match root.canonicalize() {
            Ok(path) if path.is_dir() => path,
            Ok(path) => return Err(format!("--root {}: this is a file, give a directory", path.display())),
            Err(e) => return Err(format!("--root {}: {e}; give an existing directory", root.display())),
        };
        // Respects the CPU affinity of the process.
        let workers = workers.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        Ok(Self { listen, root, workers })
    }
}

/// Builds a current-thread runtime for one worker, because a multi-thread runtime adds hand-overs; else one with
/// `workers` threads.
pub(crate) fn runtime(workers: NonZeroUsize) -> io::Result<Runtime> {
    match workers.get() {
        1 => Builder::new_current_thread().enable_all().build(),
        n => Builder::new_multi_thread().worker_threads(n).enable_all().build(),
    }
}
