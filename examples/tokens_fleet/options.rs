//! Command line options.

pub(crate) const USAGE: &str = "\
usage: cargo run --release --features redis --example tokens_fleet -- [--redis URL] [--cuts N]
  --redis URL   a running Redis, such as redis://127.0.0.1/; by default starts a redis-server
  --cuts N      number of moves of the client, default 6";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) redis: Option<String>,
    pub(crate) cuts: usize,
}

impl Options {
    /// Parses the command line. The error text is complete: the usage, or the value to change.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { redis: None, cuts: 6 };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"));
            match &*flag {
                "--redis" => options.redis = Some(value()?),
                "--cuts" => {
                    let cuts = value()?;
                    options.cuts = cuts.parse().map_err(|_| format!("--cuts {cuts}: give a number"))?;
                }
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(args.iter().map(|&arg| arg.to_owned()))
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--redis", "redis://h/", "--cuts", "3"]).unwrap();
        assert_eq!((options.redis.as_deref(), options.cuts), (Some("redis://h/"), 3));
        assert_eq!(parse(&[]).unwrap().cuts, 6);
        assert_eq!(parse(&["--help"]).unwrap_err(), USAGE);
        assert!(parse(&["--cuts", "x"]).unwrap_err().contains("give a number"));
        assert!(parse(&["--redis"]).unwrap_err().starts_with("--redis needs a value"));
    }
}
