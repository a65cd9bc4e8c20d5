//! Rules of HTTP/1.1 (RFC 9112) for a request's head that hyper leaves to the application.
//!
//! - There is exactly one valid `Host`: a proxy and this server must not disagree about the host of a request.
//! - `chunked` is the only transfer coding, and occurs once. A body in another coding would be misread.

use super::problem::Problem;
use contract::{Error, Kind};
use http::header::{HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Version};

/// Refuses a request whose head breaks those rules.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    // Over HTTP/2 the authority is part of the target, and there are no transfer codings.
    if request.version() > Version::HTTP_11 {
        return Ok(());
    }
    check_host(request.headers(), request.version())?;
    check_codings(request.headers())
}

fn check_host(headers: &HeaderMap, version: Version) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let detail = match (hosts.next(), hosts.next()) {
        (None, _) if version < Version::HTTP_11 => return Ok(()),
        (None, _) => "An HTTP/1.1 request must have one `Host` header; this one has none.",
        (Some(_), Some(_)) => "A request must have one `Host` header; this one has several.",
        (Some(host), None) if is_host(host.as_bytes()) => return Ok(()),
        (Some(_), None) => "The `Host` header is not a host name or address with an optional port.",
    };
    Err(Error::new(Kind::Malformed, detail).into())
}

/// Whether this is `uri-host [ ":" port ]` (RFC 9110 7.2, RFC 3986 3.2.2).
fn is_host(text: &[u8]) -> bool {
    let (host, port) = match text.iter().rposition(|byte| *byte == b':') {
        // The colons of an address in brackets do not begin a port.
        Some(at) if !text.ends_with(b"]") => {
            (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default())
        }
        _ => (text, &b""[..]),
    };
    let is_address = host
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"))
        .is_some_and(|inner| !inner.is_empty() && inner.iter().all(|byte| is_name_byte(*byte) || *byte == b':'));
    let is_name = host.iter().all(|byte| is_name_byte(*byte) || *byte == b'%');
    (is_address || is_name) && port.iter().all(u8::is_ascii_digit)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

fn check_codings(headers: &HeaderMap) -> Result<(), Problem> {
    let lists = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut chunked = 0;
    for coding in codings.filter(|coding| !coding.is_empty()) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked += 1;
            continue;
        }
        let detail = "The body has a transfer coding other than `chunked`, which is not supported; send it without.";
        return Err(Error::new(Kind::NotImplemented, detail).into());
    }
    if chunked > 1 {
        return Err(Error::new(Kind::Malformed, "The transfer coding `chunked` occurs more than once.").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for host in ["", "a", "broker:8087", "a.b-c_d", "127.0.0.1:0", "[::1]", "[::1]:8087", "a:", "%41"] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["a b", "a/b", "u@a", "a:b", "a:1:2", "::1", "[::1", "[]", "[::1]x", "a?b", "a#b", "\u{e4}", "a\t"]
        {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
