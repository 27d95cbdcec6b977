//! Command line options of the proxy.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::relay::Target;

pub(crate) const USAGE: &str = "\
usage: cargo run --release --features client --example proxy -- --to UPSTREAM [OPTION]...
  --to HOST:PORT       the server behind the proxy, over TCP; a prefix http:// is accepted
  --to unix:PATH       the same over a Unix socket
  --listen ADDR:PORT   default 127.0.0.1:8082; port 0 chooses a free one
  --listen unix:PATH   listens on a Unix socket
  --tcp                relays bytes without interpreting them
  --h2                 the server speaks HTTP/2 (without TLS)
  --stamp NAME:VALUE   sets this field in every response; may be repeated
  --timeout SECONDS    timeout to connect (default 5) and for the head of a response (default 30)
  --workers N          threads, default one for each CPU of this process";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(String),
    Unix(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: Listen,
    pub(crate) to: Target,
    pub(crate) tcp: bool,
    pub(crate) h2: bool,
    pub(crate) stamps: HeaderMap,
    pub(crate) connect_timeout: Duration,
    pub(crate) head_timeout: Duration,
    pub(crate) workers: NonZeroUsize,
}

impl Options {
    /// Parses the command line. The error text is complete: the usage, or the value to change.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            listen: Listen::Tcp("127.0.0.1:8082".into()),
            to: Target::Unix(PathBuf::new()),
            tcp: false,
            h2: false,
            stamps: HeaderMap::new(),
            connect_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(30),
            // Respects the CPU affinity of the process.
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        };
        let mut to = None;
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"));
            match &*flag {
                "--tcp" => options.tcp = true,
                "--h2" => options.h2 = true,
                "--to" => to = Some(target(&value()?)?),
                "--listen" => options.listen = listen(value()?),
                "--stamp" => {
                    let (name, value) = stamp(&value()?)?;
                    options.stamps.append(name, value);
                }
                "--timeout" => {
                    let value = value()?;
                    let limit = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    let limit = limit.filter(|limit| !limit.is_zero());
                    let limit = limit.ok_or_else(|| format!("--timeout {value}: give seconds, such as 5 or 0.5"))?;
                    (options.connect_timeout, options.head_timeout) = (limit, limit);
                }
                "--workers" => {
                    let value = value()?;
                    options.workers =
                        value.parse().map_err(|_| format!("--workers {value}: give a number of at least 1"))?;
                }
                _ => return Err(USAGE.into()),
            }
        }
        options.to = to.ok_or_else(|| format!("--to is missing\n{USAGE}"))?;
        Ok(options)
    }
}

fn target(text: &str) -> Result<Target, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Target::Unix(path.into()));
    }
    let fail = || format!("--to {text}: give HOST:PORT or unix:PATH");
    let plain = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let (host, port) = plain.rsplit_once(':').ok_or_else(fail)?;
    // The address must also be valid in a URI.
    plain.parse::<http::uri::Authority>().map_err(|_| fail())?;
    Ok(Target::Tcp(host.to_owned(), port.parse().map_err(|_| fail())?))
}

fn listen(text: String) -> Listen {
    match text.strip_prefix("unix:") {
        Some(path) => Listen::Unix(path.into()),
        None => Listen::Tcp(text),
    }
}

fn stamp(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let fail = |why: &str| format!("--stamp {text}: {why}");
    let (name, value) = text.split_once(':').ok_or_else(|| fail("give NAME:VALUE"))?;
    let name: HeaderName = name.trim().parse().map_err(|_| fail("not a field name"))?;
    if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
        return Err(fail("this field frames the body and cannot be set"));
    }
    Ok((name, HeaderValue::from_str(value.trim()).map_err(|_| fail("not a valid field value"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn what_is_asked_for_is_what_is_meant() {
        let options =
            parse("--to http://[::1]:81/ --listen unix:a/b --stamp x-a:b --stamp x-a:c:d --timeout 0.5").unwrap();
        assert!(matches!(options.to, Target::Tcp(host, 81) if host == "[::1]"));
        assert_eq!(options.listen, Listen::Unix("a/b".into()));
        assert_eq!(options.stamps.get_all("x-a").iter().collect::<Vec<_>>(), ["b", "c:d"]);
        assert_eq!(options.head_timeout, Duration::from_millis(500));
        assert!(matches!(parse("--to unix:s").unwrap().to, Target::Unix(path) if path.as_os_str() == "s"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, what) in [
            ("--tcp", "--to is missing"),
            ("--to host", "HOST:PORT"),
            ("--to host:port", "HOST:PORT"),
            ("--to a:1 --stamp content-length:3", "cannot be set"),
            ("--to a:1 --stamp nothing", "NAME:VALUE"),
            ("--to a:1 --stamp a\u{e9}:3", "not a field name"),
            ("--to a:1 --timeout 0", "give seconds"),
            ("--to a:1 --workers 0", "at least 1"),
            ("--to", "needs a value"),
            ("--help", "usage"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
