//! Projections: readers that keep a view and record its checkpoint, so that others can wait for it.
//!
//! - A checkpoint is an offset of the topic, or a position of the default log if the projection reads the log.
//! - A checkpoint only moves forwards. A reset moves it anywhere and starts a new generation: a runner of an older
//!   generation is refused, and rebuilds its view from `start`.

use crate::{Generation, Offset, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// A definition of a projection, of one topic or of the default log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProjection {
    /// The topic that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// Whether it reads all topics of the default log, instead of `topic`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// Only events for which this CEL expression is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

impl NewProjection {
    /// A projection of all events of a topic.
    #[must_use]
    pub const fn of_topic(topic: TopicId) -> Self {
        Self { topic: Some(topic), log: false, filter: None }
    }

    /// A projection of all events of the default log.
    #[must_use]
    pub const fn of_log() -> Self {
        Self { topic: None, log: true, filter: None }
    }

    /// The same projection of events for which this CEL expression is true.
    #[must_use]
    pub fn filtered(mut self, filter: impl Into<String>) -> Self {
        self.filter = Some(filter.into());
        self
    }
}

/// A registered projection and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Projection {
    /// Its name.
    pub name: String,
    /// Its definition.
    #[serde(flatten)]
    pub definition: NewProjection,
    /// The offset up to which its view has applied events; 0: none.
    pub checkpoint: Offset,
    /// Its generation: 1 at first, incremented by every reset. It continues if a projection of this name was deleted
    /// before.
    pub generation: Generation,
    /// The offset after which this generation starts.
    pub start: Offset,
    /// The lag of its view.
    pub lag: ProjectionLag,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed: its filter, its checkpoint, its generation.
    pub updated_at: Timestamp,
}

/// The lag of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionLag {
    /// The difference between the tail and its checkpoint; for the log it includes the broker's own entries.
    pub events: u64,
    /// The age of the oldest event that is not applied, in whole seconds; 0 if there is none.
    pub seconds: u64,
}

/// A request to move a projection's checkpoint forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCheckpoint {
    /// The offset up to which its view has applied events durably.
    pub offset: Offset,
    /// The current checkpoint as the caller knows it; any other is refused, unless it is at `offset` already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Offset>,
    /// The generation of the caller; any other is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
}

impl NewCheckpoint {
    /// To this offset, whatever the current checkpoint is.
    #[must_use]
    pub const fn at(offset: Offset) -> Self {
        Self { offset, expected: None, generation: None }
    }
}
