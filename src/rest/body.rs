//! Request bodies: taken in whole, within limits, and parsed into what they must be.
//!
//! - Room is taken as a body arrives, not by the length it announces; when there is none the caller is told to come back,
//!   and memory stays flat.
//! - A sender that stops half way is let go after a while, and so is one whose body arrives too slowly.
//! - JSON that does not fit is refused by pointer, in our words: what the parser says may quote the caller's values.

use super::problem::Problem;
use super::{AppState, whole_numbers};
use crate::memory::{ByteReservation, ROOM_STEP};
use axum::body::Body;
use bytes::Bytes;
use contract::{Error, IdentifierProfile, Kind, Violation, under_profile};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};
use std::time::Duration;
use tokio::time::Instant;

/// What a body may be, and what is said of a larger one.
#[derive(Clone, Copy)]
pub(crate) struct BodyLimit {
    pub(crate) bytes: usize,
    pub(crate) too_large: Kind,
}

/// Takes in a body, with the room it needs.
pub(crate) async fn read_body(
    app: &AppState,
    headers: &HeaderMap,
    mut body: Body,
    limit: BodyLimit,
) -> Result<(Bytes, ByteReservation), Problem> {
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Error::new(Kind::UnsupportedMediaType, "Send the body without a content encoding.").into());
    }
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit.bytes) {
        return Err(too_large(limit));
    }
    // A silent client has sent nothing that needs room.
    let mut reservation = app.reserve_body()?;
    let began = Instant::now();
    let Some(first) = next_chunk(app, &mut body).await? else { return Ok((Bytes::new(), reservation)) };
    reservation.grow_to(first.len())?;
    if announced == Some(first.len()) {
        return Ok((first, reservation));
    }
    let mut whole = Vec::new();
    let mut next = Some(first);
    while let Some(piece) = next {
        let size = whole.len() + piece.len();
        if size > limit.bytes {
            return Err(too_large(limit));
        }
        if size > whole.capacity() {
            let capacity = next_capacity(whole.capacity(), size, announced.unwrap_or(limit.bytes));
            reservation.grow_to(capacity)?;
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&piece);
        drop(piece);
        next = next_piece_before(app, &mut body, deadline(began, whole.len(), app.options.body_timeout)).await?;
    }
    Ok((whole.into(), reservation))
}

/// How large a buffer becomes that has to hold `size` bytes: never twice what has arrived, and not larger than the body
/// can become.
fn next_capacity(capacity: usize, size: usize, largest: usize) -> usize {
    (capacity + capacity / 2).max(size.next_multiple_of(ROOM_STEP)).min(largest).max(size)
}

/// The least rate at which a body must arrive, in bytes per second.
const RATE_MIN: usize = 32 * 1024;

/// Until when a body must be whole of which so much has arrived. Without it, a body that drips would hold its room for as
/// long as its sender likes.
fn deadline(began: Instant, arrived: usize, silence_max: Duration) -> Instant {
    began + silence_max + Duration::from_secs(u64::try_from(arrived / RATE_MIN).unwrap_or(u64::MAX))
}

/// The next piece of a body; `None` at its end.
pub(crate) async fn next_chunk(app: &AppState, body: &mut Body) -> Result<Option<Bytes>, Problem> {
    next_piece_before(app, body, Instant::now() + app.options.body_timeout).await
}

/// The same, no later than `deadline`.
async fn next_piece_before(app: &AppState, body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, Problem> {
    let deadline = deadline.min(Instant::now() + app.options.body_timeout);
    loop {
        let Ok(frame) = tokio::time::timeout_at(deadline, body.frame()).await else {
            return Err(Problem::from_status(StatusCode::REQUEST_TIMEOUT, &http::Method::POST));
        };
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Error::new(Kind::Malformed, "The body ended before it was complete.").into()),
            // Trailers say nothing we use.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => return Ok(Some(piece)),
                Err(_) => continue,
            },
        }
    }
}

fn too_large(limit: BodyLimit) -> Problem {
    Error::new(limit.too_large, format!("The body may have at most {} bytes.", limit.bytes)).into()
}

/// Parses a JSON body that is an object. The parser alone would take its members as a list, too.
pub(crate) fn json<T: DeserializeOwned>(profile: IdentifierProfile, bytes: &[u8]) -> contract::Result<T> {
    if is_list(bytes) {
        any_json::<IgnoredAny>(profile, bytes)?;
        return Err(Error::invalid("", "The body must be a JSON object."));
    }
    any_json(profile, bytes)
}

/// Whether a body can only be a list.
pub(crate) fn is_list(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'[')
}

