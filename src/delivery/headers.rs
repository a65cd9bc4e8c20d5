//! Custom headers of a subscription.
//!
//! - None of them may be one of the broker's, one about the connection, or a credential: credentials belong in `auth`,
//!   which is never shown.
//! - A value is visible ASCII, with blanks inside.

use contract::limits::{HEADER_NAME_BYTES_MAX, HEADER_VALUE_BYTES_MAX, HEADERS_MAX};
use contract::{Error, Result};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers that may be added to a delivery.
#[derive(Debug, Clone, Default)]
pub(crate) struct CustomHeaders(HeaderMap);

/// Headers of the broker, of the connection, and those that change the meaning of the body.
const REFUSED: &str = " authorization accept-encoding connection content-encoding content-length content-type expect \
    host http2-settings keep-alive te traceparent tracestate trailer transfer-encoding upgrade user-agent ";
/// Prefixes of such headers.
const REFUSED_PREFIXES: [&str; 5] = ["ce-", "event-broker-", "proxy-", "sec-", "webhook-"];

/// Parses the custom headers of a subscription; `pointer` is their place in the request.
pub(crate) fn check_headers<'h>(
    pointer: &str,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
) -> Result<CustomHeaders> {
    let mut own = HeaderMap::new();
    for (name, value) in headers {
        // A valid header name is safe to repeat in the pointer; other text is not.
        let Some(parsed) = name_of(name) else {
            return Err(Error::invalid(
                pointer,
                format!("has a name that is no header's, or over {HEADER_NAME_BYTES_MAX} bytes"),
            ));
        };
        let refuse = |detail: &str| Err(Error::invalid(format!("{pointer}/{parsed}"), detail));
        if is_refused(parsed.as_str()) {
            return refuse("is not for a subscription to set");
        }
        if value.len() > HEADER_VALUE_BYTES_MAX {
            return refuse(&format!("is longer than {HEADER_VALUE_BYTES_MAX} bytes"));
        }
        let Some(value) = value_of(value) else { return refuse("must be visible ASCII without blanks around it") };
        if own.insert(&parsed, value).is_some() {
            return refuse("is there already: names differ by more than case");
        }
        if own.len() > HEADERS_MAX {
            return Err(Error::invalid(pointer, format!("has more than {HEADERS_MAX} headers")));
        }
    }
    Ok(CustomHeaders(own))
}

/// Refuses headers that would carry a credential: custom headers are stored and shown in plain text.
pub(crate) fn check_no_credentials<'h>(pointer: &str, names: impl IntoIterator<Item = &'h str>) -> Result<()> {
    match names.into_iter().filter_map(name_of).find(|name| is_credential(name.as_str())) {
        Some(name) => Err(Error::invalid(
            format!("{pointer}/{name}"),
            "carries a credential and would be kept in the clear: use `auth`, such as `{\"type\": \"apikey\", \"header\": …, \
             \"key\": …}`",
        )),
        None => Ok(()),
    }
}

fn is_credential(name: &str) -> bool {
    let last = name.rsplit('-').next().unwrap_or_default();
    matches!(last, "key" | "apikey" | "token" | "secret" | "password" | "cookie") || name == "authorization"
}

