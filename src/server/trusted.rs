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

/// Networks of trusted peers: headers of proxies and operators' machines are believed, and
/// [`Limits::exempt`](crate::server::Limits::exempt) does not count their connections. For headers the list is empty by
/// default, without the local machine: anyone who makes a proxy on it send requests comes from there.
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
mod tests {
    use super::*;
    use http::HeaderValue;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        let trusted: Trusted = "10.0.0.0/8, 192.0.2.7 ,2001:db8::/33,203.0.113.128/25,,fe80::1".parse().unwrap();
        for (addr, expected) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("::ffff:10.1.1.1", true),
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("203.0.113.127", false),
            ("203.0.113.128", true),
            ("2001:db8:7fff::1", true),
            ("2001:db8:8000::1", false),
            ("fe80::1", true),
            ("fe80::2", false),
            ("127.0.0.1", false),
            ("::1", false),
            // The bits of 10.0.0.0 in another family.
            ("a00::", false),
        ] {
            assert_eq!(trusted.contains(ip(addr)), expected, "{addr}");
        }
        assert!(!Trusted::none().contains(ip("127.0.0.1")));
        let all: Trusted = "0.0.0.0/0, ::/0".parse().unwrap();
        assert!(all.contains(ip("255.255.255.255")) && all.contains(ip("ffff::")));
        assert!(!"0.0.0.0/0".parse::<Trusted>().unwrap().contains(ip("::1")));
        assert_eq!(trusted.to_string().parse::<Trusted>().unwrap(), trusted);
    }

    #[test]
    fn private_networks_end_where_public_ones_begin() {
        let private = Trusted::private();
        for (inside, outside) in [
            ("127.255.0.1", "128.0.0.1"),
            ("10.255.255.255", "11.0.0.0"),
            ("172.31.255.255", "172.32.0.0"),
            ("172.16.0.0", "172.15.255.255"),
            ("192.168.7.7", "192.169.0.0"),
            ("100.127.255.255", "100.128.0.0"),
            ("169.254.1.1", "169.255.0.0"),
            ("::1", "::2"),
            ("fdff::1", "fe00::1"),
            ("febf::1", "fec0::1"),
            ("::ffff:10.0.0.1", "::ffff:8.8.8.8"),
        ] {
            assert!(private.contains(ip(inside)), "{inside}");
            assert!(!private.contains(ip(outside)), "{outside}");
        }
        assert_eq!(private.to_string().parse::<Trusted>().unwrap(), private);
        let more = private.and("192.0.2.0/24".parse().unwrap());
        assert!(more.contains(ip("192.0.2.9")) && more.contains(ip("10.0.0.1")) && !more.contains(ip("8.8.8.8")));
    }

    #[test]
    fn invalid_networks_are_refused_by_name() {
        for (list, why) in [
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/64", "write 2001:db8::/64"),
            ("10.0.0.0/33", "not an address or a network"),
            ("10.0.0.0/+8", "not an address or a network"),
            ("::/129", "not an address or a network"),
            ("10.0.0.0/", "not an address or a network"),
            ("localhost", "not an address or a network"),
            ("10.0.0.0/8 10.0.0.0/8", "not an address or a network"),
            ("::ffff:10.0.0.0/104", "write the IPv4 address itself"),
        ] {
            let error = list.parse::<Trusted>().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(why), "{list}: {error}");
        }
    }

    #[test]
    fn the_client_is_the_rightmost_that_is_not_trusted() {
        let trusted: Trusted = "10.0.0.0/8, 2001:db8::/32".parse().unwrap();
        for (peer, lines, client) in [
            ("198.51.100.1", &["1.1.1.1"][..], "198.51.100.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1,10.0.0.2 , 10.0.0.3"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1", "10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db9::1]:80, 2001:db8::1"], "2001:db9::1"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, , 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
            }
            assert_eq!(trusted.client(ip(peer), &headers), ip(client), "{peer} {lines:?}");
        }
    }
}
