//! Reading: pages of records, one statement each.
//!
//! - A page ends at its limit of records and, by a running sum, at its limit of bytes: a body that will not be returned is not
//!   fetched.
//! - Removal deletes the beginning of a topic, so a read that finds the next sequence has missed nothing. Only a read that does
//!   not find it queries how far the topic was removed, and does so afterwards, when the result can only have grown.
//! - If the server has synchronous standbys, nothing is returned that they are not known to have (`shown`). A row can be read
//!   before they have it: if its session was terminated, or the server restarted, while it waited for them.

use crate::failure::refused;
use crate::row::{self, PgTimestamp, number};
use crate::session::Session;
use contract::{Position, Segment, Sequence, Timestamp};
use log::{LogError, ReadLimit, ReadRange, Record, RecordHeader, RecordQuery, TopicNumber};
use uuid::Uuid;

/// Records per statement; a longer read uses several statements.
const PAGE_RECORDS: usize = 2048;
/// Bytes of bodies per statement, unless a single record is larger.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// The columns of a record's header, in the order in which [`row::header`] reads them.
macro_rules! header_columns {
    () => {
        "position, topic_number, sequence, stored_at, id, aggregate_key, aggregate_seq, facets"
    };
}

/// A page: `$1` (and `$2`) are what it follows, `$3` the limit of records, `$4` the limit of bytes, `$5` that of the first
/// record. Each row has the number of candidates, and whether there are synchronous standbys.
macro_rules! page {
    ($order:literal, $from:literal) => {
        concat!(
            "SELECT ",
            header_columns!(),
            ", body, candidates, (SELECT current_setting('synchronous_standby_names') <> '') ",
            "FROM (SELECT *, row_number() OVER w AS nth, sum(octet_length(body)) OVER w AS bytes, ",
            "count(*) OVER () AS candidates FROM (",
            $from,
            " ORDER BY ",
            $order,
            " LIMIT $3) AS candidate WINDOW w AS (ORDER BY ",
            $order,
            " ROWS UNBOUNDED PRECEDING)) AS measured WHERE bytes <= $4 OR (nth = 1 AND bytes <= $5) ORDER BY ",
            $order
        )
    };
}

const ALL: &str = page!("position", "SELECT * FROM records WHERE position > $1 AND $2::bigint IS NOT NULL");
const TOPIC: &str = page!(
    "sequence",
    "SELECT event_id AS position, topic_number, topic_seq AS sequence, stored_at, id, aggregate_key, aggregate_seq, \
     facets, body FROM events WHERE topic_number = $2 AND topic_seq > $1"
);
const ENTRIES: &str = page!(
    "sequence",
    "SELECT position, 0::bigint AS topic_number, sequence, stored_at, id, aggregate_key, aggregate_seq, facets, body \
     FROM entries WHERE sequence > $1 AND $2::bigint IS NOT NULL"
);
const AGGREGATE: &str =
    page!("aggregate_seq", "SELECT * FROM records WHERE aggregate_key = $2::uuid AND aggregate_seq > $1");

const REMOVED: &str = "SELECT through FROM removals WHERE topic_number = $1";

/// The header of a record up to `$shown`, or of any record if there are no synchronous standbys.
macro_rules! header {
    ($shown:literal, $which:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            header_columns!(),
            " FROM records WHERE ",
            $which,
            " AND (position <= ",
            $shown,
            "::bigint OR current_setting('synchronous_standby_names') = '') ",
            $rest
        )
    };
}

/// An id is stored once or twice, so all records with it are selected, and the first is returned. In one query, the planner
/// of a table without statistics would scan the positions instead.
const BY_ID: &str = concat!(
    "WITH found AS MATERIALIZED (",
    header!("$2", "id = $1", ""),
    ") SELECT ",
    header_columns!(),
    " FROM found ORDER BY position LIMIT 1"
);
const BY_AGGREGATE: &str = header!("$2", "aggregate_key = $1", "ORDER BY aggregate_seq DESC LIMIT 1");
const BY_TIME: &str = header!(
    "$2",
    "position = least(first_since('events', 'event_id', NULL, $1), first_since('entries', 'position', NULL, $1))",
    ""
);
const EVENT_BY_TIME: &str = header!(
    "$3",
    "position = (SELECT event_id FROM events WHERE topic_number = $1 \
     AND topic_seq = first_since('events', 'topic_seq', $1, $2))",
    ""
);
const ENTRY_BY_TIME: &str = header!("$2", "position = first_since('entries', 'position', NULL, $1)", "");