/// Parses a JSON body that may be anything, with its identifiers held to `profile`.
pub(crate) fn any_json<T: DeserializeOwned>(profile: IdentifierProfile, bytes: &[u8]) -> contract::Result<T> {
    under_profile(profile, || {
        serde_json::from_slice(bytes)
            .or_else(|error| whole_numbers::parse_again(bytes, error))
            .map_err(|error| explain::<T>(bytes, &error))
    })
}

/// Why a body is refused: not JSON at all, or not what is asked for, and where.
#[cold]
fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Error {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Error::new(Kind::Malformed, "The body is empty; send JSON.");
    }
    if std::str::from_utf8(bytes).is_err() {
        return Error::new(Kind::Malformed, "The body is not UTF-8.");
    }
    // The parser stops at the first thing it does not like. Text that is no JSON further on is no JSON all the same, and
    // a value of the wrong type where a word is wanted looks like bad syntax to it.
    let syntax = serde_json::from_slice::<IgnoredAny>(bytes).err();
    let message = error.to_string();
    let wrong_type = || message.starts_with("expected value") || message.starts_with(OUT_OF_RANGE);
    if let Some(error) = syntax.as_ref().or_else(|| (!error.is_data() && !wrong_type()).then_some(error)) {
        return Error::new(Kind::Malformed, format!("The body is not JSON: look at {}.", error_location(bytes, error)));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => parse_refusal(&pointer(error.path()), &error.inner().to_string()),
        Ok(_) => Error::new(Kind::Malformed, "The body is not JSON."),
    }
}

/// How the parser's message about a number begins that no double can hold.
const OUT_OF_RANGE: &str = "number out of range";

/// Where a body stops being JSON. A single line, such as one of an import, is not counted: it may be one of many.
fn error_location(bytes: &[u8], error: &serde_json::Error) -> String {
    match bytes.trim_ascii().contains(&b'\n') {
        true => format!("line {}, column {}", error.line(), error.column()),
        false => format!("column {}", error.column()),
    }
}

/// What to write for a member that must be there, where that is not obvious.
const fn hint(member: &str) -> &'static str {
    match member.as_bytes() {
        b"streaming" => "is missing; write `true` to keep the topic in the broker's default log",
        _ => "is missing",
    }
}

/// Our words for what the parser found at `pointer`.
fn parse_refusal(pointer: &str, message: &str) -> Error {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    if let Some((kind, detail)) = Kind::of_text(message) {
        return Error::new(kind, detail.to_owned()).with_violations(vec![Violation::new(pointer, detail)]);
    }
    if message.starts_with("unknown field") {
        return Error::invalid(pointer_to(pointer, quoted()), "is not a member this request knows");
    }
    if message.starts_with("missing field") {
        return Error::invalid(format!("{pointer}/{}", quoted()), hint(quoted()));
    }
    if message.starts_with("duplicate field") {
        return Error::invalid(pointer_to(pointer, quoted()), "is there twice");
    }
    if message.starts_with("unknown variant") {
        let (_, expected) = message.split_once("expected ").unwrap_or_default();
        return Error::invalid(pointer, format!("must be {expected}"));
    }
    if message.starts_with("invalid type")
        || message.starts_with("invalid value")
        || message.starts_with("invalid length")
    {
        let (_, expected) = message.rsplit_once("expected ").unwrap_or_default();
        return Error::invalid(pointer, format!("must be {}", whole_numbers::describe(expected)));
    }
    if message.starts_with("UUID parsing failed") {
        return Error::invalid(pointer, "must be a UUID");
    }
    if message.starts_with("expected value") {
        return Error::invalid(pointer, "has another type than it may have");
    }
    if message.starts_with(OUT_OF_RANGE) {
        return Error::invalid(pointer, contract::NUMBER_TOO_LARGE);
    }
    Error::invalid(pointer, message)
}

/// The pointer to a member. The path ends at the member itself where the parser knows it, and one short where not.
fn pointer_to(pointer: &str, name: &str) -> String {
    let name = pointer_token(name);
    if pointer.ends_with(&format!("/{name}")) { pointer.to_owned() } else { format!("{pointer}/{name}") }
}

/// A caller's name for something as part of a JSON pointer: cut where it gets silly, and fit to be shown.
pub(crate) fn pointer_token(name: &str) -> String {
    let shown = name.chars().take(64).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    shown.collect::<String>().replace('~', "~0").replace('/', "~1")
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", pointer_token(key))),
            Segment::Enum { .. } | Segment::Unknown => (),
        }
    }
    pointer
}
