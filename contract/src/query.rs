//! Reads of stored events, and their results.

use crate::{
    AggregateSequence, Claim, Error, IdPattern, Kind, Offset, Position, Result, Sequence, StoredEvent, SubjectTypeId,
    Timestamp, TopicId, limits,
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
    /// Behind this offset, the last sequence that was read. [`Kind::Trimmed`](crate::Kind) if retention has removed the
    /// next event.
    Behind(Offset),
    /// Before the first stored event; never [`Kind::Trimmed`](crate::Kind).
    Earliest,
    /// Behind the last event: only new events.
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

    /// The same read behind another offset.
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

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// The cursor of the next page; absent on the last page.
    pub next: Option<Cursor>,
    /// The cursor of the previous page; absent on the first page.
    pub prev: Option<Cursor>,
}

impl<T> Page<T> {
    /// The page of `rows`, which come in order of their keys, that `cursor` names; the first page without one.
    pub fn of(
        rows: impl DoubleEndedIterator<Item = T>,
        cursor: Option<&Cursor>,
        limit: usize,
        key: impl Fn(&T) -> String,
    ) -> Self {
        Self::of_rows_with_sizes(rows, cursor, limit, |_| 0, key)
    }

    /// The same for rows of any size: a page has at most [`limits::LIST_BYTES_MAX`] bytes, but always one row.
    pub fn of_rows_with_sizes(
        rows: impl DoubleEndedIterator<Item = T>,
        cursor: Option<&Cursor>,
        limit: usize,
        bytes: impl Fn(&T) -> usize,
        key: impl Fn(&T) -> String,
    ) -> Self {
        // Rows on the other side of the cursor belong to the page's other neighbour.
        let mut passed = false;
        let mut side = |is_passed: bool| {
            passed |= is_passed;
            !is_passed
        };
        let most = limit.saturating_add(1);
        let mut items: Vec<T> = match cursor {
            None => rows.take(most).collect(),
            Some(Cursor::After(last)) => rows.filter(|row| side(key(row) <= *last)).take(most).collect(),
            Some(Cursor::Before(first)) => rows.rev().filter(|row| side(key(row) >= *first)).take(most).collect(),
        };
        let sums = items.iter().scan(0, |sum: &mut usize, row| {
            *sum += bytes(row);
            Some(*sum)
        });
        let fitting = sums.take_while(|sum| *sum <= limits::LIST_BYTES_MAX).count().max(1).min(limit);
        let more = items.len() > fitting;
        items.truncate(fitting);
        let backwards = matches!(cursor, Some(Cursor::Before(_)));
        if backwards {
            items.reverse();
        }
        let (has_next, has_prev) = if backwards { (passed, more) } else { (more, passed) };
        let next = items.last().filter(|_| has_next).map(|row| Cursor::After(key(row)));
        let prev = items.first().filter(|_| has_prev).map(|row| Cursor::Before(key(row)));
        Self { items, next, prev }
    }

    /// The same page with converted rows.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next, prev: self.prev }
    }
}

/// A position between two rows of a list. Its text is opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// The page behind this row.
    After(String),
    /// The page before this row.
    Before(String),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (side, key) = match self {
            Self::After(key) => ('n', key),
            Self::Before(key) => ('p', key),
        };
        write!(f, "{side}")?;
        key.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::invalid("/cursor", "is not a cursor of this list");
        let (side, hex) = text.split_at_checked(1).ok_or_else(refused)?;
        let pairs = hex.as_bytes().chunks(2).map(|pair| {
            let digits =
                std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2 && !digits.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        let key = pairs.collect::<Option<Vec<u8>>>().and_then(|bytes| String::from_utf8(bytes).ok());
        match (side, key) {
            ("n", Some(key)) => Ok(Self::After(key)),
            ("p", Some(key)) => Ok(Self::Before(key)),
            _ => Err(refused()),
        }
    }
}

/// A run of a topic's records in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    /// Its location.
    pub location: String,
    /// The first sequence of the topic in it.
    pub start_sequence: Sequence,
    /// When that event was stored.
    pub start_time: Timestamp,
    /// The last sequence of the topic in it.
    pub end_sequence: Sequence,
    /// When that event was stored.
    pub end_time: Timestamp,
    /// How many events of the topic it contains.
    pub amount: u64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A topic's segments, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicSegments {
    /// The topic.
    pub topic: TopicId,
    /// The segments.
    pub segments: Vec<Segment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_large_rows_is_cut_by_bytes_and_continues_with_the_next_row() {
        let (mut cursor, mut pages) = (None, Vec::new());
        loop {
            let bytes = |row: &&str| if *row == "c" { 2 * limits::LIST_BYTES_MAX } else { limits::LIST_BYTES_MAX / 2 };
            let rows = ["a", "b", "c", "d", "e"].into_iter();
            let page = Page::of_rows_with_sizes(rows, cursor.as_ref(), 4, bytes, |row| (*row).to_owned());
            pages.push(page.items.concat());
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(pages, ["ab", "c", "de"]);
    }

    fn page(cursor: Option<&Cursor>, limit: usize) -> (String, Option<Cursor>, Option<Cursor>) {
        let rows = ["a", "b", "c", "d", "e"].into_iter();
        let page = Page::of(rows, cursor, limit, |row| (*row).to_owned());
        (page.items.concat(), page.prev, page.next)
    }

    #[test]
    fn where_a_read_starts_is_a_number_or_one_of_two_words() {
        for text in ["0", "7", "9223372036854775807", "earliest", "latest"] {
            assert_eq!(text.parse::<ReadOffset>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "+1", "1.5", "x", "Earliest", "latest ", "9223372036854775808"] {
            assert_eq!(text.parse::<ReadOffset>().unwrap_err().kind(), Kind::InvalidOffset, "{text}");
        }
    }

    #[test]
    fn a_list_can_be_walked_forwards_and_back() {
        let (first, none, next) = page(None, 2);
        assert_eq!((first.as_str(), none), ("ab", None));
        let (second, prev, next) = page(next.as_ref(), 2);
        assert_eq!(second, "cd");
        let (third, _, end) = page(next.as_ref(), 2);
        assert_eq!((third.as_str(), end), ("e", None));
        let (back, before, again) = page(prev.as_ref(), 2);
        assert_eq!((back.as_str(), before), ("ab", None));
        assert_eq!(page(again.as_ref(), 2).0, "cd");
    }

    #[test]
    fn a_cursor_survives_the_trip_and_nothing_else_passes_for_one() {
        for cursor in [Cursor::After("gts.a~é".to_owned()), Cursor::Before(String::new())] {
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for text in ["", "x61", "n6", "n+6", "nzz", "nff", "é"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