impl CustomHeaders {
    /// Adds a header that carries a key; `pointer` is its place in the request.
    pub(crate) fn with_key(mut self, pointer: &str, name: &str, key: &str) -> Result<Self> {
        let refuse = |member: &str, detail: &str| Err(Error::invalid(format!("{pointer}/{member}"), detail));
        let Some(name) = name_of(name).filter(|name| !is_refused(name.as_str())) else {
            return refuse("header", "must be the name of a header that a subscription may set");
        };
        let value = value_of(key).filter(|value| !value.is_empty() && value.len() <= HEADER_VALUE_BYTES_MAX);
        let Some(mut value) = value else { return refuse("key", "must be visible ASCII, and not too long") };
        value.set_sensitive(true);
        match self.0.insert(name, value) {
            None => Ok(self),
            Some(_) => refuse("header", "is among `headers` already"),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter()
    }
}

fn name_of(name: &str) -> Option<HeaderName> {
    (name.len() <= HEADER_NAME_BYTES_MAX).then(|| HeaderName::from_bytes(name.as_bytes()).ok()).flatten()
}

fn value_of(value: &str) -> Option<HeaderValue> {
    let is_visible = value.trim() == value && value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_visible.then(|| HeaderValue::from_str(value).ok()).flatten()
}

fn is_refused(name: &str) -> bool {
    REFUSED.contains(&format!(" {name} ")) || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(headers: &[(&str, &str)]) -> (String, String) {
        let error = check_headers("/headers", headers.iter().copied()).unwrap_err();
        let violation = &error.violations()[0];
        (violation.pointer.clone(), violation.detail.clone())
    }

    #[test]
    fn a_subscription_adds_headers_of_its_own() {
        let own = check_headers("/headers", [("X-Api-Key", "k 1"), ("accept", "*/*"), ("x-empty", "")]).unwrap();
        let mut sent: Vec<_> = own.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        sent.sort_unstable();
        assert_eq!(sent, ["accept: */*", "x-api-key: k 1", "x-empty: "]);
    }

    #[test]
    fn ours_and_the_connections_stay_ours_in_any_case() {
        for name in [
            "webhook-id",
            "Webhook-Signature",
            "webhook-anything",
            "EVENT-BROKER-TOKEN",
            "ce-id",
            "traceparent",
            "Content-Type",
            "Content-Length",
            "Transfer-Encoding",
            "Host",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Proxy-Authorization",
            "proxy-connection",
            "Authorization",
            "User-Agent",
            "Accept-Encoding",
            "http2-settings",
            "Content-Encoding",
        ] {
            let (pointer, detail) = refusal(&[(name, "x")]);
            assert_eq!(pointer, format!("/headers/{}", name.to_ascii_lowercase()));
            assert_eq!(detail, "is not for a subscription to set");
        }
    }

    #[test]
    fn a_credential_has_no_place_among_the_headers_and_a_key_has_one_in_auth() {
        let names =
            ["Cookie", "Set-Cookie", "Authorization", "X-Api-Key", "api-key", "apikey", "X-Auth-Token", "x-secret"];
        for name in names {
            let error = check_no_credentials("/headers", [name]).unwrap_err();
            let violation = &error.violations()[0];
            assert_eq!(violation.pointer, format!("/headers/{}", name.to_ascii_lowercase()));
            assert!(violation.detail.contains("use `auth`"), "{}", violation.detail);
        }
        for name in ["accept", "x-tenant", "keyboard", "x-tokens-left", "cookie-policy"] {
            assert!(check_no_credentials("/headers", [name]).is_ok(), "{name}");
        }
        let own = check_headers("/headers", [("x-a", "1")]).unwrap();
        let keyed = own.clone().with_key("/auth", "X-Api-Key", "k1").unwrap();
        assert!(keyed.iter().any(|(name, value)| name == "x-api-key" && value == "k1" && value.is_sensitive()));
        for (header, key, pointer) in [
            ("webhook-id", "k", "/auth/header"),
            ("a b", "k", "/auth/header"),
            ("X-A", "k", "/auth/header"),
            ("X-Api-Key", "", "/auth/key"),
            ("X-Api-Key", "a\nb", "/auth/key"),
        ] {
            let error = own.clone().with_key("/auth", header, key).unwrap_err();
            assert_eq!(error.violations()[0].pointer, pointer, "{header}");
        }
    }

    #[test]
    fn what_http_cannot_carry_is_refused() {
        for name in ["", "a b", "a:b", ":path", "ä", "a\r\nb", &"n".repeat(129)] {
            assert_eq!(refusal(&[(name, "x")]).0, "/headers", "{name}");
        }
        for value in ["a\r\nwebhook-id: b", "a\nb", "\0", "ä", " a", "a ", "\u{7f}", "a\tb"] {
            assert_eq!(refusal(&[("x-a", value)]).1, "must be visible ASCII without blanks around it", "{value:?}");
        }
        assert_eq!(refusal(&[("x-a", &"v".repeat(2049))]).1, "is longer than 2048 bytes");
        assert_eq!(refusal(&[("x-a", "1"), ("X-A", "2")]).1, "is there already: names differ by more than case");
        let names: Vec<_> = (0..33).map(|number| format!("x-{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
        assert_eq!(refusal(&many).1, "has more than 32 headers");
    }
}