/// The ends of a topic: first sequence and time, last sequence and time.
const EVENT_ENDS: &str = "SELECT first.topic_seq, first.stored_at, last.topic_seq, last.stored_at FROM \
    (SELECT topic_seq, stored_at FROM events WHERE topic_number = $1 ORDER BY topic_seq LIMIT 1) AS first, \
    (SELECT topic_seq, stored_at FROM events WHERE topic_number = $1 \
     AND (event_id <= $2::bigint OR current_setting('synchronous_standby_names') = '') \
     ORDER BY topic_seq DESC LIMIT 1) AS last";
const ENTRY_ENDS: &str = "SELECT first.sequence, first.stored_at, last.sequence, last.stored_at FROM \
    (SELECT sequence, stored_at FROM entries ORDER BY sequence LIMIT 1) AS first, \
    (SELECT sequence, stored_at FROM entries \
     WHERE (position <= $1::bigint OR current_setting('synchronous_standby_names') = '') \
     ORDER BY sequence DESC LIMIT 1) AS last";

/// The result of a read.
pub(crate) struct RecordsRead {
    pub(crate) records: Vec<Record>,
    /// Whether there were synchronous standbys.
    pub(crate) has_standbys: bool,
}

impl RecordsRead {
    /// The records that may be returned: those up to `shown`, if there are synchronous standbys. Positions increase in every
    /// range.
    pub(crate) fn visible_through(mut self, shown: Position) -> Vec<Record> {
        if self.has_standbys {
            let amount = self.records.partition_point(|record| record.header.position <= shown);
            self.records.truncate(amount);
        }
        self.records
    }
}

/// Records of `range`, up to `limit`.
pub(crate) async fn read(session: &Session, range: ReadRange, limit: ReadLimit) -> Result<RecordsRead, LogError> {
    let mut given: Vec<Record> = Vec::new();
    let mut has_standbys = false;
    let mut bytes = 0_usize;
    loop {
        let bytes_left = limit.bytes.saturating_sub(bytes);
        let behind = given.last().map_or(start(range), |last| place(range, &last.header));
        let most = limit.records.max(1).saturating_sub(given.len()).min(PAGE_RECORDS);
        let first = if given.is_empty() { usize::MAX } else { bytes_left };
        let page = fetch(session, range, behind, PageLimit { most, bytes: bytes_left.min(PAGE_BYTES), first }).await?;
        if let ReadRange::Topic(topic, _) = range
            && !is_contiguous(&page.records, behind)
            && let Some(removed) = removed(session, topic).await?.filter(|removed| removed.get() > behind)
        {
            // What was read before the removal is complete; the next read gets the error.
            let trimmed = given.is_empty().then_some(LogError::Trimmed(removed.next()));
            return trimmed.map_or(Ok(RecordsRead { records: given, has_standbys }), Err);
        }
        // There are no more records, or no more fit.
        let is_last = if page.is_whole() { page.candidates < most } else { bytes_left <= PAGE_BYTES };
        bytes = page.records.iter().fold(bytes, |sum, record| sum.saturating_add(record.body.len()));
        has_standbys |= page.has_standbys;
        given.extend(page.records);
        if is_last || given.len() >= limit.records || bytes > limit.bytes {
            return Ok(RecordsRead { records: given, has_standbys });
        }
    }
}

/// Where a page stops.
struct PageLimit {
    most: usize,
    bytes: usize,
    /// Bytes of the first record.
    first: usize,
}

/// The result of one statement.
struct StatementPage {
    records: Vec<Record>,
    /// How many records it could choose from.
    candidates: usize,
    has_standbys: bool,
}

impl StatementPage {
    /// Whether no record was omitted because of its size.
    fn is_whole(&self) -> bool {
        self.records.len() == self.candidates
    }
}

/// The number that a range follows.
fn start(range: ReadRange) -> u64 {
    match range {
        ReadRange::All(position) => position.get(),
        ReadRange::Topic(_, sequence) => sequence.get(),
        ReadRange::Aggregate(_, sequence) => sequence.get(),
    }
}

/// The number of a record in the order of `range`.
fn place(range: ReadRange, header: &RecordHeader) -> u64 {
    match range {
        ReadRange::All(_) => header.position.get(),
        ReadRange::Topic(..) => header.sequence.get(),
        ReadRange::Aggregate(..) => {
            header.facets.and_then(|facets| facets.aggregate).map_or(0, |mark| mark.sequence.get())
        }
    }
}

