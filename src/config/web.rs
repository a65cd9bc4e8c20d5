//! Hosts and origins in HTTP headers (`Host`, `Origin`), and the patterns that an operator permits.
//!
//! - Comparisons ignore letter case, a trailing dot and the spelling of an IP address.
//! - A [`HostPattern`] has no port: port forwarding and proxies change it, and it says nothing about the sender.
//! - A [`WebOrigin`] has one, written or implied by its scheme.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host: a DNS name or an IP address.
#[derive(Debug, Clone, Copy)]
pub enum WebHost<'a> {
    /// A name, in any letter case, without a trailing dot.
    Name(&'a str),
    /// An address; an IPv4 address mapped into IPv6 is the IPv4 address.
    Address(IpAddr),
}

/// A host and its port, as in `Host`.
#[derive(Debug, Clone, Copy)]
pub struct WebAuthority<'a> {
    /// The host.
    pub host: WebHost<'a>,
    /// The port, if there is one.
    pub port: Option<u16>,
}

/// A permitted host, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// This name, in lower case.
    Name(String),
    /// Every name that ends in this, which begins with a dot.
    Below(String),
    /// This address.
    Address(IpAddr),
}

/// An origin: scheme, host and port, as a browser sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin {
    is_https: bool,
    host: HostPattern,
    port: u16,
}

impl<'a> WebHost<'a> {
    /// Parses a host without a port; an IPv6 address is in brackets.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address = inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        (name.len() <= 253 && name.split('.').all(is_label)).then_some(Self::Name(name))
    }

    /// Whether this is always the machine itself: browsers resolve these names to loopback addresses without DNS.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => {
                let last = name.rsplit('.').next().unwrap_or_default();
                last.eq_ignore_ascii_case("localhost")
            }
        }
    }
}

impl<'a> WebAuthority<'a> {
    /// Parses a host, perhaps with a port.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an address in brackets do not separate a port.
            Some((host, port)) if !text.ends_with(']') => (host, port),
            _ => (text, ""),
        };
        let port = match port {
            "" => None,
            port => Some(port.parse().ok()?),
        };
        Some(Self { host: WebHost::parse(host)?, port })
    }
}

impl HostPattern {
    /// Parses a host, or `*.` and a name for all names below it; `Err` says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Err("`*` would let every web page read and write everything by DNS rebinding, because no \
                 authentication is configured; list the names, or `*.example.com` for all names below one");
        }
        let (below, host) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        match (WebHost::parse(host), below) {
            (Some(WebHost::Name(name)), true) => Ok(Self::Below(format!(".{}", name.to_ascii_lowercase()))),
            (Some(WebHost::Name(name)), false) => Ok(Self::Name(name.to_ascii_lowercase())),
            (Some(WebHost::Address(address)), false) => Ok(Self::Address(address)),
            _ => Err("expected a host without scheme and port, such as `broker.example.com`, `*.example.com` or \
                 `192.0.2.7`; it is allowed on every port"),
        }
    }

    /// Whether this host matches.
    #[must_use]
    pub fn matches(&self, host: &WebHost<'_>) -> bool {
        match (self, host) {
            (Self::Name(allowed), WebHost::Name(name)) => allowed.eq_ignore_ascii_case(name),
            (Self::Below(ending), WebHost::Name(name)) => {
                let start = name.len().checked_sub(ending.len()).filter(|start| *start > 0);
                start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
            }
            (Self::Address(allowed), WebHost::Address(address)) => allowed == address,
            _ => false,
        }
    }
}

impl WebOrigin {
    /// Parses an origin such as `https://example.com` or `http://localhost:3000`, without a path. `null` is not an
    /// origin.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (is_https, authority) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(authority), _) => (true, authority),
            (_, Some(authority)) => (false, authority),
            _ => return None,
        };
        let WebAuthority { host, port } = WebAuthority::parse(authority)?;
        let host = match host {
            WebHost::Name(name) => HostPattern::Name(name.to_ascii_lowercase()),
            WebHost::Address(address) => HostPattern::Address(address),
        };
        Some(Self { is_https, host, port: port.unwrap_or(default_port(is_https)) })
    }

    /// Whether a request with this authority was sent to this origin. The scheme is not compared: a proxy in front of
    /// the server may have terminated TLS.
    #[must_use]
    pub fn is_at(&self, authority: &WebAuthority<'_>) -> bool {
        self.host.matches(&authority.host) && authority.port.unwrap_or(default_port(self.is_https)) == self.port
    }
}

const fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_host_however_it_is_spelt() {
        for (pattern, host, matches) in [
            ("broker.example", "broker.example", true),
            ("Broker.Example.", "bROKER.example", true),
            ("broker.example", "broker.example.", true),
            ("broker.example", "a.broker.example", false),
            ("broker.example", "brokerxexample", false),
            ("*.example", "broker.example", true),
            ("*.example", "a.b.EXAMPLE", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "evilexample", false),
            ("*.example", "broker.example.evil", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "[::ffff:192.0.2.7]", true),
            ("192.0.2.7", "192.0.2.70", false),
            ("[2001:db8::1]", "[2001:DB8:0::1]", true),
            ("[2001:db8::1]", "2001:db8::1", false),
        ] {
            let pattern = HostPattern::parse(pattern).unwrap();
            let found = WebHost::parse(host).is_some_and(|host| pattern.matches(&host));
            assert_eq!(found, matches, "{pattern:?} {host}");
        }
    }

    #[test]
    fn what_is_no_host_is_no_pattern() {
        let all = ["", "*", "*.", "a:80", "https://a", "a/b", "a b", "*.*.a", "a.*", "*.192.0.2.7", "..", "ä.example"];
        for text in all {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_names_are_those_browsers_never_ask_dns_for() {
        for host in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.8.7.6", "[::1]", "[::ffff:127.0.0.1]"]
        {
            assert!(WebHost::parse(host).is_some_and(|host| host.is_loopback()), "{host}");
        }
        for host in ["localhost.example", "notlocalhost", "128.0.0.1", "0.0.0.0", "[::]", "127.0.0.1.example", "127.1"]
        {
            assert!(!WebHost::parse(host).is_some_and(|host| host.is_loopback()), "{host}");
        }
    }

    #[test]
    fn an_origin_is_at_the_authority_with_its_host_and_port() {
        for (origin, authority, is_at) in [
            ("http://127.0.0.1:8087", "127.0.0.1:8087", true),
            ("http://127.0.0.1:9000", "127.0.0.1:8087", false),
            ("http://localhost:8087", "127.0.0.1:8087", false),
            ("https://broker.example", "broker.example", true),
            ("https://broker.example", "Broker.Example:443", true),
            ("https://broker.example:443", "broker.example", true),
            ("http://broker.example", "broker.example:80", true),
            ("http://broker.example", "broker.example:443", false),
            ("http://[::1]:8087", "[::1]:8087", true),
        ] {
            let (origin, authority) = (WebOrigin::parse(origin).unwrap(), WebAuthority::parse(authority).unwrap());
            assert_eq!(origin.is_at(&authority), is_at, "{origin:?} {authority:?}");
        }
        for text in
            ["", "null", "*", "ftp://a", "https://", "https://a/", "https://a b", "http://a:99999", "http://u@a"]
        {
            assert_eq!(WebOrigin::parse(text), None, "{text}");
        }
    }
}
