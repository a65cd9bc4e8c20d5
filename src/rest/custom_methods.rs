//! Custom methods after a colon: `/v1/consumers/{id}:commit` arrives as one segment of the path and is split here.
//!
//! The names of topics, event types and consumer groups may contain colons. There, a last `:part` is a custom method only if
//! the route has it, and only if its colon is not percent-encoded: `%3A` always belongs to the name.

use super::problem::Problem;
use axum::response::{IntoResponse, Response};
use contract::{Error, Identifier, Kind};
use http::Uri;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::future::{Ready, ready};

/// The custom methods of a topic.
pub(crate) const OF_TOPIC: &[&str] = &["republish", "compact", "trim"];
/// The custom methods of an event type.
pub(crate) const OF_EVENT_TYPE: &[&str] = &["archive"];
/// The custom methods of a consumer group.
pub(crate) const OF_GROUP: &[&str] = &["reset"];

/// The id and the custom method of a segment.
pub(crate) fn split(piece: &str) -> (&str, Option<&str>) {
    match piece.rsplit_once(':') {
        Some((id, verb)) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// A path in which every `%3A` is decoded, except in the name of a topic, an event type or a consumer group.
pub(crate) fn with_plain_colons(path: &str) -> String {
    let under =
        ["/v1/topics/", "/v1/event-types/", "/v1/consumer-groups/"].iter().find(|under| path.starts_with(**under));
    let start = under.map_or(0, |under| under.len());
    let (before, rest) = path.split_at(start);
    let end = if start == 0 { 0 } else { rest.find('/').unwrap_or(rest.len()) };
    let (identifier, rest) = rest.split_at(end);
    format!("{before}{identifier}{}", rest.replace("%3A", ":").replace("%3a", ":"))
}

/// The custom methods of a route whose last segment is a name that may contain colons; `None` for other routes.
pub(crate) fn of_route(template: &str) -> Option<&'static [&'static str]> {
    match template {
        "/v1/topics/{id}" => Some(OF_TOPIC),
        "/v1/event-types/{id}" => Some(OF_EVENT_TYPE),
        "/v1/consumer-groups/{name}" => Some(OF_GROUP),
        _ => None,
    }
}

/// The name, still encoded, and the custom method of a segment as it was sent.
pub(crate) fn split_identifier<'a>(piece: &'a str, verbs: &[&'static str]) -> (&'a str, Option<&'static str>) {
    let Some((id, last)) = piece.rsplit_once(':') else { return (piece, None) };
    match verbs.iter().find(|verb| percent_decode_str(last).eq(verb.bytes())) {
        Some(verb) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// A name as a segment in which no part can be taken for a custom method.
pub(crate) fn identifier_piece<'a>(id: &'a str, verbs: &[&'static str]) -> Cow<'a, str> {
    match split_identifier(id, verbs).1 {
        None => id.into(),
        Some(_) => id.replace(':', "%3A").into(),
    }
}

/// The response of a route with such a name to methods that it does not support.
pub(crate) fn other_methods_of_identifier(
    thing: &'static str,
    verbs: &'static [&'static str],
) -> impl Fn(Uri) -> Ready<Response> + Clone {
    move |uri| {
        let piece = uri.path().rsplit('/').next().unwrap_or_default();
        let has_verb = split_identifier(piece, verbs).1.is_some();
        ready(Problem::not_allowed(if has_verb { "POST" } else { thing }).into_response())
    }
}

/// The response of a route to methods that it does not support: a resource supports `thing`, its custom methods are posted.
pub(crate) fn other_methods(thing: &'static str) -> impl Fn(Uri) -> Ready<Response> + Clone {
    move |uri| {
        let piece = uri.path().rsplit('/').next().unwrap_or_default();
        ready(Problem::not_allowed(if split(piece).1.is_some() { "POST" } else { thing }).into_response())
    }
}

/// The problem for a post without a custom method of the route: either the last part of the name is an unknown one, or the
/// resource cannot be posted to.
pub(crate) fn unknown_for_identifier(id: &str, methods: &'static str) -> Problem {
    match id.contains(':') && Identifier::parse(id).is_err() {
        true => unknown(),
        false => Problem::not_allowed(methods),
    }
}

/// The problem for an unknown custom method.
pub(crate) fn unknown() -> Problem {
    Error::new(Kind::NotFound, "There is no such custom method at this path; /docs lists all of them.").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_custom_method_of_the_route_after_a_plain_colon_is_one() {
        for (piece, id, verb) in [
            ("a:b:c", "a:b:c", None),
            ("a:b:trim", "a:b", Some("trim")),
            ("a:b:%74rim", "a:b", Some("trim")),
            ("a:b%3Atrim", "a:b%3Atrim", None),
            ("a%3Ab%3atrim:trim", "a%3Ab%3atrim", Some("trim")),
            ("a:trim:b", "a:trim:b", None),
            ("a:TRIM", "a:TRIM", None),
            ("a:archive", "a:archive", None),
            ("a.b", "a.b", None),
        ] {
            assert_eq!(split_identifier(piece, OF_TOPIC), (id, verb), "{piece}");
        }
        for (path, read) in [
            ("/v1/events%3Apoll", "/v1/events:poll"),
            ("/v1/topics/a%3Atrim", "/v1/topics/a%3Atrim"),
            ("/v1/event-types/a%3ab/versions/1.0%3afinalise", "/v1/event-types/a%3ab/versions/1.0:finalise"),
        ] {
            assert_eq!(with_plain_colons(path), read);
        }
        assert_eq!(identifier_piece("a:trim", OF_TOPIC), "a%3Atrim");
        assert_eq!(identifier_piece("a:b", OF_TOPIC), "a:b");
    }
}
