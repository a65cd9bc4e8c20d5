//! Verbs behind a colon: `/v1/consumers/{id}:commit` arrives as one piece of path and is taken apart here.
//!
//! Topics and event types may have colons in their own names. There a last `:part` is a verb only if it is one of the
//! route's, and only if its colon is not percent-encoded: `%3A` always belongs to the name.

use super::problem::Problem;
use axum::response::{IntoResponse, Response};
use contract::{Error, Identifier, Kind};
use http::Uri;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::future::{Ready, ready};

/// What is posted to a topic.
pub(crate) const OF_TOPIC: &[&str] = &["republish", "compact", "trim"];
/// What is posted to an event type.
pub(crate) const OF_EVENT_TYPE: &[&str] = &["archive"];

/// The id and the verb of a piece of path.
pub(crate) fn split(piece: &str) -> (&str, Option<&str>) {
    match piece.rsplit_once(':') {
        Some((id, verb)) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// A path in which every `%3A` is the colon it stands for, but for those in the identifier of a topic or an event type.
pub(crate) fn with_plain_colons(path: &str) -> String {
    let under = ["/v1/topics/", "/v1/event-types/"].iter().find(|under| path.starts_with(**under));
    let start = under.map_or(0, |under| under.len());
    let (before, rest) = path.split_at(start);
    let end = if start == 0 { 0 } else { rest.find('/').unwrap_or(rest.len()) };
    let (identifier, rest) = rest.split_at(end);
    format!("{before}{identifier}{}", rest.replace("%3A", ":").replace("%3a", ":"))
}

/// The verbs of a route whose last piece is an identifier; `None` for other routes.
pub(crate) fn of_route(template: &str) -> Option<&'static [&'static str]> {
    match template {
        "/v1/topics/{id}" => Some(OF_TOPIC),
        "/v1/event-types/{id}" => Some(OF_EVENT_TYPE),
        _ => None,
    }
}

/// The identifier, still encoded, and the verb of a piece of path as it was sent.
pub(crate) fn split_identifier<'a>(piece: &'a str, verbs: &[&'static str]) -> (&'a str, Option<&'static str>) {
    let Some((id, last)) = piece.rsplit_once(':') else { return (piece, None) };
    match verbs.iter().find(|verb| percent_decode_str(last).eq(verb.bytes())) {
        Some(verb) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// An identifier as a piece of path in which no part of it passes for a verb.
pub(crate) fn identifier_piece<'a>(id: &'a str, verbs: &[&'static str]) -> Cow<'a, str> {
    match split_identifier(id, verbs).1 {
        None => id.into(),
        Some(_) => id.replace(':', "%3A").into(),
    }
}

/// What a route of identifiers answers to methods it does not know.
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

/// What a route answers to methods it does not know: a thing takes `thing`, its verbs are posted.
pub(crate) fn other_methods(thing: &'static str) -> impl Fn(Uri) -> Ready<Response> + Clone {
    move |uri| {
        let piece = uri.path().rsplit('/').next().unwrap_or_default();
        ready(Problem::not_allowed(if split(piece).1.is_some() { "POST" } else { thing }).into_response())
    }
}

/// The answer to a post that names no verb of its route: either the name has a part too many, or nothing is posted to it.
pub(crate) fn unknown_for_identifier(id: &str, methods: &'static str) -> Problem {
    match id.contains(':') && Identifier::parse(id).is_err() {
        true => unknown(),
        false => Problem::not_allowed(methods),
    }
}

/// The answer to a verb nobody knows.
pub(crate) fn unknown() -> Problem {
    Error::new(Kind::NotFound, "There is no such verb at this path; see /docs for those there are.").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verb_of_the_route_behind_a_plain_colon_is_one() {
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
