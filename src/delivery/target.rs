//! Targets: the URLs that may be called.
//!
//! - A [`DeliveryTarget`] is an absolute `http` or `https` URL without credentials. It is parsed once, and connections
//!   use the parsed form: no other parser with other rules sees it.
//! - The parser is that of browsers (WHATWG): `http://0x7f.1/`, `http://2130706433/` and `http://017700000001/` are all
//!   127.0.0.1 to it, and are refused as such.
//! - A host that is an address is checked here. A host that is a name is checked after it was resolved, at every
//!   connection (`connect`), because its addresses may change.

use super::addresses::not_public;
use super::failure::{DeliveryFailure, ErrorClass};
use contract::limits::TARGET_BYTES_MAX;
use contract::{Error, Result};
use http::Uri;
use std::fmt;
use std::net::IpAddr;
use url::{Host, Url};

/// A parsed target.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DeliveryTarget {
    url: Url,
    uri: Uri,
    origin: TargetOrigin,
}

/// Scheme, host and port: the destination of a connection, which requests may share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TargetOrigin {
    pub(super) encrypted: bool,
    pub(super) host: TargetHost,
    pub(super) port: u16,
}

/// A host: an address, or a name to resolve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TargetHost {
    Address(IpAddr),
    Name(String),
}

/// Checks a target that a caller submits; a refusal names the rule at `pointer`.
pub(crate) fn check_target(pointer: &str, text: &str, allow_private: bool) -> Result<DeliveryTarget> {
    let target = DeliveryTarget::parse(pointer, text)?;
    let is_local_name = match &target.origin.host {
        TargetHost::Address(_) => false,
        TargetHost::Name(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
    };
    let refused = target.refusal(allow_private).or((is_local_name && !allow_private).then_some("loopback"));
    match refused {
        Some(network) => Err(Error::invalid(pointer, not_allowed(network))),
        None => Ok(target),
    }
}

/// Why a target in a private network is refused, and which setting allows it.
fn not_allowed(network: &str) -> String {
    format!("must be in the public internet, not {network}; `dispatch.allow_private_targets: true` allows it")
}

impl DeliveryTarget {
    /// Parses a target in any network; `pointer` is its place in the request.
    pub(crate) fn parse(pointer: &str, text: &str) -> Result<Self> {
        let refuse = |detail: &str| Err(Error::invalid(pointer, detail));
        if text.len() > TARGET_BYTES_MAX {
            return refuse(&format!("is longer than {TARGET_BYTES_MAX} bytes"));
        }
        // The parser would drop them silently.
        if text.contains(|c: char| c.is_ascii_control() || c.is_whitespace()) {
            return refuse("must have no blanks or control characters");
        }
        let Ok(url) = Url::parse(text) else { return refuse("must be an absolute URL") };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("must be an http or https URL");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("must have no user name or password: use `auth`");
        }
        if url.fragment().is_some() {
            return refuse("must have no fragment: it would never be sent");
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => TargetHost::Name(name.to_owned()),
            Some(Host::Ipv4(address)) => TargetHost::Address(address.into()),
            Some(Host::Ipv6(address)) => TargetHost::Address(address.into()),
            _ => return refuse("must have a host"),
        };
        let Some(port) = url.port_or_known_default().filter(|port| *port != 0) else {
            return refuse("must have a port other than 0");
        };
        let Ok(uri) = url.as_str().parse::<Uri>() else { return refuse("has characters that must be escaped") };
        let origin = TargetOrigin { encrypted: url.scheme() == "https", host, port };
        Ok(Self { url, uri, origin })
    }

    /// The URL as it was parsed.
    pub(crate) fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.origin.encrypted
    }

    /// Whether its host is in a list of names and of `*.name` patterns for subdomains. An empty list allows every host.
    pub(crate) fn is_among(&self, hosts: &[String]) -> bool {
        let host = match &self.origin.host {
            TargetHost::Address(address) => address.to_string(),
            TargetHost::Name(name) => name.trim_end_matches('.').to_owned(),
        };
        let names = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(above) => host.strip_suffix(above).is_some_and(|below| below.len() > 1 && below.ends_with('.')),
            None => host.eq_ignore_ascii_case(pattern),
        };
        hosts.is_empty() || hosts.iter().any(names)
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(super) fn origin(&self) -> &TargetOrigin {
        &self.origin
    }

    /// The kind of network of the address, if the host is an address that must not be called.
    fn refusal(&self, allow_private: bool) -> Option<&'static str> {
        match self.origin.host {
            TargetHost::Address(address) if !allow_private => not_public(address),
            _ => None,
        }
    }

    /// Refuses a host that is an address outside the public internet.
    pub(super) fn permit(&self, allow_private: bool) -> Result<(), DeliveryFailure> {
        self.refusal(allow_private).map_or(Ok(()), |network| {
            let message = format!(
                "The target's address is not in the public internet ({network}); nothing was sent. \
                 `dispatch.allow_private_targets: true` allows it."
            );
            Err(DeliveryFailure::new(ErrorClass::TargetRefused, message).for_good())
        })
    }
}

