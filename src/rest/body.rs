//! Request bodies: read completely, within limits, and parsed.
//!
//! - Memory is reserved as a body arrives, not by the length it announces. If there is none, the caller is refused and may
//!   retry, so that memory use stays bounded.
//! - A sender that stops, or whose body arrives too slowly, is disconnected.
//! - Invalid JSON is refused with a pointer and a text of our own: the parser's message may quote the caller's values.

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

/// The largest body of a request, and the kind of the refusal of a larger one.
#[derive(Clone, Copy)]
pub(crate) struct BodyLimit {
    pub(crate) bytes: usize,
    pub(crate) too_large: Kind,
}

/// Reads a body and reserves the memory it needs.
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
    // Nothing is reserved for a client that has sent nothing.
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

/// The capacity of a buffer for `size` bytes: less than twice what has arrived, and not more than the body can have.
fn next_capacity(capacity: usize, size: usize, largest: usize) -> usize {
    (capacity + capacity / 2).max(size.next_multiple_of(ROOM_STEP)).min(largest).max(size)
}

/// The minimum rate at which a body must arrive, in bytes per second.
const RATE_MIN: usize = 32 * 1024;

/// The deadline of a body of which `arrived` bytes have arrived. Without it, a body that drips would hold its memory for as
/// long as its sender wants.
fn deadline(began: Instant, arrived: usize, silence_max: Duration) -> Instant {
    began + silence_max + Duration::from_secs(u64::try_from(arrived / RATE_MIN).unwrap_or(u64::MAX))
}

/// Enforces the minimum rate of a part of a body: a pause may last as long as `server.body_timeout_secs`, but pauses do not add
/// up.
pub(crate) struct ArrivalRate {
    began: Instant,
    arrived: usize,
}

impl ArrivalRate {
    /// Nothing of the part has arrived.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), arrived: 0 }
    }

    /// The next piece; `None` at the end of the body.
    pub(crate) async fn next_chunk(&mut self, app: &AppState, body: &mut Body) -> Result<Option<Bytes>, Problem> {
        let deadline = deadline(self.began, self.arrived, app.options.body_timeout);
        let piece = next_piece_before(app, body, deadline).await?;
        self.arrived += piece.as_ref().map_or(0, Bytes::len);
        Ok(piece)
    }
}

/// The next piece of a body; `None` at its end.
pub(crate) async fn next_chunk(app: &AppState, body: &mut Body) -> Result<Option<Bytes>, Problem> {
    next_piece_before(app, body, Instant::now() + app.options.body_timeout).await
}

/// The same, until `deadline`.
async fn next_piece_before(app: &AppState, body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, Problem> {
    let deadline = deadline.min(Instant::now() + app.options.body_timeout);
    loop {
        let Ok(frame) = tokio::time::timeout_at(deadline, body.frame()).await else {
            return Err(Problem::from_status(StatusCode::REQUEST_TIMEOUT, &http::Method::POST));
        };
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                tracing::debug!(%error, "a body ended early");
                return Err(Error::new(Kind::Malformed, "The body ended before it was complete.").into());
            }
            // Trailers are ignored.
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

/// Parses a JSON body that is an object. The parser alone would also accept the members as a list.
pub(crate) fn json<T: DeserializeOwned>(profile: IdentifierProfile, bytes: &[u8]) -> contract::Result<T> {
    if is_list(bytes) {
        any_json::<IgnoredAny>(profile, bytes)?;
        return Err(Error::invalid("", "The body must be a JSON object."));
    }
    any_json(profile, bytes)
}

/// Whether a body begins like a list.
pub(crate) fn is_list(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'[')
}

/// Parses a JSON body of any type, with identifiers of `profile`.
pub(crate) fn any_json<T: DeserializeOwned>(profile: IdentifierProfile, bytes: &[u8]) -> contract::Result<T> {
    under_profile(profile, || {
        serde_json::from_slice(bytes)
            .or_else(|error| whole_numbers::parse_again(bytes, error))
            .map_err(|error| explain::<T>(bytes, &error))
    })
}

/// Why a body is refused: it is not JSON, or a value is not what the request needs, and where.
#[cold]
fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Error {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Error::new(Kind::Malformed, "The body is empty; send JSON.");
    }
    if std::str::from_utf8(bytes).is_err() {
        return Error::new(Kind::Malformed, "The body is not UTF-8.");
    }
    // The parser stops at the first error. Text that is invalid JSON further on is reported as such; and a value of the wrong
    // type in the place of a string looks like bad syntax to the parser.
    let syntax = serde_json::from_slice::<IgnoredAny>(bytes).err();
    let message = error.to_string();
    let wrong_type = || message.starts_with("expected value") || message.starts_with(OUT_OF_RANGE);
    if let Some(error) = syntax.as_ref().or_else(|| (!error.is_data() && !wrong_type()).then_some(error)) {
        return Error::new(Kind::Malformed, format!("The body is not JSON: look at {}.", error_location(bytes, error)));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => parse_refusal(&pointer(error.path()), &error.inner().to_string()),
        Ok(_) => Error::new(Kind::Malformed, "The body is not valid JSON."),
    }
}

/// The beginning of the parser's message about a number that no double can hold.
const OUT_OF_RANGE: &str = "number out of range";

/// Where the syntax error is. For a single line, such as one of an import, only the column: the line may be one of many.
fn error_location(bytes: &[u8], error: &serde_json::Error) -> String {
    match bytes.trim_ascii().contains(&b'\n') {
        true => format!("line {}, column {}", error.line(), error.column()),
        false => format!("column {}", error.column()),
    }
}

/// The refusal of a missing member, with the value to write where that is not obvious.
const fn hint(member: &str) -> &'static str {
    match member.as_bytes() {
        b"streaming" => "is missing; write `true` to keep the topic in the broker's default log",
        _ => "is missing",
    }
}

/// The refusal for the parser's message about the value at `pointer`.
fn parse_refusal(pointer: &str, message: &str) -> Error {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    if let Some((kind, detail)) = Kind::of_text(message) {
        return Error::new(kind, detail.to_owned()).with_violations(vec![Violation::new(pointer, detail)]);
    }
    if message.starts_with("unknown field") {
        return Error::invalid(pointer_to(pointer, quoted()), "is not a member of this request");
    }
    if message.starts_with("missing field") {
        return Error::invalid(format!("{pointer}/{}", quoted()), hint(quoted()));
    }
    if message.starts_with("duplicate field") {
        return Error::invalid(pointer_to(pointer, quoted()), "occurs twice");
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
        return Error::invalid(pointer, "has the wrong type");
    }
    if message.starts_with(OUT_OF_RANGE) {
        return Error::invalid(pointer, contract::NUMBER_TOO_LARGE);
    }
    Error::invalid(pointer, message)
}

/// The pointer to a member. The parser's path may already end at it.
fn pointer_to(pointer: &str, name: &str) -> String {
    let name = pointer_token(name);
    if pointer.ends_with(&format!("/{name}")) { pointer.to_owned() } else { format!("{pointer}/{name}") }
}

/// A name from the request as part of a JSON pointer: without control characters, and cut if it is long.
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
