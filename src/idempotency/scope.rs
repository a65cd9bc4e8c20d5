//! The two fingerprints of a request with an `Idempotency-Key`: of the key in its scope, and of the request.
//!
//! A key is valid within its tenant, its actor and its route. Callers are not authenticated yet, so the first two are absent
//! everywhere; with credentials they are filled in, and the keys of today keep belonging to the anonymous caller.

use crate::events::FingerprintBuilder;
use contract::{digest_form, limits, parse_strict};
use uuid::Uuid;

/// The scope of a key.
pub(crate) struct KeyScope<'a> {
    /// The tenant the caller is bound to.
    pub(crate) tenant: Option<Uuid>,
    /// The authenticated caller.
    pub(crate) actor: Option<&'a str>,
    /// The method and the path, with names in place of ids.
    pub(crate) route: &'a str,
    /// The key, as the client sent it.
    pub(crate) key: &'a str,
}

impl KeyScope<'_> {
    /// The fingerprint under which the reply is stored.
    pub(crate) fn fingerprint(&self) -> u128 {
        FingerprintBuilder::new(b"answer")
            .optional(self.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()))
            .optional(self.actor.map(str::as_bytes))
            .bytes(self.route.as_bytes())
            .bytes(self.key.as_bytes())
            .finish()
    }
}

/// The fingerprint of a request: its path and query, and its body. A body with `media` is compared by its bytes, one without as
/// JSON, so that its spelling does not matter.
pub(crate) fn digest(about: &[&[u8]], media: Option<&str>, body: &[u8]) -> u64 {
    let mut parts = FingerprintBuilder::new(b"request").number(about.len() as u64);
    for part in about {
        parts = parts.bytes(part);
    }
    let form = match media {
        None => canonical(body),
        Some(_) => None,
    };
    parts.optional(media.map(str::as_bytes)).optional(form.as_deref()).bytes(form.as_ref().map_or(body, |_| &[])).half()
}

/// The canonical form of JSON; `None` if the body is not JSON.
fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    // Deeper than any event may be: a request that is too deep is refused by its own check, not here.
    let value = parse_strict(std::str::from_utf8(body).ok()?, 2 * limits::DATA_DEPTH_MAX).ok()?;
    let mut form = Vec::with_capacity(body.len());
    digest_form(&value, &mut form);
    Some(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_scope_counts() {
        let fingerprint = |tenant, actor, route, key| KeyScope { tenant, actor, route, key }.fingerprint();
        let base = fingerprint(None, None, "POST /v1/events", "k");
        assert_eq!(fingerprint(None, None, "POST /v1/events", "k"), base);
        for other in [
            fingerprint(Some(Uuid::nil()), None, "POST /v1/events", "k"),
            fingerprint(None, Some(""), "POST /v1/events", "k"),
            fingerprint(None, None, "POST /v1/topics", "k"),
            fingerprint(None, None, "POST /v1/events", "K"),
            fingerprint(None, None, "POST /v1/event", "sk"),
        ] {
            assert_ne!(other, base);
        }
    }

    #[test]
    fn equal_json_is_one_request_however_it_is_spelt() {
        let of = |body: &str| digest(&[b"/v1/events"], None, body.as_bytes());
        assert_eq!(of(r#"{"a": 1.0, "b": "\u0041"}"#), of(r#"{"b":"A","a":1}"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
        // Anything else is compared by its bytes.
        assert_ne!(of("{ "), of("{"));
        assert_ne!(of(""), of(" "));
    }

    #[test]
    fn what_a_request_is_about_counts_and_so_does_how_its_bytes_are_meant() {
        let of = |about: &[&[u8]], media| digest(about, media, b"{}");
        let base = of(&[b"/v1/events"], None);
        assert_ne!(of(&[b"/v1/event", b"s"], None), base);
        assert_ne!(of(&[b"/v1/events", b""], None), base);
        assert_ne!(of(&[b"/v1/events"], Some("application/cloudevents+json")), base);
    }
}
