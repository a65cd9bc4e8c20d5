//! One error for the whole broker, with one closed table of kinds.
//!
//! - [`Error::detail`] tells the caller what to do; submitted values are never part of it.
//! - The cause for the operator is [`std::error::Error::source`], and is only written to the log output.

use crate::{AggregateSequence, Offset, Sequence};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// The result of every fallible call of the broker.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $status:literal, $title:literal, $retry:literal, $effect:literal;)*) => {
        /// Every way a request can be refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds, in the order of the table.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// The code for programs.
            #[must_use]
            pub const fn code(self) -> &'static str { match self { $(Kind::$kind => $code,)* } }
            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 { match self { $(Kind::$kind => $status,)* } }
            /// A short title for people, the same for every error of the kind.
            #[must_use]
            pub const fn title(self) -> &'static str { match self { $(Kind::$kind => $title,)* } }
            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool { match self { $(Kind::$kind => $retry,)* } }
            /// Whether something was stored although the request failed.
            #[must_use]
            pub const fn had_effect(self) -> bool { match self { $(Kind::$kind => $effect,)* } }
        }
    };
}

kinds! {
    //                  code                            status  title                       retryable  had effect
    /// An identifier is neither a GTS id nor a code (or, for a filter, not a pattern).
    InvalidType         = "EVENT_BROKER_INVALID_TYPE",          400, "Invalid identifier",          false, false;
    /// `offset` is missing, negative or not an integer.
    InvalidOffset       = "EVENT_BROKER_INVALID_OFFSET",        400, "Invalid offset",              false, false;
    /// An event's own `sequence` is not positive or would leave a gap.
    InvalidSequence     = "EVENT_BROKER_INVALID_SEQUENCE",      400, "Invalid sequence",            false, false;
    /// More events or bytes than a batch may have.
    BatchTooLarge       = "EVENT_BROKER_BATCH_TOO_LARGE",       400, "Batch too large",             false, false;
    /// The text is not JSON, or not Unicode.
    Malformed           = "EVENT_BROKER_MALFORMED",             400, "Malformed request",           false, false;
    /// No credentials, or unknown ones.
    Unauthenticated     = "EVENT_BROKER_UNAUTHENTICATED",       401, "Not authenticated",           false, false;
    /// Known, but not allowed.
    Forbidden           = "EVENT_BROKER_FORBIDDEN",             403, "Not allowed",                 false, false;
    /// There is no such event, topic, type, consumer, …
    NotFound            = "EVENT_BROKER_NOT_FOUND",             404, "Not found",                   false, false;
    /// The resource does not have this method.
    MethodNotAllowed    = "EVENT_BROKER_METHOD_NOT_ALLOWED",    405, "Method not allowed",          false, false;
    /// There is no representation that the caller accepts.
    NotAcceptable       = "EVENT_BROKER_NOT_ACCEPTABLE",        406, "Not acceptable",              false, false;
    /// The request did not arrive in time.
    RequestTimeout      = "EVENT_BROKER_REQUEST_TIMEOUT",       408, "Request timeout",             true,  false;
    /// An event's own `sequence` is taken.
    SequenceExists      = "EVENT_BROKER_SEQUENCE_EXISTS",       409, "Sequence exists",             false, false;
    /// `expectedAggregateSequence` is not the aggregate's.
    ExpectedSequence    = "EVENT_BROKER_EXPECTED_SEQUENCE",     409, "Unexpected aggregate sequence", false, false;
    /// The same idempotency key with other `data`, in a topic with `onPayloadMismatch: reject`.
    EventIdReuse        = "EVENT_BROKER_EVENT_ID_REUSE",        409, "Idempotency key reused",      false, false;
    /// Another definition is registered under this name.
    AlreadyExists       = "EVENT_BROKER_ALREADY_EXISTS",        409, "Already exists",              false, false;
    /// The claim is no longer held with this token.
    ClaimLost           = "EVENT_BROKER_CLAIM_LOST",            409, "Claim lost",                  false, false;
    /// The operation is not possible in this status.
    InvalidState        = "EVENT_BROKER_INVALID_STATE",         409, "Invalid state",               false, false;
    /// The `Idempotency-Key` was used with another request.
    IdempotencyKeyReuse = "idempotency_key_reuse",              409, "Idempotency-Key reused",      false, false;
    /// The first request with this `Idempotency-Key` is still in flight.
    IdempotencyKeyInFlight = "idempotency_key_in_flight",       409, "Idempotency-Key in flight",   true,  false;
    /// The requested range was removed.
    Trimmed             = "EVENT_BROKER_TRIMMED",               410, "Trimmed",                     false, false;
    /// An event or a body is larger than the limit.
    PayloadTooLarge     = "EVENT_BROKER_PAYLOAD_TOO_LARGE",     413, "Payload too large",           false, false;
    /// Path and query are longer than the server accepts.
    UriTooLong          = "EVENT_BROKER_URI_TOO_LONG",          414, "URI too long",                false, false;
    /// The body's media type is unknown.
    UnsupportedMediaType = "EVENT_BROKER_UNSUPPORTED_MEDIA_TYPE", 415, "Unsupported media type",    false, false;
    /// The request is for a host that this server does not answer for.
    Misdirected         = "EVENT_BROKER_MISDIRECTED",           421, "Misdirected request",         false, false;
    /// The request is invalid: schema, unknown type, missing member, invalid CEL, …
    Validation          = "EVENT_BROKER_VALIDATION_ERROR",      422, "Validation failed",           false, false;
    /// Another event of its atomic unit was refused.
    BatchAborted        = "EVENT_BROKER_BATCH_ABORTED",         424, "Batch aborted",               false, false;
    /// A limit of the broker or of the caller is reached.
    Overloaded          = "EVENT_BROKER_OVERLOADED",            429, "Overloaded",                  true,  false;
    /// More or larger headers than the server accepts.
    HeadersTooLarge     = "EVENT_BROKER_HEADERS_TOO_LARGE",     431, "Headers too large",           false, false;
    /// A transfer coding that this server does not decode.
    NotImplemented      = "EVENT_BROKER_NOT_IMPLEMENTED",       501, "Not implemented",             false, false;
    /// The log is poisoned or its server unreachable. Whether the request that found this out was stored is unknown.
    Unavailable         = "EVENT_BROKER_UNAVAILABLE",           503, "Unavailable",                 true,  false;
    /// A projection did not reach the offset in time; after a publish the event is stored.
    ProjectionTimeout   = "EVENT_BROKER_PROJECTION_TIMEOUT",    504, "Projection timed out",        true,  true;
}

