//! What a subscription is asked to do, and what it may be asked.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::fields::{PATH_MAX, RESERVED};

const LEASE_MS: RangeInclusive<u64> = 1_000..=600_000;
/// Segments of a pattern, which is compared with the paths of all new streams.
const SEGMENTS_MAX: usize = 32;
const DESCRIPTION_MAX: usize = 1024;
/// Streams that are named one by one.
pub(crate) const STREAMS_MAX: usize = 10_000;

/// The configuration. A client that asks again with an equal one gets the subscription that is there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Config {
    #[serde(flatten)]
    pub(crate) delivery: Delivery,
    pub(crate) pattern: Option<Box<str>>,
    #[serde(default)]
    pub(crate) streams: BTreeSet<Box<str>>,
    #[serde(default = "lease")]
    pub(crate) lease_ttl_ms: u64,
    pub(crate) description: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Delivery {
    Webhook { webhook: Target },
    PullWake { wake_stream: Box<str> },
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Target {
    pub(crate) url: Box<str>,
}

fn lease() -> u64 {
    30_000
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Config(String),
    Url(String),
}

impl Config {
    /// Reads a configuration, and checks it. `local`: webhooks may be on this machine, by plain HTTP.
    pub(crate) fn parse(body: &[u8], local: bool) -> Result<Self, Invalid> {
        let mut config: Self = serde_json::from_slice(body).map_err(|e| Invalid::Config(e.to_string()))?;
        let invalid = |text: &str| Err(Invalid::Config(text.to_owned()));
        config.streams = stream_paths(config.streams)?;
        if config.pattern.is_none() && config.streams.is_empty() {
            return invalid("pattern or streams is needed");
        }
        let is_long = |pattern: &str| pattern.len() > PATH_MAX || pattern.split('/').count() > SEGMENTS_MAX;
        if config.pattern.as_deref().is_some_and(is_long) {
            return invalid("pattern is too long");
        }
        if config.description.as_deref().is_some_and(|text| text.len() > DESCRIPTION_MAX) {
            return invalid("description is too long");
        }
        if !LEASE_MS.contains(&config.lease_ttl_ms) {
            return invalid("lease_ttl_ms is from 1000 to 600000");
        }
        match &mut config.delivery {
            Delivery::Webhook { webhook } => check_url(&webhook.url, local).map_err(Invalid::Url)?,
            Delivery::PullWake { wake_stream } => *wake_stream = stream_path(wake_stream)?,
        }
        Ok(config)
    }

    /// Returns whether a stream is one of the pattern. The stream of the wakes is none: its wakes would make wakes.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let is_wakes = matches!(&self.delivery, Delivery::PullWake { wake_stream } if **wake_stream == *path);
        self.pattern.as_deref().is_some_and(|pattern| !is_wakes && matches(pattern.trim_matches('/'), path))
    }
}

/// Returns paths as they are compared.
pub(crate) fn stream_paths(paths: impl IntoIterator<Item = Box<str>>) -> Result<BTreeSet<Box<str>>, Invalid> {
    let paths = paths.into_iter().map(|path| stream_path(&path)).collect::<Result<BTreeSet<_>, _>>()?;
    if paths.len() > STREAMS_MAX {
        return Err(Invalid::Config(format!("more than {STREAMS_MAX} streams are named")));
    }
    Ok(paths)
}

fn stream_path(path: &str) -> Result<Box<str>, Invalid> {
    let path = path.trim_start_matches('/');
    if path.is_empty() || path.len() > PATH_MAX || path.split('/').any(|part| part == RESERVED) {
        return Err(Invalid::Config(format!("{path:?} is no path of a stream")));
    }
    Ok(path.into())
}

/// Compares segments: `*` is any one, `**` are any number of them. Takes no longer than the product of their numbers.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    // Behind the last `**`, and where it has matched so far.
    let mut again = None;
    loop {
        match (pattern.next(), path.clone().next()) {
            (Some("**"), _) => again = Some((pattern.clone(), path.clone())),
            (Some(one), Some(segment)) if one == "*" || one == segment => drop(path.next()),
            (None, None) => return true,
            _ => {
                let Some((after, from)) = &mut again else { return false };
                // It takes one segment more.
                if from.next().is_none() {
                    return false;
                }
                (pattern, path) = (after.clone(), from.clone());
            }
        }
    }
}