/// Whether a page of a topic begins directly after `behind`.
fn is_contiguous(page: &[Record], behind: u64) -> bool {
    page.first().is_some_and(|first| first.header.sequence.get().checked_sub(1) == Some(behind))
}

async fn fetch(session: &Session, range: ReadRange, behind: u64, limit: PageLimit) -> Result<StatementPage, LogError> {
    let PageLimit { most, bytes, first } = limit;
    let [behind, most, bytes, first] = [behind, most as u64, bytes as u64, first as u64].map(number);
    let rows = match range {
        ReadRange::All(_) => session.rows(ALL, &[&behind, &0_i64, &most, &bytes, &first]).await?,
        ReadRange::Topic(TopicNumber::LEDGER, _) => {
            session.rows(ENTRIES, &[&behind, &0_i64, &most, &bytes, &first]).await?
        }
        ReadRange::Topic(topic, _) => {
            session.rows(TOPIC, &[&behind, &i64::from(topic.0), &most, &bytes, &first]).await?
        }
        ReadRange::Aggregate(key, _) => {
            session.rows(AGGREGATE, &[&behind, &Uuid::from_u128(key), &most, &bytes, &first]).await?
        }
    };
    let candidates = rows.first().map_or(0, |row| row.get::<_, i64>(9).unsigned_abs());
    let records = rows.iter().map(row::record).collect::<Result<_, _>>()?;
    let has_standbys = rows.last().is_some_and(|row| row.get(10));
    Ok(StatementPage { records, candidates: usize::try_from(candidates).unwrap_or(usize::MAX), has_standbys })
}

/// The last removed sequence of `topic`.
async fn removed(session: &Session, topic: TopicNumber) -> Result<Option<Sequence>, LogError> {
    let row = session.row(REMOVED, &[&i64::from(topic.0)]).await?;
    Ok(row.map(|row| Sequence(row.get::<_, i64>(0).unsigned_abs())))
}

/// The header of the record that `what` describes; only up to `shown`, if there are synchronous standbys.
pub(crate) async fn find(
    session: &Session,
    what: RecordQuery,
    shown: Position,
) -> Result<Option<RecordHeader>, LogError> {
    let shown = number(shown.get());
    let row = match what {
        RecordQuery::Id(0) => None,
        RecordQuery::Id(id) => session.row(BY_ID, &[&Uuid::from_u128(id), &shown]).await?,
        RecordQuery::Aggregate(key) => session.row(BY_AGGREGATE, &[&Uuid::from_u128(key), &shown]).await?,
        RecordQuery::Time(None, time) => session.row(BY_TIME, &[&PgTimestamp::nearest(time), &shown]).await?,
        RecordQuery::Time(Some(TopicNumber::LEDGER), time) => {
            session.row(ENTRY_BY_TIME, &[&PgTimestamp::nearest(time), &shown]).await?
        }
        RecordQuery::Time(Some(topic), time) => {
            session.row(EVENT_BY_TIME, &[&i64::from(topic.0), &PgTimestamp::nearest(time), &shown]).await?
        }
    };
    row.as_ref().map(row::header).transpose()
}

/// A topic is one segment, at `location`; only up to `shown`, if there are synchronous standbys.
pub(crate) async fn segment(
    session: &Session,
    topic: TopicNumber,
    location: &str,
    shown: Position,
) -> Result<Option<Segment>, LogError> {
    let shown = number(shown.get());
    let row = match topic {
        TopicNumber::LEDGER => session.row(ENTRY_ENDS, &[&shown]).await?,
        _ => session.row(EVENT_ENDS, &[&i64::from(topic.0), &shown]).await?,
    };
    let Some(row) = row else { return Ok(None) };
    let sequence = |at: usize| Sequence(row.get::<_, i64>(at).unsigned_abs());
    let time = |at: usize| Timestamp::from_millis(row.get::<_, PgTimestamp>(at).millis());
    let (start_sequence, end_sequence) = (sequence(0), sequence(2));
    let amount = end_sequence.get().checked_sub(start_sequence.get());
    let amount = amount.ok_or_else(|| refused("a topic ends before it begins"))? + 1;
    Ok(Some(Segment {
        location: location.to_owned(),
        start_sequence,
        start_time: time(1),
        end_sequence,
        end_time: time(3),
        amount,
        created_at: time(1),
    }))
}
