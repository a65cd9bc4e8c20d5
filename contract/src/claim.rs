//! Claims: a handler's exclusive, leased, fenced hold on one event, so that its work is done once.
//!
//! - At most one live claim per handler and event; the log's order decides races.
//! - A [`Token`] grows with every claim. Whoever comes with an older one is refused, here and wherever else it is checked.
//! - A claim is over when it is done. One that failed may be claimed again later; one given up is a dead letter.

use crate::object::object;
use crate::{FencingToken, IsoDuration, NewEvent, Offset, Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A claim as one asks for it: of an event by its id, or by its topic and sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewClaim {
    /// Whose work it is.
    pub handler: String,
    /// Which event; or `topic` and `sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<Uuid>,
    /// The event's topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// The event's number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// Who does the work, for people; the producer's id when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How long the claim holds without a heartbeat; the handler's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<IsoDuration>,
    /// What order events of one aggregate keep; the handler's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ClaimOrder>,
}

object!(NewClaim ClaimError Completion ClaimCompletion ClaimFailure);

impl NewClaim {
    /// Of the event with this id.
    #[must_use]
    pub fn of_event(handler: impl Into<String>, event_id: Uuid) -> Self {
        Self { event_id: Some(event_id), ..Self::by(handler) }
    }

    /// Of the event at this place.
    #[must_use]
    pub fn at(handler: impl Into<String>, topic: TopicId, sequence: Sequence) -> Self {
        Self { topic: Some(topic), sequence: Some(sequence), ..Self::by(handler) }
    }

    fn by(handler: impl Into<String>) -> Self {
        Self {
            handler: handler.into(),
            event_id: None,
            topic: None,
            sequence: None,
            owner: None,
            lease: None,
            order: None,
        }
    }

    /// The same, by this owner.
    #[must_use]
    pub fn owned_by(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }
}

/// What order the events of one aggregate keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimOrder {
    /// If a later event of the same aggregate is already done, this event is skipped (`stale`).
    #[default]
    Latest,
    /// None is skipped: an event waits until the one before it is done.
    Gapless,
}

/// What became of the wish to claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutcome {
    /// Which it is.
    pub outcome: ClaimAnswer,
    /// The claim, where it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// When to come back, where the event is held and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// Whether an event may be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimAnswer {
    /// Yes: do the work, then say that it is done.
    Claimed,
    /// The work is done, or somebody has decided that it need not be.
    Done,
    /// A later event of the aggregate is finished; this one is not to be worked on any more.
    Stale,
    /// Not now: somebody is at it, or it waits for its next attempt, for its predecessor, or for a person.
    Held,
}

/// A claim as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Stands for handler, topic and sequence; the same for every claim of one event by one handler.
    pub id: String,
    /// Whose work it is.
    pub handler: String,
    /// The event's topic.
    pub topic: TopicId,
    /// The event's number there. Of a republished event it is the number of the first one: a claim is of all copies.
    pub sequence: Sequence,
    /// The event.
    pub event_id: Uuid,
    /// What fences: it grows with every claim.
    pub token: FencingToken,
    /// Which attempt it is, take-overs counted.
    pub attempt: u32,
    /// Who does the work.
    pub owner: String,
    /// How it stands.
    pub status: ClaimStatus,
    /// How long it holds without a heartbeat.
    pub lease: IsoDuration,
    /// How often whoever does the work should send a heartbeat.
    pub heartbeat: IsoDuration,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Until when it holds, while it is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    /// When it may be claimed again, once it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The dead letter it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Uuid>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ClaimError>,
    /// How far the group named like the handler has come, where the claim was finished with an offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_offset: Option<Offset>,
    /// The first event at or below that offset that somebody has begun and nobody has finished: the offset was committed
    /// only up to the one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_sequence: Option<Sequence>,
}

/// How a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimStatus {
    /// Somebody has it; or had it, where the lease is over and nobody has taken over yet.
    Claimed,
    /// It failed, and waits to be claimed again.
    Failed,
    /// It was given up: a dead letter.
    Dead,
    /// It was given up, and may be claimed anew.
    Redriven,
    /// Its worker gave it back; it may be claimed at once.
    Released,
    /// The work is done.
    Done,
}

/// Why work failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimError {
    /// What kind of failure, as the worker's language names it.
    pub class: String,
    /// What it says. Cut off where it is very long.
    pub message: String,
}

impl ClaimError {
    /// A failure of this class.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into() }
    }
}

/// The word that work is done, with what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Completion {
    /// The claim's token.
    pub token: FencingToken,
    /// Events the work has produced: stored with the completion, or neither is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<NewEvent>,
    /// How far the group named like the handler has come in the event's topic. It is not moved over an event that
    /// somebody has begun and nobody has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}

impl Completion {
    /// Done, and nothing else.
    #[must_use]
    pub const fn of(token: FencingToken) -> Self {
        Self { token, events: Vec::new(), offset: None }
    }
}

/// One of several completions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimCompletion {
    /// The claim.
    pub id: String,
    /// Its token.
    pub token: FencingToken,
    /// Events the work has produced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<NewEvent>,
    /// How far the group named like the handler has come in the event's topic. It is not moved over an event that
    /// somebody has begun and nobody has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}

/// The word that work failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimFailure {
    /// The claim's token.
    pub token: FencingToken,
    /// Why.
    pub error: ClaimError,
    /// Whether another attempt makes sense; it does when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// One try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimAttempt {
    /// Which one, from 1.
    pub number: u32,
    /// The token it had.
    pub token: FencingToken,
    /// Who made it.
    pub owner: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was known to have failed.
    pub failed_at: Timestamp,
    /// Why.
    pub error: ClaimError,
}
