//! Which key it is, and which request: the two fingerprints of a request under a key.
//!
//! A key counts within its tenant, its actor and its route. Nobody is asked for a name yet, so the first two are absent
//! wherever a [`Scope`] is made; once there are credentials they are filled in there, and the keys of today are those of
//! nobody in particular.

use crate::events::FingerprintBuilder;
use contract::{digest_form, limits, parse_strict};
use uuid::Uuid;

/// Where a key counts.
pub(crate) struct KeyScope<'a> {
    /// The tenant the caller is bound to.
    pub(crate) tenant: Option<Uuid>,
    /// Who the caller is.
    pub(crate) actor: Option<&'a str>,
    /// What is asked for: the method and the path, with names in the place of ids.
    pub(crate) route: &'a str,
    /// The key, as the caller sent it.
    pub(crate) key: &'a str,
}

impl KeyScope<'_> {
    /// The fingerprint it is remembered under.
    pub(crate) fn fingerprint(&self) -> u128 {
        FingerprintBuilder::new(b"answer")
            .optional(self.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()))
            .optional(self.actor.map(str::as_bytes))
            .bytes(self.route.as_bytes())
            .bytes(self.key.as_bytes())
            .finish()
    }
}

/// The fingerprint of a request: what it is about, and its body. A body with `media` is told by its bytes, one without
/// as JSON, so that it is the same however it is spelt.
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

/// The form equal JSON shares; `None` for what is no JSON.
fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    // Deeper than any event may be, since a request is refused in its own words and not here.
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
        // What is no JSON is its bytes.
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
