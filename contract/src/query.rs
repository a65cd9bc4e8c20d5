//! Questions about stored events, and their answers.

use crate::{
    AggregateSequence, Claim, Error, IdPattern, Kind, Offset, Position, Result, Sequence, StoredEvent, SubjectTypeId,
    Timestamp, TopicId, limits,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// Which events a reader wants. Values of one member widen, different members narrow; empty takes all.
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
    /// Labels: key and value; several values of one key widen.
    pub context: Vec<(String, String)>,
    /// `occurredAt` at or after this.
    pub occurred_from: Option<Timestamp>,
    /// `occurredAt` before this.
    pub occurred_to: Option<Timestamp>,
    /// A CEL expression over the event's members.
    pub cel: Option<String>,
}

/// Where a read of a topic starts. Its text is what the query parameter `offset` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOffset {
    /// Behind this offset: the last sequence seen. [`Kind::Trimmed`](crate::Kind) where retention has removed what follows.
    Behind(Offset),
    /// Before the first event that is still there; never [`Kind::Trimmed`](crate::Kind).
    Earliest,
    /// Behind the last event: only what is stored from now on.
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
        // Digits only: the standard library also takes a plus sign.
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
    /// The largest offset: what every client's integers can hold.
    const NUMBER_MAX: u64 = i64::MAX as u64;
}

/// Read a topic in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRead {
    /// The topic.
    pub topic: TopicId,
    /// Where the answer starts.
    pub offset: ReadOffset,
    /// Most events in the answer.
    pub limit: usize,
    /// Which events.
    pub filter: EventFilter,
}

impl TopicRead {
    /// Everything of a topic from its beginning.
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

/// Events of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The events, in topic order.
    pub items: Vec<StoredEvent>,
    /// Where members of a group divide the events, the claim to each of them; none otherwise.
    pub claims: Vec<Claim>,
    /// How far the read came, matching or not: continue here. Where members of a group divide the events, how far the
    /// group has come.
    pub next_offset: Offset,
    /// The topic's last sequence.
    pub tail: Offset,
}

/// Read the whole log in global order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRead {
    /// Last position seen.
    pub after: Position,
    /// Most events in the answer.
    pub limit: usize,
    /// Which events.
    pub filter: EventFilter,
}

/// Events of all topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The events, in global order.
    pub items: Vec<StoredEvent>,
    /// How far the read came: continue here.
    pub next_position: Position,
    /// The log's last position.
    pub tail: Position,
}

/// Read one aggregate in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateRead {
    /// The topic: aggregates count per topic.
    pub topic: TopicId,
    /// What kind of thing; `None`: events that name no subject type.
    pub subject_type: Option<SubjectTypeId>,
    /// Which one.
    pub subject: String,
    /// Last aggregateSequence seen.
    pub after: AggregateSequence,
    /// Most events in the answer.
    pub limit: usize,
}

/// Events of one aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateEvents {
    /// The events, in aggregate order.
    pub items: Vec<StoredEvent>,
    /// How far the read came: continue here.
    pub next_after: AggregateSequence,
    /// The aggregate's last number.
    pub aggregate_sequence: AggregateSequence,
}

/// Where an aggregate stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Its last number.
    pub aggregate_sequence: AggregateSequence,
    /// That event's number in the topic.
    pub sequence: Sequence,
    /// That event; absent once retention has removed it.
    pub last_event: Option<StoredEvent>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    pub next: Option<Cursor>,
    /// Where the page before ends; absent on the first one.
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

    /// The same page of other rows.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(f).collect(), next: self.next, prev: self.prev }
    }
}

/// A place between two rows of a list. What it looks like on the wire means nothing to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// The page behind this row.
    After(String),
    /// The page in front of this row.
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
    /// Where it lies.
    pub location: String,
    /// First sequence of the topic in it.
    pub start_sequence: Sequence,
    /// When that was stored.
    pub start_time: Timestamp,
    /// Last sequence of the topic in it.
    pub end_sequence: Sequence,
    /// When that was stored.
    pub end_time: Timestamp,
    /// How many of the topic's events it holds.
    pub amount: u64,
    /// When it was begun.
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
