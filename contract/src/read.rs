//! Reads of stored events, and their results.

use crate::{
    AggregateSequence, Claim, Error, IdPattern, Kind, Offset, Position, Result, Sequence, StoredEvent, SubjectTypeId,
    Timestamp, TopicId,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A filter of events. Several values of one member select more events, different members select fewer; empty selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EventFilter {
    /// Event types.
    pub types: Vec<IdPattern>,
    /// Subject types.
    pub subject_types: Vec<IdPattern>,
    /// Subjects, exactly.
    pub subjects: Vec<String>,
    /// Tenants.
    pub tenants: Vec<Uuid>,
    /// Sources, exactly.
    pub sources: Vec<String>,
    /// Correlation ids, exactly.
    pub correlation_ids: Vec<String>,
    /// Labels: key and value; several values of one key select more events.
    pub context: Vec<(String, String)>,
    /// `occurredAt` at or after this.
    pub occurred_from: Option<Timestamp>,
    /// `occurredAt` before this.
    pub occurred_to: Option<Timestamp>,
    /// A CEL expression over the event's members.
    pub cel: Option<String>,
}

/// Where a read of a topic starts. Its text is the value of the query parameter `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOffset {
    /// After this offset, the last sequence that was read. [`Kind::Trimmed`](crate::Kind) if retention has removed the
    /// next event.
    Behind(Offset),
    /// Before the first stored event; never [`Kind::Trimmed`](crate::Kind).
    Earliest,
    /// After the last event: only new events.
    Latest,
}

impl From<Offset> for ReadOffset {
    fn from(offset: Offset) -> Self {
        Self::Behind(offset)
    }
}

impl From<Sequence> for ReadOffset {
    fn from(sequence: Sequence) -> Self {
        Self::Behind(sequence.into())
    }
}

impl fmt::Display for ReadOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind(offset) => offset.fmt(f),
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

impl FromStr for ReadOffset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // Only digits: the standard library also accepts a plus sign.
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = || text.parse().ok().filter(|number| is_number && *number <= Self::NUMBER_MAX);
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            _ => number().map(|number| Self::Behind(Offset(number))).ok_or_else(|| {
                let detail = "`offset` must be a whole number, 0 or more (the last sequence you have seen, 0 for none), \
                    or `earliest` or `latest`.";
                Error::new(Kind::InvalidOffset, detail)
            }),
        }
    }
}

impl ReadOffset {
    /// The largest offset that the integers of every client can hold.
    const NUMBER_MAX: u64 = i64::MAX as u64;
}

/// A read of a topic in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRead {
    /// The topic.
    pub topic: TopicId,
    /// Where the page starts.
    pub offset: ReadOffset,
    /// The maximum number of events in the page.
    pub limit: usize,
    /// The filter.
    pub filter: EventFilter,
}

impl TopicRead {
    /// A read of all events of a topic from its beginning.
    #[must_use]
    pub fn all(topic: TopicId) -> Self {
        Self {
            topic,
            offset: ReadOffset::Behind(Offset::ZERO),
            limit: crate::limits::READ_EVENTS_MAX,
            filter: EventFilter::default(),
        }
    }

    /// The same read after another offset.
    #[must_use]
    pub fn after(mut self, offset: impl Into<ReadOffset>) -> Self {
        self.offset = offset.into();
        self
    }
}

/// A page of events of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The events, in topic order.
    pub items: Vec<StoredEvent>,
    /// In a shared group the claim of each event; otherwise empty.
    pub claims: Vec<Claim>,
    /// The offset to continue after; it includes events that the filter excludes. In a shared group, the committed offset
    /// of the group.
    pub next_offset: Offset,
    /// The topic's last sequence.
    pub tail: Offset,
}

/// A read of the default log in the order of positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRead {
    /// The last position that was read.
    pub after: Position,
    /// The maximum number of events in the page.
    pub limit: usize,
    /// The filter.
    pub filter: EventFilter,
}

/// A page of events of all topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The events, in the order of their positions.
    pub items: Vec<StoredEvent>,
    /// Where to continue.
    pub next_position: Position,
    /// The log's last position.
    pub tail: Position,
}

/// A read of one aggregate in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateRead {
    /// The topic: aggregate sequences count per topic.
    pub topic: TopicId,
    /// The subject type; `None`: events without a subject type.
    pub subject_type: Option<SubjectTypeId>,
    /// The subject.
    pub subject: String,
    /// The last aggregate sequence that was read.
    pub after: AggregateSequence,
    /// The maximum number of events in the page.
    pub limit: usize,
}

/// A page of events of one aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateEvents {
    /// The events, in aggregate order.
    pub items: Vec<StoredEvent>,
    /// Where to continue.
    pub next_after: AggregateSequence,
    /// The aggregate's last sequence.
    pub aggregate_sequence: AggregateSequence,
}

/// The state of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Its last aggregate sequence.
    pub aggregate_sequence: AggregateSequence,
    /// The sequence of its last event in the topic.
    pub sequence: Sequence,
    /// Its last event; absent if retention has removed it.
    pub last_event: Option<StoredEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_read_starts_is_a_number_or_one_of_two_words() {
        for text in ["0", "7", "9223372036854775807", "earliest", "latest"] {
            assert_eq!(text.parse::<ReadOffset>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "+1", "1.5", "x", "Earliest", "latest ", "9223372036854775808"] {
            assert_eq!(text.parse::<ReadOffset>().unwrap_err().kind(), Kind::InvalidOffset, "{text}");
        }
    }
}
