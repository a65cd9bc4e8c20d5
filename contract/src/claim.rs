//! Claims: a handler's exclusive, leased, fenced hold on one event, so that its work is done once.
//!
//! - At most one live claim per handler and event; the log's order decides races.
//! - A [`FencingToken`] grows with every claim. A request with an older one is refused, here and wherever it is checked.
//! - A claim ends when its work is done. A failed event may be claimed again later; one that was given up is a dead letter.

use crate::object::object;
use crate::{FencingToken, IsoDuration, NewEvent, Offset, Sequence, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request to claim an event, by its id or by its topic and sequence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NewClaim {
    /// The handler.
    pub handler: String,
    /// The event's id; otherwise `topic` and `sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<Uuid>,
    /// The event's topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// The event's sequence in its topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// The worker, for people; the producer's id when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How long the claim is valid without a heartbeat; the handler's lease when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<IsoDuration>,
    /// The order of events of one aggregate; the handler's order when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ClaimOrder>,
}

object!(NewClaim ClaimError Completion ClaimCompletion ClaimFailure);

impl NewClaim {
    /// A claim of the event with this id.
    #[must_use]
    pub fn of_event(handler: impl Into<String>, event_id: Uuid) -> Self {
        Self { event_id: Some(event_id), ..Self::by(handler) }
    }

    /// A claim of the event with this sequence.
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

    /// The same claim with this owner.
    #[must_use]
    pub fn owned_by(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }
}

/// The order of the events of one aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimOrder {
    /// If a later event of the same aggregate is already done, this event is skipped (`stale`).
    #[default]
    Latest,
    /// No event is skipped: an event waits until the one before it is done.
    Gapless,
}

/// The result of a request to claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOutcome {
    /// The result.
    pub outcome: ClaimAnswer,
    /// The claim, if the event was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// When to try again, if the event is held and that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// Whether an event may be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimAnswer {
    /// Yes: do the work, then complete the claim.
    Claimed,
    /// The work is done, or an operator has discarded the event.
    Done,
    /// A later event of the aggregate is done; this one is skipped.
    Stale,
    /// Not now: another worker holds it, or it waits for its next attempt, its predecessor or an operator.
    Held,
}

/// A claim and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Identifies handler, topic and sequence; the same for every claim of one event by one handler.
    pub id: String,
    /// The handler.
    pub handler: String,
    /// The event's topic.
    pub topic: TopicId,
    /// The event's sequence there. For a republished event it is that of the original: a claim covers all copies.
    pub sequence: Sequence,
    /// The event's id.
    pub event_id: Uuid,
    /// The fencing token: it grows with every claim.
    pub token: FencingToken,
    /// The number of the attempt; taking over an expired claim counts as one.
    pub attempt: u32,
    /// The worker.
    pub owner: String,
    /// Its status.
    pub status: ClaimStatus,
    /// The lease: how long it is valid without a heartbeat.
    pub lease: IsoDuration,
    /// The interval at which the worker should send heartbeats.
    pub heartbeat: IsoDuration,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When the lease expires, while it is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,
    /// When it may be claimed again, after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The id of its dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<Uuid>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ClaimError>,
    /// The committed offset of the group with the handler's name, if the claim was completed with an offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_offset: Option<Offset>,
    /// The first unfinished event at or below the requested offset that was claimed before: the offset was committed
    /// only up to the event before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_sequence: Option<Sequence>,
}

/// The status of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimStatus {
    /// A worker holds it, or its lease has expired and no worker has taken it over yet.
    Claimed,
    /// It failed, and waits for its next attempt.
    Failed,
    /// It was given up, and is a dead letter.
    Dead,
    /// It was given up and redriven, and may be claimed again.
    Redriven,
    /// Its worker released it; it may be claimed at once.
    Released,
    /// The work is done.
    Done,
}

/// Why work failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimError {
    /// The class of the failure, such as the type of the worker's error.
    pub class: String,
    /// The message. A very long one is cut off.
    pub message: String,
}

impl ClaimError {
    /// A failure of this class.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into() }
    }
}

/// A request to complete a claim, with the results of the work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct Completion {
    /// The claim's token.
    pub token: FencingToken,
    /// Events that the work has produced: they are stored with the completion, or neither is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<NewEvent>,
    /// The offset to commit for the group with the handler's name in the event's topic. It does not pass an event that
    /// was claimed and is not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}

impl Completion {
    /// Only completes the claim.
    #[must_use]
    pub const fn of(token: FencingToken) -> Self {
        Self { token, events: Vec::new(), offset: None }
    }
}

/// One completion of a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimCompletion {
    /// The claim.
    pub id: String,
    /// Its token.
    pub token: FencingToken,
    /// Events that the work has produced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<NewEvent>,
    /// The offset to commit for the group with the handler's name in the event's topic. It does not pass an event that
    /// was claimed and is not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}

/// A request to end a claim's attempt as failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct ClaimFailure {
    /// The claim's token.
    pub token: FencingToken,
    /// Why.
    pub error: ClaimError,
    /// Whether another attempt makes sense; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// Its fencing token.
    pub token: FencingToken,
    /// Its worker.
    pub owner: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When its failure was recorded.
    pub failed_at: Timestamp,
    /// Why.
    pub error: ClaimError,
}
