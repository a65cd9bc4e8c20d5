//! Verbs behind a colon: `/v1/consumers/{id}:commit` arrives as one piece of path and is taken apart here.

use super::problem::Problem;
use axum::response::{IntoResponse, Response};
use contract::{Error, Kind};
use http::Uri;
use std::future::{Ready, ready};

/// The id and the verb of a piece of path.
pub(crate) fn split(piece: &str) -> (&str, Option<&str>) {
    match piece.rsplit_once(':') {
        Some((id, verb)) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// What a route answers to methods it does not know: a thing takes `thing`, its verbs are posted.
pub(crate) fn other_methods(thing: &'static str) -> impl Fn(Uri) -> Ready<Response> + Clone {
    move |uri| {
        let piece = uri.path().rsplit('/').next().unwrap_or_default();
        ready(Problem::not_allowed(if split(piece).1.is_some() { "POST" } else { thing }).into_response())
    }
}

/// The answer to a verb nobody knows.
pub(crate) fn unknown() -> Problem {
    Error::new(Kind::NotFound, "There is no such verb at this path; see /docs for those there are.").into()
}
