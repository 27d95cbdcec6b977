//! Command line options.

use clap::Parser;
use http::Uri;

/// Opens many streams to one URL. Prints the event rate, the gaps, and the server's CPU time.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Concurrent streams: one connection each, or one for all with --h2.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) streams: u32,
    /// Duration.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// HTTP/2 without TLS (prior knowledge).
    #[arg(long)]
    pub(crate) h2: bool,
    /// The server's process, to read its CPU time.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// http://HOST:PORT/PATH, for example http://127.0.0.1:8080/tokens.
    pub(crate) url: Uri,
}