impl Kind {
    /// The kind and the detail of an error that was printed, for example by an error of serde.
    #[must_use]
    pub fn of_text(text: &str) -> Option<(Self, &str)> {
        let (code, detail) = text.split_once(": ")?;
        Self::ALL.iter().find(|kind| kind.code() == code).map(|kind| (*kind, detail))
    }
}

/// One of the reasons why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// JSON pointer from the event (or the request body) to the offending member.
    pub pointer: String,
    /// What is wrong there, without the submitted value.
    pub detail: String,
}

impl Violation {
    /// The detail for a text with a NUL character: neither PostgreSQL nor most receivers can store it.
    pub const NUL: &'static str = "contains a NUL character";
    /// The detail for a tenant that is the nil UUID: stored events without a tenant have it.
    pub const NIL_TENANT: &'static str = "must not be the nil UUID, which is no tenant";

    /// A violation at `pointer`.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// A refusal or a failure, with everything that the caller may know.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    detail: Cow<'static, str>,
    /// Boxed so that `Result` stays small.
    more: Option<Box<ErrorDetails>>,
}

#[derive(Debug, Clone, Default)]
struct ErrorDetails {
    violations: Vec<Violation>,
    actual: Option<u64>,
    earliest: Option<Sequence>,
    stored: Option<(Uuid, Sequence)>,
    retry_after_seconds: Option<u32>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind; `detail` says what to do about it.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), more: None }
    }

    /// A validation error at one place.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let violation = Violation::new(pointer, detail);
        let Violation { pointer, detail } = &violation;
        // The detail of a member continues a sentence that starts with the member.
        let sentence = match detail.starts_with(char::is_lowercase) {
            true => format!("`{}` {detail}.", pointer.trim_start_matches('/')),
            false => detail.clone(),
        };
        Self::new(Kind::Validation, sentence).with_violations(vec![violation])
    }

    /// There is no such thing, or none that the caller may see.
    #[must_use]
    pub fn not_found(what: &'static str) -> Self {
        Self::new(Kind::NotFound, format!("No such {what}."))
    }

    /// The requested range was removed; `earliest` is the first sequence that can be read.
    #[must_use]
    pub fn trimmed(earliest: Sequence) -> Self {
        let detail = "That part of the topic has been removed by retention; go on with `resumeOffset` as the offset. \
            `earliest` is the first sequence that can be read.";
        Self::new(Kind::Trimmed, detail).with_earliest(earliest)
    }

    /// The aggregate sequence is `actual`, not the one that the caller expected.
    #[must_use]
    pub fn expected_sequence(actual: AggregateSequence) -> Self {
        let detail =
            "The aggregate has moved on; read it again and decide anew. `actual` is its last aggregateSequence.";
        Self::new(Kind::ExpectedSequence, detail).with_actual(actual.get())
    }

    /// The same error with the actual number.
    #[must_use]
    pub fn with_actual(mut self, actual: u64) -> Self {
        self.more().actual = Some(actual);
        self
    }

    /// The same error with the first sequence that can be read.
    #[must_use]
    pub fn with_earliest(mut self, earliest: Sequence) -> Self {
        self.more().earliest = Some(earliest);
        self
    }

    /// The same error with the event that is stored.
    #[must_use]
    pub fn with_stored(mut self, id: Uuid, sequence: Sequence) -> Self {
        self.more().stored = Some((id, sequence));
        self
    }

    /// The same error with all violations.
    #[must_use]
    pub fn with_violations(mut self, violations: Vec<Violation>) -> Self {
        self.more().violations = violations;
        self
    }

    /// The same error with its cause, for the log output.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.more().source = Some(Arc::new(source));
        self
    }

    /// The same error with the time after which to retry.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.more().retry_after_seconds = Some(seconds);
        self
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The detail: what is wrong, and what to do about it.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// All violations, if there are several.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.more.as_ref().map_or(&[], |more| &more.violations)
    }

    /// The actual number: of the aggregate, for [`Kind::ExpectedSequence`]; of the checkpoint, for [`Kind::InvalidState`].
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        self.more.as_ref().and_then(|more| more.actual)
    }

    /// The first sequence that can be read, for [`Kind::Trimmed`].
    #[must_use]
    pub fn earliest(&self) -> Option<Sequence> {
        self.more.as_ref().and_then(|more| more.earliest)
    }

    /// The offset to continue after, for [`Kind::Trimmed`]: the one before [`Error::earliest`].
    #[must_use]
    pub fn resume_offset(&self) -> Option<Offset> {
        self.earliest().map(|earliest| Offset(earliest.get().saturating_sub(1)))
    }

    /// The event that is stored, for [`Kind::ProjectionTimeout`].
    #[must_use]
    pub fn stored(&self) -> Option<(Uuid, Sequence)> {
        self.more.as_ref().and_then(|more| more.stored)
    }

    /// When to retry, in seconds.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.more.as_ref().and_then(|more| more.retry_after_seconds)
    }

    fn more(&mut self) -> &mut ErrorDetails {
        self.more.get_or_insert_default()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.detail)?;
        for violation in self.violations() {
            write!(f, "\n  {}: {}", violation.pointer, violation.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.more.as_ref()?.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_statuses_are_errors() {
        let mut codes: Vec<_> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Kind::ALL.len());
        assert!(Kind::ALL.iter().all(|kind| (400..600).contains(&kind.status())));
    }

    #[test]
    fn a_result_stays_small() {
        assert!(size_of::<Error>() <= 40, "{}", size_of::<Error>());
    }
}
