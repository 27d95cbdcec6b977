//! The command line.

use std::time::Duration;

use crate::ways::{Job, WAYS, Way};

const USAGE: &str = "usage: peers run [--quick] [--only echo|relay|file] [--rounds N]
  --quick    a round of 0.2 s each, and smaller transfers: whether it works, not what it costs
  --only     one of the three jobs
  --rounds   rounds by turns, default 7; the table gives medians";

/// The command.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Options),
    /// Only the runner says this, to itself.
    Serve {
        way: &'static Way,
        args: Vec<String>,
    },
}

/// How to measure.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    only: Option<Job>,
}

impl Options {
    pub(crate) fn wants(&self, job: Job) -> bool {
        self.only.is_none_or(|only| only == job)
    }

    /// How long echoes are counted in each round.
    pub(crate) fn echo_time(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 1000 })
    }

    /// Bytes that are relayed in each round.
    pub(crate) fn relayed(&self) -> u64 {
        if self.quick { 256 << 20 } else { 1 << 30 }
    }

    /// Length of the file that is copied.
    pub(crate) fn file_len(&self) -> u64 {
        if self.quick { 32 << 20 } else { 256 << 20 }
    }
}

pub(crate) fn parse() -> Result<Command, String> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("run") => parse_run(args).map(Command::Run),
        Some("serve") => {
            let (job, name) = (args.next().and_then(|job| Job::named(&job)), args.next().unwrap_or_default());
            let way = WAYS.iter().find(|way| Some(way.job()) == job && way.name == name).ok_or(USAGE)?;
            Ok(Command::Serve { way, args: args.collect() })
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn parse_run(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { quick: false, rounds: 7, only: None };
    let mut rounds = None;
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--quick" => options.quick = true,
            "--only" => options.only = Some(args.next().and_then(|job| Job::named(&job)).ok_or(USAGE)?),
            "--rounds" => rounds = Some(args.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0).ok_or(USAGE)?),
            _ => return Err(USAGE.to_owned()),
        }
    }
    options.rounds = rounds.unwrap_or(if options.quick { 1 } else { 7 });
    Ok(options)
}
