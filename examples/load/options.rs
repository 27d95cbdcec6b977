//! Command line options.

use http::Uri;

const USAGE: &str = "\
usage: cargo run --release --example load -- [--streams N] [--seconds S] [--h2] [--pid PID] URL
  --streams N    concurrent streams, default 100: one connection each, or one for all with --h2
  --seconds S    duration, default 5
  --h2           HTTP/2 without TLS (prior knowledge)
  --pid PID      the server's process, to read its CPU time
  URL            http://HOST:PORT/PATH, for example http://127.0.0.1:8080/tokens";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) url: Uri,
    pub(crate) streams: usize,
    pub(crate) seconds: u64,
    pub(crate) h2: bool,
    pub(crate) pid: Option<u32>,
}

impl Options {
    /// Parses the command line. The error text is complete.
    pub(crate) fn parse() -> Result<Self, String> {
        let (mut url, mut streams, mut seconds, mut h2, mut pid) = (None, 100, 5, false, None);
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--streams" => streams = number(&arg, args.next(), 1_000_000)? as usize,
                "--seconds" => seconds = number(&arg, args.next(), 3600)?,
                "--pid" => pid = Some(number(&arg, args.next(), u32::MAX.into())? as u32),
                "--h2" => h2 = true,
                text if !text.starts_with('-') && url.is_none() => {
                    url = Some(text.parse().map_err(|e| format!("{text}: {e}\n{USAGE}"))?);
                }
                _ => return Err(USAGE.into()),
            }
        }
        let url = url.ok_or(USAGE)?;
        Ok(Self { url, streams, seconds, h2, pid })
    }
}

fn number(flag: &str, value: Option<String>, most: u64) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{flag} needs a number\n{USAGE}"))?;
    let valid = value.parse().ok().filter(|n| (1..=most).contains(n));
    valid.ok_or_else(|| format!("{flag} {value}: give a number from 1 to {most}"))
}
