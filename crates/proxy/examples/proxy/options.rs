//! Command line options of the proxy.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::cli;
use super::relay::Target;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(String),
    Unix(PathBuf),
}

/// A proxy in front of one server.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Address and port, or unix:PATH; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8082", value_parser = listen)]
    pub(crate) listen: Listen,
    /// The server behind the proxy, HOST:PORT or unix:PATH; a prefix http:// is accepted.
    #[arg(long, value_name = "UPSTREAM", value_parser = target)]
    pub(crate) to: Target,
    /// Relays bytes without interpreting them.
    #[arg(long)]
    pub(crate) tcp: bool,
    /// The server speaks HTTP/2, without TLS.
    #[arg(long)]
    pub(crate) h2: bool,
    /// The server speaks TLS; its certificate is of an authority in this PEM file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["h2", "tcp"])]
    pub(crate) ca: Option<PathBuf>,
    /// Sets this field in every response; may be repeated.
    #[arg(long = "stamp", value_name = "NAME:VALUE", value_parser = stamp)]
    pub(crate) stamps: Vec<(HeaderName, HeaderValue)>,
    /// Timeout to connect, and for the head of a response; default 5 and 30.
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Threads that run the proxy.
    #[arg(long, value_name = "N", default_value_t = cli::cpus())]
    pub(crate) workers: NonZeroUsize,
}

impl Options {
    /// Returns the timeouts to connect and for the head of a response.
    pub(crate) fn timeouts(&self) -> (Duration, Duration) {
        self.timeout.map_or((Duration::from_secs(5), Duration::from_secs(30)), |both| (both, both))
    }
}

fn target(text: &str) -> Result<Target, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Target::Unix(path.into()));
    }
    let fail = || "give HOST:PORT or unix:PATH".to_owned();
    let plain = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let (host, port) = plain.rsplit_once(':').ok_or_else(fail)?;
    // The address must also be valid in a URI.
    plain.parse::<http::uri::Authority>().map_err(|_| fail())?;
    Ok(Target::Tcp(host.to_owned(), port.parse().map_err(|_| fail())?))
}

fn listen(text: &str) -> Result<Listen, Infallible> {
    Ok(match text.strip_prefix("unix:") {
        Some(path) => Listen::Unix(path.into()),
        None => Listen::Tcp(text.to_owned()),
    })
}

fn timeout(text: &str) -> Result<Duration, &'static str> {
    let limit = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    limit.filter(|limit| !limit.is_zero()).ok_or("give seconds, such as 5 or 0.5")
}

fn stamp(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = text.split_once(':').ok_or("give NAME:VALUE")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "not a field name")?;
    if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
        return Err("this field frames the body and cannot be set");
    }
    Ok((name, HeaderValue::from_str(value.trim()).map_err(|_| "not a valid field value")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn parse(line: &str) -> Result<Options, String> {
        Options::try_parse_from(["proxy"].into_iter().chain(line.split(' '))).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_asked_for_is_what_is_meant() {
        let options =
            parse("--to http://[::1]:81/ --listen unix:a/b --stamp x-a:b --stamp x-a:c:d --timeout 0.5").unwrap();
        assert!(matches!(options.to, Target::Tcp(ref host, 81) if host == "[::1]"));
        assert_eq!(options.listen, Listen::Unix("a/b".into()));
        let stamps: HeaderMap = options.stamps.clone().into_iter().collect();
        assert_eq!(stamps.get_all("x-a").iter().collect::<Vec<_>>(), ["b", "c:d"]);
        assert_eq!(options.timeouts(), (Duration::from_millis(500), Duration::from_millis(500)));
        assert!(matches!(parse("--to unix:s").unwrap().to, Target::Unix(path) if path.as_os_str() == "s"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, what) in [
            ("--tcp", "--to <UPSTREAM>"),
            ("--to host", "HOST:PORT"),
            ("--to host:port", "HOST:PORT"),
            ("--to a:1 --stamp content-length:3", "cannot be set"),
            ("--to a:1 --stamp nothing", "NAME:VALUE"),
            ("--to a:1 --stamp a\u{e9}:3", "not a field name"),
            ("--to a:1 --timeout 0", "give seconds"),
            ("--to a:1 --workers 0", "zero"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
