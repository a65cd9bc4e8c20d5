//! Answers kept under a key of the caller's, so that a request sent again is answered again and not carried out again.
//!
//! - An answer is written by the decision it answers: in one append with what was decided, or with nothing where that
//!   was a refusal. Neither can be there without the other.
//! - The key is looked at before anything else in the decision. Two requests with one key are in the log's order,
//!   whichever process they came through; the second is told so and finds the first one's answer.
//! - A key is a row of the table of idempotency keys, under a fingerprint of its own, and lives as long as its ticket says.
//!
//! What status, headers and body mean, and which answers are worth keeping, is the business of who renders them.

use super::command::Command;
use super::decision::Decision;
use super::entry::Entry;
use super::rows::Remembered;
use contract::{Error, Kind, Position, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// Its status.
    pub status: u16,
    /// The headers that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// Its body, piece by piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<Piece>,
}

/// A piece of a kept body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Piece {
    /// As it is.
    Text(String),
    /// The text of the event stored at this position of the same log.
    Event(Position),
}

/// A request under a key: by which it is known, and what tells it from another under the same key.
#[derive(Debug)]
pub struct Ticket {
    /// Fingerprint of the key and its scope.
    pub key: u128,
    /// Fingerprint of the request.
    pub digest: u64,
    /// How long the key lives, in milliseconds.
    pub lives_millis: i64,
    kept: AtomicBool,
}

impl Ticket {
    /// A request whose answer is not kept yet.
    #[must_use]
    pub const fn new(key: u128, digest: u64, lives_millis: i64) -> Self {
        Self { key, digest, lives_millis, kept: AtomicBool::new(false) }
    }

    /// Whether its answer is in the log.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Whether a key remembered at `time` still lives at `now`.
    #[must_use]
    pub const fn is_alive(&self, time: i64, now: i64) -> bool {
        now.saturating_sub(time) < self.lives_millis
    }

    /// Its answer is in the log.
    pub(super) fn note_kept(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Refuses what another request with its key was decided about before.
    fn check(&self, decision: &Decision<'_>) -> Result<()> {
        match decision.answered(self.key)? {
            Some(known) if !self.is_alive(known.time, decision.now()) => Ok(()),
            Some(known) if known.digest == self.digest => Err(Self::in_flight()),
            Some(_) => Err(Self::reused()),
            None => Ok(()),
        }
    }

    /// The first request with this key is not done, or only just.
    #[must_use]
    pub fn in_flight() -> Error {
        let detail = "The first request with this Idempotency-Key is still running; repeat it for its answer.";
        Error::new(Kind::IdempotencyKeyInFlight, detail).with_retry_after(1)
    }

    /// The key stands for another request.
    #[must_use]
    pub fn reused() -> Error {
        let detail = "This Idempotency-Key was used for another request; use a new key for a new request.";
        Error::new(Kind::IdempotencyKeyReuse, detail)
    }

    fn entry(&self, answer: KeptAnswer) -> Entry {
        Entry::AnswerKept { key: self.key, digest: self.digest, answer }
    }
}

/// How an answer is rendered; `None`: it is not worth keeping.
type Render<A> = dyn Fn(Result<&A, &Error>) -> Option<KeptAnswer> + Send + Sync;

/// What to keep of an answer of this type; nothing, where nobody gave a key.
pub struct Keep<A>(Option<Keeping<A>>);

struct Keeping<A> {
    ticket: Arc<Ticket>,
    render: Arc<Render<A>>,
}

impl<A: 'static> Keep<A> {
    /// Nobody gave a key.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(None)
    }

    /// What `render` makes of the answer, under `ticket`. It is called while deciding, so it must be pure.
    pub fn new(
        ticket: Arc<Ticket>,
        render: impl Fn(Result<&A, &Error>) -> Option<KeptAnswer> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Keeping { ticket, render: Arc::new(render) }))
    }

    /// Whether there is something to keep.
    #[must_use]
    pub const fn is_something(&self) -> bool {
        self.0.is_some()
    }

    /// The same for a decision whose answer is not yet what the caller gets. `view` makes it that; `None` is an answer
    /// that the caller never sees.
    #[must_use]
    pub fn seen_through<B: 'static>(&self, view: fn(&B) -> Option<Result<A>>) -> Keep<B> {
        Keep(self.0.as_ref().map(|Keeping { ticket, render }| {
            let render = Arc::clone(render);
            let through = move |answer: Result<&B, &Error>| match answer.map(view) {
                Ok(None) => None,
                Ok(Some(answer)) => render(answer.as_ref()),
                Err(error) => render(Err(error)),
            };
            Keeping { ticket: Arc::clone(ticket), render: Arc::new(through) }
        }))
    }

    /// The command that decides `command` and keeps its answer; the command itself where nothing is kept.
    pub(super) fn beside<C: Command<Answer = A>>(self, command: C) -> Result<Keyed<C>, C> {
        match self.0 {
            Some(Keeping { ticket, render }) => Ok(Keyed { command, ticket, render }),
            None => Err(command),
        }
    }
}

impl<A> Clone for Keep<A> {
    fn clone(&self) -> Self {
        Self(
            self.0
                .as_ref()
                .map(|Keeping { ticket, render }| Keeping { ticket: Arc::clone(ticket), render: Arc::clone(render) }),
        )
    }
}

/// A command whose answer is kept under a key.
pub(super) struct Keyed<C: Command> {
    command: C,
    pub(super) ticket: Arc<Ticket>,
    render: Arc<Render<C::Answer>>,
}

/// What became of a keyed command. A refusal stands inside: it is an answer, and undoes nothing but its own.
pub(super) struct Kept<A> {
    pub(super) answer: Result<A>,
    pub(super) is_kept: bool,
}

impl<C: Command> Command for Keyed<C> {
    type Answer = Kept<C::Answer>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer> {
        self.ticket.check(decision)?;
        let mark = decision.mark();
        let answer = self.command.decide(decision);
        if answer.is_err() {
            decision.undo(mark);
        }
        let kept = (self.render)(answer.as_ref());
        let is_kept = kept.is_some();
        if let Some(kept) = kept {
            decision.add_entry(self.ticket.entry(kept))?;
        }
        Ok(Kept { answer, is_kept })
    }

    fn bytes(&self) -> usize {
        // The answer is about as large as what it answers.
        2 * self.command.bytes()
    }
}

/// Keeps an answer by itself: what it answers was decided elsewhere, or was refused before any decision.
pub(super) struct KeepAlone {
    pub(super) ticket: Arc<Ticket>,
    pub(super) answer: KeptAnswer,
}

impl Command for KeepAlone {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        self.ticket.check(decision)?;
        decision.add_entry(self.ticket.entry(self.answer.clone()))?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Event(_) => size_of::<Piece>(),
        };
        2 * self.answer.body.iter().map(piece).sum::<usize>()
    }
}

/// The row of a kept answer, and its key; `None` for other facts.
pub(super) fn row(entry: &Entry, position: Position, time: i64) -> Option<(u128, Remembered)> {
    match entry {
        Entry::AnswerKept { key, digest, .. } => Some((*key, Remembered { position, time, digest: *digest })),
        _ => None,
    }
}

/// A fingerprint as 32 hexadecimal digits: JSON's numbers are not that long.
pub(super) mod digits {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(key: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{key:032x}"))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(|_| de::Error::custom("not a fingerprint"))
    }
}
