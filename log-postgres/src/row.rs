//! Between a record's header and its columns: instants, fingerprints, and rows as they come back.
//!
//! ```text
//!  facets   type tag (8) │ subject type tag (8) │ tenant (16) │ key (16) │ digest (8)     big-endian
//!           └──────────── always there ─────────────────────┘ └ where there is a key ┘
//! ```
//! A record without facets has NULL; the aggregate has columns of its own, since it is searched for.

use bytes::{BufMut, Bytes, BytesMut};
use contract::{AggregateSequence, Position, Sequence, Timestamp};
use log::{AggregateMark, EventFacets, IdempotencyMark, LogError, Record, RecordHeader, TopicNumber};
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

/// Milliseconds from 1970 to 2000, where PostgreSQL's clock begins.
const EPOCH_MILLIS: i64 = 946_684_800_000;
/// The earliest and the last instant a `timestamptz` can hold, in microseconds since 2000.
const STAMPS: std::ops::RangeInclusive<i64> = -211_813_488_000_000_000..=9_223_371_331_199_999_999;

const FACETS_BYTES: usize = 32;
const FACETS_WITH_KEY_BYTES: usize = 56;

/// An instant as `timestamptz` has it: microseconds since 2000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PgTimestamp(i64);

impl PgTimestamp {
    /// The instant this many milliseconds after 1970 began, where a column can hold it.
    pub(crate) fn exactly(millis: i64) -> Option<Self> {
        let micros = millis.checked_sub(EPOCH_MILLIS)?.checked_mul(1000)?;
        STAMPS.contains(&micros).then_some(Self(micros))
    }

    /// The same, or the nearest a column can hold: for comparisons.
    pub(crate) fn nearest(millis: i64) -> Self {
        let edge = if millis < 0 { STAMPS.start() } else { STAMPS.end() };
        Self::exactly(millis).unwrap_or(Self(*edge))
    }

    /// What a column can hold of an instant as it was sent.
    pub(crate) fn of(time: Timestamp) -> Self {
        let micros = time.nanos().div_euclid(1000) - i128::from(EPOCH_MILLIS) * 1000;
        let within = micros.clamp(i128::from(*STAMPS.start()), i128::from(*STAMPS.end()));
        Self(i64::try_from(within).unwrap_or_default())
    }

    /// Milliseconds since 1970 began.
    pub(crate) const fn millis(self) -> i64 {
        self.0.div_euclid(1000) + EPOCH_MILLIS
    }
}

impl ToSql for PgTimestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i64(self.0);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for PgTimestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(TIMESTAMPTZ);
}

/// A number as `bigint` has it; what is larger is after everything there can be.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An id or a fingerprint; 0 is none.
pub(crate) fn id_of(wide: u128) -> Option<Uuid> {
    (wide != 0).then(|| Uuid::from_u128(wide))
}

/// What is known of an event beside its numbers, id and aggregate.
pub(crate) fn pack(facets: &EventFacets) -> Vec<u8> {
    let mut packed = Vec::with_capacity(FACETS_WITH_KEY_BYTES);
    packed.put_u64(facets.type_tag);
    packed.put_u64(facets.subject_type_tag);
    packed.put_u128(facets.tenant);
    if let Some(mark) = facets.idempotency {
        packed.put_u128(mark.key);
        packed.put_u64(mark.digest);
    }
    packed
}

fn unpack(packed: &[u8], aggregate: Option<AggregateMark>) -> Option<EventFacets> {
    let idempotency = match packed.len() {
        FACETS_BYTES => None,
        FACETS_WITH_KEY_BYTES => Some(IdempotencyMark {
            key: u128::from_be_bytes(packed.get(32..48)?.try_into().ok()?),
            digest: u64::from_be_bytes(packed.get(48..56)?.try_into().ok()?),
        }),
        _ => return None,
    };
    Some(EventFacets {
        type_tag: u64::from_be_bytes(packed.get(0..8)?.try_into().ok()?),
        subject_type_tag: u64::from_be_bytes(packed.get(8..16)?.try_into().ok()?),
        tenant: u128::from_be_bytes(packed.get(16..32)?.try_into().ok()?),
        aggregate,
        idempotency,
    })
}

/// A header from a row of: position, topic_number, sequence, stored_at, id, aggregate_key, aggregate_seq, facets.
pub(crate) fn header(row: &Row) -> Result<RecordHeader, LogError> {
    let broken = |column: &str| {
        let position: Option<i64> = row.try_get(0).ok();
        crate::failure::refused(format!("column {column} at position {position:?} is not what was written"))
    };
    let unsigned = |at: usize, column: &str| -> Result<u64, LogError> {
        row.try_get::<_, i64>(at).ok().and_then(|number| u64::try_from(number).ok()).ok_or_else(|| broken(column))
    };
    let key: Option<Uuid> = row.try_get(5).map_err(|_| broken("aggregate_key"))?;
    let sequence = AggregateSequence(unsigned(6, "aggregate_seq")?);
    let aggregate = key.map(|key| AggregateMark { key: key.as_u128(), sequence });
    let packed: Option<&[u8]> = row.try_get(7).map_err(|_| broken("facets"))?;
    let topic = u32::try_from(unsigned(1, "topic_number")?).map_err(|_| broken("topic_number"))?;
    Ok(RecordHeader {
        position: Position(unsigned(0, "position")?),
        topic: TopicNumber(topic),
        sequence: Sequence(unsigned(2, "sequence")?),
        time: row.try_get::<_, PgTimestamp>(3).map_err(|_| broken("stored_at"))?.millis(),
        id: row.try_get::<_, Option<Uuid>>(4).map_err(|_| broken("id"))?.map_or(0, |id| id.as_u128()),
        facets: match packed {
            Some(packed) => Some(unpack(packed, aggregate).ok_or_else(|| broken("facets"))?),
            None => None,
        },
    })
}

/// A record from the columns of [`header`] and its body after them.
pub(crate) fn record(row: &Row) -> Result<Record, LogError> {
    let header = header(row)?;
    let body: &[u8] = row.try_get(8).map_err(|error| crate::failure::of_statement(&error))?;
    Ok(Record { header, body: Bytes::copy_from_slice(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_survive_the_trip_to_a_column() {
        for millis in [-62_135_596_800_000, -1, 0, 1, 946_684_799_999, 1_764_763_200_001, 253_402_300_799_999] {
            assert_eq!(PgTimestamp::exactly(millis).unwrap().millis(), millis);
        }
        for millis in [i64::MIN, i64::MAX, -300_000_000_000_000] {
            assert_eq!(PgTimestamp::exactly(millis), None, "{millis}");
        }
        assert!(
            PgTimestamp::nearest(i64::MIN) < PgTimestamp::nearest(0)
                && PgTimestamp::nearest(0) < PgTimestamp::nearest(i64::MAX)
        );
    }

    #[test]
    fn an_instant_keeps_its_microseconds() {
        let time: Timestamp = "2025-12-03T12:01:59.829123456Z".parse().unwrap();
        assert_eq!(PgTimestamp::of(time).0 % 1_000_000, 829_123);
        let early: Timestamp = "0000-01-01T00:00:00Z".parse().unwrap();
        assert!(PgTimestamp::of(early).0 > *STAMPS.start());
    }
}
