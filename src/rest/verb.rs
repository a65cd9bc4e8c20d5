//! Verbs behind a colon: `/v1/consumers/{id}:commit` arrives as one piece of path and is taken apart here.

use axum::response::{IntoResponse, Response};
use contract::{Error, Kind};
use http::Uri;
use http::header::{ALLOW, HeaderValue};
use std::future::{Ready, ready};

use super::problem::Problem;

/// The id and the verb of a piece of path.
pub(crate) fn split(piece: &str) -> (&str, Option<&str>) {
    match piece.rsplit_once(':') {
        Some((id, verb)) => (id, Some(verb)),
        None => (piece, None),
    }
}

/// The answer to a method that a path does not take.
pub(crate) fn not_allowed(allowed: &'static str) -> Response {
    let detail = "This path does not take that method; see the `Allow` header.";
    let mut response = Problem::from(Error::new(Kind::MethodNotAllowed, detail)).into_response();
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// What a route answers to methods it does not know: a thing takes `thing`, its verbs are posted.
pub(crate) fn other_methods(thing: &'static str) -> impl Fn(Uri) -> Ready<Response> + Clone {
    move |uri| {
        let piece = uri.path().rsplit('/').next().unwrap_or_default();
        ready(not_allowed(if split(piece).1.is_some() { "POST" } else { thing }))
    }
}

/// The answer to a verb nobody knows.
pub(crate) fn unknown() -> Problem {
    Error::new(Kind::NotFound, "There is no such verb at this path; see /docs for those there are.").into()
}
