//! Projections: readers that keep a view, and say how far it has come so that others can wait for it.
//!
//! - A checkpoint is an offset of the topic, or a position of the default log where the whole log is read.
//! - It moves forward only. A reset moves it anywhere and begins a new generation: whoever works for an older one is
//!   refused, and rebuilds its view from `start`.

use crate::{Generation, Offset, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// A projection as one asks for it: of one topic, or of the whole log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProjection {
    /// What it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicId>,
    /// That it reads all topics of the default log; stands instead of `topic`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// A CEL expression over the event's members: what its view is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

impl NewProjection {
    /// Of all events of a topic.
    #[must_use]
    pub const fn of_topic(topic: TopicId) -> Self {
        Self { topic: Some(topic), log: false, filter: None }
    }

    /// Of all events of the default log.
    #[must_use]
    pub const fn of_log() -> Self {
        Self { topic: None, log: true, filter: None }
    }

    /// The same, of events that make this CEL expression true.
    #[must_use]
    pub fn filtered(mut self, filter: impl Into<String>) -> Self {
        self.filter = Some(filter.into());
        self
    }
}

/// A registered projection, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Projection {
    /// Its name.
    pub name: String,
    /// What was asked for.
    #[serde(flatten)]
    pub definition: NewProjection,
    /// What its view has applied; 0: nothing so far.
    pub checkpoint: Offset,
    /// 1 at first, one more with every reset; above the last one where a projection of this name was deleted before.
    pub generation: Generation,
    /// Where this generation begins: a view that is rebuilt reads behind it.
    pub start: Offset,
    /// How far its view is behind.
    pub lag: ProjectionLag,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed: its filter, its checkpoint, its generation.
    pub updated_at: Timestamp,
}

/// How far a view is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionLag {
    /// How many numbers lie between its checkpoint and the tail; of the log, some of them the broker's own.
    pub events: u64,
    /// The age of the oldest event it has not applied, in whole seconds; 0 where there is none.
    pub seconds: u64,
}

/// The order to move a projection's checkpoint forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCheckpoint {
    /// What its view has applied, durably.
    pub offset: Offset,
    /// Where the caller believes it to be; anything else is refused. Where it is at `offset` already, all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Offset>,
    /// The generation the caller works for; any other is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
}

impl NewCheckpoint {
    /// To here, from wherever it is.
    #[must_use]
    pub const fn at(offset: Offset) -> Self {
        Self { offset, expected: None, generation: None }
    }
}
