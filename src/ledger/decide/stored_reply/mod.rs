//! Replies stored under the idempotency key of a request, so that a repeated request receives the same reply and is not
//! executed again.
//!
//! - A reply is written by the decision it belongs to: in one append with what was decided, or alone if that was a
//!   refusal. Neither can be in the log without the other.
//! - The decision checks the key before anything else. The log orders two requests with one key, whichever process
//!   received them; the second one is refused, and its caller finds the reply to the first.
//! - A key is a row of the table of idempotency keys, under a fingerprint of its own, for as long as its request says.
//!
//! What status, headers and body mean, and which replies are stored, is decided by the caller that renders them.

use super::decision::Decision;
use crate::ledger::disk::row_codec::IdempotencyRow;
use crate::ledger::facts::entry::Entry;
use crate::ledger::facts::placement::LogLocation;
use crate::ledger::writer::command::Command;
use contract::{Error, Kind, Position, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// A reply in the form that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReply {
    /// Its status.
    pub status: u16,
    /// Its headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Its body, piece by piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<ReplyPiece>,
}

impl StoredReply {
    /// Whether it names events of other logs.
    pub(in crate::ledger) fn spans_logs(&self) -> bool {
        self.body.iter().any(|piece| matches!(piece, ReplyPiece::EventOf { .. }))
    }
}

/// A piece of a stored body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyPiece {
    /// Literal text.
    Text(String),
    /// The text of the event stored at this position of the same log.
    Event(Position),
    /// The text of an event in another log.
    EventOf {
        /// The log.
        log: LogLocation,
        /// The event's position there.
        position: Position,
        /// The event's id: a log that was created again has other events at its positions.
        id: Uuid,
    },
}

/// A request with an idempotency key: the fingerprint of the key, and that of the request to compare repetitions with.
#[derive(Debug)]
pub struct IdempotentRequest {
    /// Fingerprint of the key and its scope.
    pub key: u128,
    /// Fingerprint of the request.
    pub digest: u64,
    /// The lifetime of the key, in milliseconds.
    pub lives_millis: i64,
    kept: AtomicBool,
}

impl IdempotentRequest {
    /// A request whose reply is not stored yet.
    #[must_use]
    pub const fn new(key: u128, digest: u64, lives_millis: i64) -> Self {
        Self { key, digest, lives_millis, kept: AtomicBool::new(false) }
    }

    /// Whether its reply is in the log.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Whether a key stored at `time` is still valid at `now`.
    #[must_use]
    pub const fn is_alive(&self, time: i64, now: i64) -> bool {
        now.saturating_sub(time) < self.lives_millis
    }

    /// Notes that its reply is in the log.
    pub(in crate::ledger) fn mark_recorded(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Refuses the request if another request with its key was decided before.
    fn check(&self, decision: &Decision<'_>) -> Result<()> {
        match decision.recorded_reply(self.key)? {
            Some(known) if !self.is_alive(known.time, decision.time_for(known.time)) => Ok(()),
            Some(known) if known.digest == self.digest => Err(Self::in_flight()),
            Some(_) => Err(Self::reused()),
            None => Ok(()),
        }
    }

    /// The error while the first request with this key is running, or has only just ended.
    #[must_use]
    pub fn in_flight() -> Error {
        let detail = "The first request with this Idempotency-Key is still running; repeat it for its answer.";
        Error::new(Kind::IdempotencyKeyInFlight, detail).with_retry_after(1)
    }

    /// The error if the key was used for another request.
    #[must_use]
    pub fn reused() -> Error {
        let detail = "This Idempotency-Key was used for another request; use a new key for a new request.";
        Error::new(Kind::IdempotencyKeyReuse, detail)
    }

    fn entry(&self, answer: StoredReply) -> Entry {
        Entry::AnswerKept { key: self.key, digest: self.digest, answer, kept_at: None }
    }
}

/// How a reply is rendered; `None`: it is not stored.
type RenderReply<A> = dyn Fn(Result<&A, &Error>) -> Option<StoredReply> + Send + Sync;

/// Renders the reply to store from an answer of this type; stores nothing for a request without a key.
pub struct ReplyRecorder<A>(Option<ActiveRecorder<A>>);

struct ActiveRecorder<A> {
    ticket: Arc<IdempotentRequest>,
    render: Arc<RenderReply<A>>,
}

impl<A: 'static> ReplyRecorder<A> {
    /// For a request without a key.
    #[must_use]
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Stores what `render` makes of the answer, under the key of `ticket`. It is called while deciding, so it must be
    /// pure.
    pub fn new(
        request: Arc<IdempotentRequest>,
        render: impl Fn(Result<&A, &Error>) -> Option<StoredReply> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(ActiveRecorder { ticket: request, render: Arc::new(render) }))
    }

    /// Whether a reply is to be stored.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Adapts the recorder to a command whose answer is not yet what the caller receives. `view` converts it, with what
    /// was read before the decision, and is pure; `None` is an answer that the caller never sees, and that has changed
    /// nothing: it is not stored.
    #[must_use]
    pub fn map_answer<B: 'static>(
        &self,
        view: impl Fn(&B) -> Option<Result<A>> + Send + Sync + 'static,
    ) -> ReplyRecorder<B> {
        ReplyRecorder(self.0.as_ref().map(|ActiveRecorder { ticket, render }| {
            let render = Arc::clone(render);
            let through = move |answer: Result<&B, &Error>| match answer.map(&view) {
                Ok(None) => None,
                Ok(Some(answer)) => render(answer.as_ref()),
                Err(error) => render(Err(error)),
            };
            ActiveRecorder { ticket: Arc::clone(ticket), render: Arc::new(through) }
        }))
    }

    /// The command that decides `command` and stores its reply; the command itself if nothing is stored.
    pub(in crate::ledger) fn wrap<C: Command<Answer = A>>(self, command: C) -> Result<IdempotentCommand<C>, C> {
        match self.0 {
            Some(ActiveRecorder { ticket, render }) => Ok(IdempotentCommand { command, ticket, render }),
            None => Err(command),
        }
    }
}

