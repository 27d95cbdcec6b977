//! The command line, shared with criterion: the cases to run, and for how long.

use std::sync::OnceLock;
use std::time::Duration;

/// Options of criterion whose value is not a filter.
const WITH_VALUE: [&str; 20] = [
    "-c",
    "--color",
    "--colour",
    "-s",
    "--save-baseline",
    "-b",
    "--baseline",
    "--baseline-lenient",
    "--load-baseline",
    "--format",
    "--profile-time",
    "--sample-size",
    "--warm-up-time",
    "--measurement-time",
    "--nresamples",
    "--noise-threshold",
    "--confidence-level",
    "--significance-level",
    "--plotting-backend",
    "--output-format",
];

/// Options used here. Criterion parses the others itself.
#[derive(Debug, Default)]
pub struct Options {
    /// Runs each case once, with meaningless figures. As for criterion: `--test`, or no `--bench`.
    pub test: bool,
    pub quick: bool,
    pub list: bool,
    /// Substring of the names of the cases to run, such as `copy/file to file`.
    pub filter: Option<String>,
    /// Seconds for one contender.
    pub seconds: Option<f64>,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Self {
        let mut options = Self { test: true, ..Self::default() };
        let mut is_test = false;
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            match &*arg {
                "--bench" => options.test = false,
                "--test" => is_test = true,
                "--quick" => options.quick = true,
                "--list" => options.list = true,
                "--measurement-time" => options.seconds = args.next().and_then(|seconds| seconds.parse().ok()),
                option if WITH_VALUE.contains(&option) => drop(args.next()),
                option if option.starts_with("--measurement-time=") => {
                    options.seconds = option.split_once('=').and_then(|(_, seconds)| seconds.parse().ok());
                }
                option if option.starts_with('-') => {}
                _ => options.filter = Some(arg),
            }
        }
        options.test |= is_test;
        options
    }

    pub fn time(&self) -> Duration {
        match self.seconds {
            Some(seconds) => Duration::from_secs_f64(seconds.clamp(0.01, 3600.0)),
            None if self.quick => Duration::from_millis(100),
            None => Duration::from_millis(500),
        }
    }

    /// Returns the number of rounds. It is odd, so that the median is one of them.
    pub fn rounds(&self) -> usize {
        match self {
            Self { test: true, .. } => 1,
            Self { quick: true, .. } => 3,
            _ => 7,
        }
    }

    /// Selects by mode: a test run, a quick one, or a full one.
    pub fn pick<T>(&self, test: T, quick: T, whole: T) -> T {
        match self {
            Self { test: true, .. } => test,
            Self { quick: true, .. } => quick,
            _ => whole,
        }
    }
}

pub fn options() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(|| Options::parse(std::env::args().skip(1)))
}
