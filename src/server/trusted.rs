//! Networks of trusted peers.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::HeaderMap;
use http::header::HeaderName;
use ipnet::IpNet;

/// Described by RFC 7239. Read by [`Trusted::client`].
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Networks of trusted peers, such as proxies and operators' machines. Their headers are trusted, and
/// [`Limits::exempt`](crate::server::Limits::exempt) does not count their connections. For headers the list is empty by
/// default. It does not contain the local machine, because requests of untrusted clients come from there if a proxy
/// runs on it.
///
/// ```
/// use millstream::server::Trusted;
///
/// let trusted: Trusted = "10.0.0.0/8, 192.0.2.7, 2001:db8::/32".parse()?;
/// assert!(trusted.contains("10.1.2.3".parse().unwrap()));
/// assert!(!trusted.contains("127.0.0.1".parse().unwrap()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    /// Without bits behind their prefixes, and without IPv4 addresses in IPv6 form.
    networks: Vec<IpNet>,
}

/// Networks outside the public Internet.
const PRIVATE: &str =
    "127.0.0.0/8, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 169.254.0.0/16, ::1, fc00::/7, fe80::/10";

impl Trusted {
    /// Returns an empty list.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the networks outside the public Internet: loopback, private (RFC 1918, RFC 4193), shared (RFC 6598) and
    /// link-local (RFC 3927, RFC 4291) addresses. Their connections are [exempt](crate::server::Limits::exempt) from
    /// the limit per address. Do not trust their headers unless every machine there is yours.
    pub fn private() -> Self {
        PRIVATE.parse().expect("they are networks")
    }

    /// Returns these networks and those of `others`.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.networks.extend(others.networks);
        self
    }

    /// Returns whether `peer` is in one of the networks. An IPv4 address in IPv6 form is the IPv4 address.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.networks.iter().any(|network| network.contains(&peer))
    }

    /// Returns the client of a request that came from `peer`, by its `X-Forwarded-For`: the entries of trusted peers
    /// are read from right to left, up to the first address that is not trusted. Entries left of it may be forged. If
    /// an entry is not an address, the client is the peer that added it.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR);
        let entries = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|&b| b == b','));
        for entry in entries {
            if !self.contains(client) {
                break;
            }
            let Some(named) = address(entry) else { break };
            client = named;
        }
        client
    }
}

fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let addr = entry.parse().or_else(|_| entry.parse::<SocketAddr>().map(|addr| addr.ip()));
    Some(addr.ok()?.to_canonical())
}

impl FromStr for Trusted {
    type Err = io::Error;

    /// Parses addresses and networks (`address/bits`), separated by commas. `ErrorKind::InvalidInput` for others.
    fn from_str(list: &str) -> io::Result<Self> {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Ok(Self { networks: entries.map(network).collect::<io::Result<_>>()? })
    }
}

fn network(entry: &str) -> io::Result<IpNet> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("trusted network `{entry}`: {why}"));
    let network = match entry.parse::<IpAddr>() {
        Ok(addr) => addr.into(),
        Err(_) => IpNet::from_str(entry)
            .map_err(|_| wrong("not an address or a network, such as 192.0.2.1 or 2001:db8::/32"))?,
    };
    if network.addr() != network.addr().to_canonical() {
        return Err(wrong("write the IPv4 address itself"));
    }
    if network != network.trunc() {
        return Err(wrong(&format!("has bits behind its prefix, write {}", network.trunc())));
    }
    Ok(network)
}

impl fmt::Display for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, network) in self.networks.iter().enumerate() {
            write!(f, "{}{network}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