/// Refuses webhooks that could reach what only this machine reaches. Names are looked up at each delivery.
fn check_url(url: &str, local: bool) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|e| format!("the URL of the webhook is malformed: {e}"))?;
    let host = uri.host().ok_or("the URL of the webhook has no host")?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the URL of the webhook has a user".to_owned());
    }
    let ip: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let is_local = host == "localhost" || matches!(ip, Some(IpAddr::V4(ip)) if ip.octets()[..3] == [127, 0, 0]);
    match uri.scheme_str() {
        Some("http" | "https") if is_local && local => Ok(()),
        Some("https") if !is_local && ip.is_none_or(is_public) => Ok(()),
        Some("https") => Err(format!("{host} is not public")),
        _ if is_local => Err("webhooks on this machine are not enabled".to_owned()),
        _ => Err("the URL of the webhook is not https".to_owned()),
    }
}

/// Returns whether an address is one of the internet, as far as its special ranges are known
/// ([RFC 6890](https://www.rfc-editor.org/rfc/rfc6890)).
pub(crate) fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match ip.segments() {
            // Addresses that stand for IPv4 ones: NAT64, 6to4.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
            }
            [first, ..] => first & 0xe000 == 0x2000 && !ip.is_multicast() && ip != Ipv6Addr::UNSPECIFIED,
        },
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && b & 0xc0 == 64;
    let is_benchmark = a == 198 && b & 0xfe == 18;
    let is_protocol = (a, b, c) == (192, 0, 0);
    !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_documentation())
        && !(is_shared || is_benchmark || is_protocol || a == 0 || a >= 224)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Invalid> {
        Config::parse(text.as_bytes(), false)
    }

    #[test]
    fn patterns() {
        let matches = |pattern: &str, path: &str| {
            let config = format!(r#"{{"type":"pull-wake","wake_stream":"wakes/all","pattern":"{pattern}"}}"#);
            parse(&config).unwrap().matches(path)
        };
        for (pattern, path) in [
            ("a/b", "a/b"),
            ("a/*", "a/b"),
            ("*/*", "a/b"),
            ("**", "a/b/c"),
            ("**/c", "c"),
            ("**/c", "a/b/c"),
            ("a/**", "a"),
            ("a/**/c", "a/c"),
            ("a/**/*", "a/b/c"),
            ("**/a/*/b", "a/a/a/c/b"),
            ("**/a/**/b", "a/b/a/c/b"),
            ("/a/*", "a/b"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("a/*", "a"),
            ("a/*", "a/b/c"),
            ("*", "a/b"),
            ("a/**/c", "a/b"),
            ("a*", "ab"),
            ("**/a/*", "a"),
            ("**", "wakes/all"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        // Would take years if each `**` tried all that the others leave. Longer than what is accepted.
        assert!(!super::matches(&"**/a/".repeat(150), &("a/".repeat(500) + "b")));
    }

    #[test]
    fn configurations() {
        let of = |rest: &str| parse(&format!(r#"{{"type":"webhook","webhook":{{"url":"https://a.example/"}}{rest}}}"#));
        let config = of(r#","streams":["/b","a","b"],"wake_stream":null,"other":1"#).unwrap();
        assert_eq!(config.streams.iter().map(|path| &**path).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(config.lease_ttl_ms, 30_000);
        assert_eq!(serde_json::from_value::<Config>(serde_json::to_value(&config).unwrap()).unwrap(), config);
        for wrong in ["", r#","streams":[]"#, r#","streams":["a/__ds/b"]"#, r#","streams":[""]"#, r#","pattern":1"#] {
            assert!(matches!(of(wrong), Err(Invalid::Config(_))), "{wrong}");
        }
        for lease in [999, 600_001] {
            assert!(of(&format!(r#","pattern":"*","lease_ttl_ms":{lease}"#)).is_err(), "{lease}");
        }
        assert!(parse(r#"{"type":"pull-wake","pattern":"*"}"#).is_err());
        assert!(parse(r#"{"type":"other","pattern":"*"}"#).is_err());
    }

    #[test]
    fn urls() {
        for url in ["https://a.example/hook?x", "https://8.8.8.8:8443", "https://[2606:4700::1111]/"] {
            assert_eq!(check_url(url, false), Ok(()), "{url}");
        }
        for url in [
            "http://a.example/",
            "http://localhost/",
            "https://localhost/",
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://172.16.0.1/",
            "https://192.168.1.1/",
            "https://169.254.169.254/",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://255.255.255.255/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[64:ff9b::a00:1]/",
            "https://[2002:a00:1::]/",
            "https://[fe80::1]/",
            "https://[fd00::1]/",
            "https://user@a.example/",
            "ftp://a.example/",
            "/hook",
            "",
        ] {
            assert!(check_url(url, false).is_err(), "{url}");
        }
        for (url, is_valid) in [
            ("http://localhost:1/", true),
            ("http://127.0.0.9/", true),
            ("http://127.1.0.1/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(check_url(url, true).is_ok(), is_valid, "{url}");
        }
    }
}
