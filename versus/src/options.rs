//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Runs millstream beside other servers on this machine and writes a report: one page of HTML, and the raw results.
#[derive(clap::Parser, Debug)]
#[command(name = "versus", args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunOptions {
    /// Runs a part of the matrix in three to four minutes, beside the stock server only.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs the cells whose names contain this; `--list` shows them. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Vec<String>,
    /// Prints the cells, the servers, and how long they would take, and ends.
    #[arg(long)]
    pub(crate) list: bool,
    /// Time of one round [default: 1, with --quick 0.4].
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Rounds of each cell [default: 7, with --quick 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Directory of the results and of temporary files.
    #[arg(long, value_name = "DIR", default_value = "target/versus")]
    pub(crate) out: PathBuf,
    /// Continues an interrupted run: the file of lines that it wrote. Takes the options of that run.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Servers to compare, separated by commas [default: all that are installed].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Compares settings of millstream with its defaults, in place of servers.
    #[arg(long)]
    pub(crate) sweep: bool,
    /// Leaves out the pass that counts system calls.
    #[arg(long)]
    pub(crate) no_calls: bool,
    /// Runs servers and load in a network namespace whose loopback device has this MTU, as 1500. Needs root, unshare and ip.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_536))]
    pub(crate) mtu: Option<u32>,
    /// Says that this program was started again in that namespace.
    #[arg(long, hide = true)]
    pub(crate) in_namespace: bool,
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum Command {
    /// Says what has changed between two runs beyond their noise.
    Compare { before: PathBuf, after: PathBuf },
    /// Writes the tables of a run in Markdown into a page, in place of those of another run.
    Numbers {
        run: PathBuf,
        /// The page. The tables go between its lines `<!-- versus begin -->` and `<!-- versus end -->`.
        #[arg(long, value_name = "FILE", default_value = "versus/RESULTS.md")]
        into: PathBuf,
        /// Prints the tables, and writes nothing.
        #[arg(long)]
        print: bool,
        /// Writes nothing, and fails if the page has other tables.
        #[arg(long, conflicts_with = "print")]
        check: bool,
    },
    /// Writes the page of a run again, beside its results.
    Page { run: PathBuf },
    #[command(hide = true)]
    Serve(ServeOptions),
    #[command(hide = true)]
    Exec(ExecOptions),
}

/// One of the servers that this program can be. It prints its address and runs until it is killed.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeOptions {
    #[arg(value_enum)]
    pub(crate) server: Own,
    /// Directory served under /f/.
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// Directory that PUT /u/NAME writes into.
    #[arg(long)]
    pub(crate) uploads: PathBuf,
    #[arg(long, default_value = "1")]
    pub(crate) workers: NonZeroUsize,
    /// Directory with cert.pem and key.pem.
    #[arg(long)]
    pub(crate) tls: Option<PathBuf>,
    /// Answers every request with the events of one hub, so many a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) hz: Option<u32>,
    /// Copies bytes between each connection and a new one to this address.
    #[arg(long)]
    pub(crate) relay: Option<SocketAddr>,
    /// Passes requests on to this address.
    #[arg(long, conflicts_with = "relay")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Directory with the cert.pem of the server that requests are passed on to, which then speaks TLS.
    #[arg(long, requires = "proxy")]
    pub(crate) trust: Option<PathBuf>,
    /// Settings of millstream, as `gather-us=0`.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) settings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Own {
    Millstream,
    Stock,
}

/// Becomes another program, on given CPUs, that gets SIGTERM when this one's parent ends.
#[derive(clap::Args, Debug)]
pub(crate) struct ExecOptions {
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) cpus: Vec<usize>,
    #[arg(long)]
    pub(crate) parent: i32,
    #[arg(last = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if (0.05..=600.0).contains(&seconds) { Ok(seconds) } else { Err("give 0.05 to 600 seconds".to_owned()) }
}