impl<A> Clone for ReplyRecorder<A> {
    fn clone(&self) -> Self {
        Self(self.0.as_ref().map(|ActiveRecorder { ticket, render }| ActiveRecorder {
            ticket: Arc::clone(ticket),
            render: Arc::clone(render),
        }))
    }
}

/// A command whose reply is stored under a key.
pub(in crate::ledger) struct IdempotentCommand<C: Command> {
    command: C,
    pub(in crate::ledger) ticket: Arc<IdempotentRequest>,
    render: Arc<RenderReply<C::Answer>>,
}

/// The outcome of a command with a key. A refusal is inside: it is stored like any reply, and undoes only its own
/// changes.
pub(in crate::ledger) struct RecordedOutcome<A> {
    pub(in crate::ledger) answer: Result<A>,
    pub(in crate::ledger) is_kept: bool,
}

impl<C: Command> Command for IdempotentCommand<C> {
    type Answer = RecordedOutcome<C::Answer>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        self.ticket.check(decision)?;
        let mark = decision.mark();
        let answer = self.command.decide(decision);
        if answer.is_err() {
            decision.undo(mark);
        }
        // A full disk has no space for it. What is executed there frees space, and has no further effect when it is
        // repeated.
        let kept = (self.render)(answer.as_ref()).filter(|_| !decision.is_full());
        let is_kept = kept.is_some();
        if let Some(kept) = kept {
            decision.add_entry(self.ticket.entry(kept))?;
        }
        Ok(RecordedOutcome { answer, is_kept })
    }

    fn bytes(&self) -> usize {
        // The reply is about as large as the request.
        2 * self.command.bytes()
    }
}

/// Stores a reply by itself: its request was decided elsewhere, or was refused before any decision.
pub(in crate::ledger) struct RecordReply {
    pub(in crate::ledger) ticket: Arc<IdempotentRequest>,
    pub(in crate::ledger) answer: StoredReply,
    /// The version of the registry that a refusal depends on. If the registry has changed since, the refusal may be
    /// wrong and is not stored: another process may have registered what was missing.
    pub(in crate::ledger) rests_on: Option<Position>,
}

impl Command for RecordReply {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        self.ticket.check(decision)?;
        let is_current = self.rests_on.is_none_or(|version| version == decision.registry().version());
        if is_current && !decision.is_full() {
            decision.add_entry(self.ticket.entry(self.answer.clone()))?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let piece = |piece: &ReplyPiece| match piece {
            ReplyPiece::Text(text) => text.len(),
            ReplyPiece::Event(_) | ReplyPiece::EventOf { .. } => size_of::<ReplyPiece>(),
        };
        2 * self.answer.body.iter().map(piece).sum::<usize>()
    }
}

/// The table row of a stored reply, and its key; `None` for other facts.
pub(in crate::ledger) fn row(entry: &Entry, position: Position, time: i64) -> Option<(u128, IdempotencyRow)> {
    match entry {
        Entry::AnswerKept { key, digest, kept_at, .. } => {
            let time = kept_at.unwrap_or(time);
            Some((*key, IdempotencyRow { position, time, digest: *digest }))
        }
        _ => None,
    }
}

/// A fingerprint as 32 hexadecimal digits: JSON numbers are too short for it.
pub(in crate::ledger) mod digits {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in crate::ledger) fn serialize<S: Serializer>(key: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{key:032x}"))
    }

    pub(in crate::ledger) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(|_| de::Error::custom("not a fingerprint"))
    }
}

#[cfg(test)]
mod tests;