impl fmt::Debug for DeliveryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without path and query: they may contain keys.
        f.debug_tuple("Target").field(&self.origin).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, allow_private: bool) -> Option<String> {
        let error = check_target("/target", text, allow_private).err()?;
        assert_eq!(error.violations().len(), 1, "{text}");
        assert_eq!(error.violations()[0].pointer, "/target");
        Some(error.violations()[0].detail.clone())
    }

    #[test]
    fn a_target_is_a_public_http_url() {
        for text in [
            "https://example.com",
            "http://example.com:8080/hooks/a?b=c%20d",
            "https://bücher.example/ä",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]:8443/x",
            "HTTPS://EXAMPLE.COM/X",
        ] {
            assert_eq!(refusal(text, false), None, "{text}");
        }
        for (text, detail) in [
            ("", "must be an absolute URL"),
            ("example.com/x", "must be an absolute URL"),
            ("/hooks", "must be an absolute URL"),
            ("http://", "must be an absolute URL"),
            ("http://a:99999/", "must be an absolute URL"),
            ("http://1.2.3.4.5/", "must be an absolute URL"),
            ("ftp://example.com/", "must be an http or https URL"),
            ("file:///etc/passwd", "must be an http or https URL"),
            ("gopher://example.com/", "must be an http or https URL"),
            ("https://user@example.com/", "must have no user name or password: use `auth`"),
            ("https://:secret@example.com/", "must have no user name or password: use `auth`"),
            ("https://example.com/#a", "must have no fragment: it would never be sent"),
            ("https://example.com:0/", "must have a port other than 0"),
            (" https://example.com/", "must have no blanks or control characters"),
            ("https://exam\nple.com/", "must have no blanks or control characters"),
            (&format!("https://example.com/{}", "x".repeat(TARGET_BYTES_MAX)), "is longer than 2048 bytes"),
        ] {
            assert_eq!(refusal(text, true).as_deref(), Some(detail), "{text}");
        }
    }

    #[test]
    fn an_inner_address_is_refused_however_it_is_spelt_unless_allowed() {
        for (host, network) in [
            ("127.0.0.1", "loopback"),
            ("127.1", "loopback"),
            ("0x7f.1", "loopback"),
            ("0x7f000001", "loopback"),
            ("2130706433", "loopback"),
            ("017700000001", "loopback"),
            ("0177.0.0.01", "loopback"),
            ("%31%32%37.0.0.1", "loopback"),
            ("１２７.0.0.1", "loopback"),
            ("127.0.0.1.", "loopback"),
            ("127。0。0。1", "loopback"),
            ("localhost", "loopback"),
            ("LOCALHOST.", "loopback"),
            ("a.localhost", "loopback"),
            ("[::1]", "loopback"),
            ("[0:0:0:0:0:0:0:1]", "loopback"),
            ("[::ffff:127.0.0.1]", "IPv4-mapped"),
            ("[::ffff:a9fe:a9fe]", "IPv4-mapped"),
            ("169.254.169.254", "link-local"),
            ("0xa9fea9fe", "link-local"),
            ("0", "unspecified"),
            ("0.0.0.0", "unspecified"),
            ("[::]", "unspecified"),
            ("10.1.2.3", "private"),
            ("[fd00:ec2::254]", "private"),
            ("100.100.100.200", "shared (carrier-grade NAT)"),
        ] {
            let text = format!("http://{host}:8080/x");
            let detail = not_allowed(network);
            assert_eq!(refusal(&text, false), Some(detail), "{text}");
            assert_eq!(refusal(&text, true), None, "{text}");
        }
    }

    #[test]
    fn what_is_printed_of_a_target_has_no_path() {
        let target = DeliveryTarget::parse("/target", "https://example.com/hooks/k3y?token=s3cret").unwrap();
        let printed = format!("{target:?}");
        assert!(
            printed.contains("example.com") && !printed.contains("k3y") && !printed.contains("s3cret"),
            "{printed}"
        );
    }
}
