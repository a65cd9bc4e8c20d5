//! A batch as columns: arrays that one statement unfolds into rows.
//!
//! What SQL wants to see of an event is read from its own JSON, which the broker wrote. A body that is no event's JSON is
//! stored all the same: its columns are empty then, and its header and bytes come back as they went in.

use crate::payload::fits_jsonb;
use crate::row::{PgTimestamp, id_of, number, pack};
use contract::Timestamp;
use log::{EventFacets, LogError, Record, RecordHeader, TopicNumber};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A parameter of a statement.
pub(crate) type SqlParam<'a> = &'a (dyn ToSql + Sync);

/// The columns of a batch, each an array.
#[derive(Default)]
pub(crate) struct BatchColumns<'a> {
    events: EventColumns<'a>,
    entries: EntryColumns<'a>,
}

/// The columns of a batch whose records all go to one table.
pub(crate) struct SingleTableColumns<'a> {
    pub(crate) table: TargetTable,
    pub(crate) params: Vec<SqlParam<'a>>,
    pub(crate) first_stored_at: &'a PgTimestamp,
    pub(crate) amount: i32,
}

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetTable {
    Events,
    Entries,
}

#[derive(Default)]
struct EventColumns<'a> {
    event_ids: Vec<i64>,
    ids: Vec<Option<Uuid>>,
    topic_numbers: Vec<i64>,
    topics: Vec<JsonText<'a>>,
    topic_seqs: Vec<i64>,
    stored_ats: Vec<PgTimestamp>,
    occurred_ats: Vec<PgTimestamp>,
    aggregate_types: Vec<JsonText<'a>>,
    aggregate_ids: Vec<JsonText<'a>>,
    aggregate_seqs: Vec<i64>,
    event_types: Vec<JsonText<'a>>,
    event_versions: Vec<i32>,
    data_versions: Vec<Option<JsonText<'a>>>,
    actor_types: Vec<JsonText<'a>>,
    actor_ids: Vec<JsonText<'a>>,
    org_ids: Vec<Option<JsonText<'a>>>,
    request_ids: Vec<JsonText<'a>>,
    idempotency_keys: Vec<Option<JsonText<'a>>>,
    correlation_ids: Vec<Option<JsonText<'a>>>,
    causation_ids: Vec<Option<JsonText<'a>>>,
    app_ids: Vec<Option<JsonText<'a>>>,
    env_ids: Vec<Option<JsonText<'a>>>,
    payloads: Vec<Option<&'a str>>,
    aggregate_keys: Vec<Option<Uuid>>,
    facets: Vec<Option<Vec<u8>>>,
    bodies: Vec<&'a [u8]>,
}

#[derive(Default)]
struct EntryColumns<'a> {
    positions: Vec<i64>,
    sequences: Vec<i64>,
    stored_ats: Vec<PgTimestamp>,
    facts: Vec<Option<JsonText<'a>>>,
    ids: Vec<Option<Uuid>>,
    aggregate_keys: Vec<Option<Uuid>>,
    aggregate_seqs: Vec<i64>,
    facets: Vec<Option<Vec<u8>>>,
    bodies: Vec<&'a [u8]>,
}

impl<'a> BatchColumns<'a> {
    /// The columns of `batch`. Without payloads, where PostgreSQL refused one.
    pub(crate) fn of(batch: &'a [Record], payloads: bool) -> Result<Self, LogError> {
        let mut columns = Self::default();
        for record in batch {
            let stored_at = PgTimestamp::exactly(record.header.time);
            let stored_at = stored_at.ok_or(LogError::Misnumbered("a time is beyond PostgreSQL's calendar"))?;
            match record.header.topic {
                TopicNumber::LEDGER => columns.entries.push(record, stored_at),
                _ => columns.events.push(record, stored_at, payloads),
            }
        }
        Ok(columns)
    }

    /// All of them, in `append`'s order.
    pub(crate) fn params(&self) -> impl Iterator<Item = SqlParam<'_>> {
        self.events.params().into_iter().chain(self.entries.params())
    }

    /// Those of the one table that has all the records, if one has.
    pub(crate) fn of_one_table(&self) -> Option<SingleTableColumns<'_>> {
        let (table, params, stored_ats) = match (self.events.stored_ats.as_slice(), self.entries.stored_ats.as_slice())
        {
            (events, []) => (TargetTable::Events, self.events.params().to_vec(), events),
            ([], entries) => (TargetTable::Entries, self.entries.params().to_vec(), entries),
            _ => return None,
        };
        let amount = i32::try_from(stored_ats.len()).ok()?;
        Some(SingleTableColumns { table, params, first_stored_at: stored_ats.first()?, amount })
    }
}

impl<'a> EventColumns<'a> {
    fn params(&self) -> [SqlParam<'_>; 26] {
        [
            &self.event_ids,
            &self.ids,
            &self.topic_numbers,
            &self.topics,
            &self.topic_seqs,
            &self.stored_ats,
            &self.occurred_ats,
            &self.aggregate_types,
            &self.aggregate_ids,
            &self.aggregate_seqs,
            &self.event_types,
            &self.event_versions,
            &self.data_versions,
            &self.actor_types,
            &self.actor_ids,
            &self.org_ids,
            &self.request_ids,
            &self.idempotency_keys,
            &self.correlation_ids,
            &self.causation_ids,
            &self.app_ids,
            &self.env_ids,
            &self.payloads,
            &self.aggregate_keys,
            &self.facets,
            &self.bodies,
        ]
    }

    fn push(&mut self, Record { header, body }: &'a Record, stored_at: PgTimestamp, payloads: bool) {
        // All that can be read of it, or nothing.
        let event: EventFields<'a> = serde_json::from_slice(body).unwrap_or_default();
        let (key, sequence) = aggregate(header);
        self.event_ids.push(number(header.position.get()));
        self.ids.push(id_of(header.id));
        self.topic_numbers.push(header.topic.0.into());
        self.topic_seqs.push(number(header.sequence.get()));
        self.stored_ats.push(stored_at);
        self.occurred_ats.push(event.occurred_at.map_or(stored_at, PgTimestamp::of));
        self.aggregate_seqs.push(sequence);
        self.aggregate_keys.push(key);
        self.facets.push(header.facets.as_ref().map(pack));
        self.event_versions.push(major(event.data_version.as_ref()));
        self.idempotency_keys.push(event.deduplication_id.or_else(|| fingerprint(header)));
        self.topics.push(event.topic);
        self.event_types.push(event.event_type);
        // An event without a subject has no aggregate, whatever the type of the subject it does not have.
        let of_aggregate = |text: Option<JsonText<'a>>| text.filter(|_| key.is_some()).unwrap_or_default();
        self.aggregate_types.push(of_aggregate(event.subject_type));
        self.aggregate_ids.push(of_aggregate(event.subject));
        self.data_versions.push(event.data_version);
        let actor = event.actor.unwrap_or_else(|| ActorFields { actor_type: "system".into(), id: JsonText::default() });
        self.actor_types.push(actor.actor_type);
        self.actor_ids.push(actor.id);
        self.org_ids.push(event.tenant);
        self.request_ids.push(event.request_id.unwrap_or_default());
        self.correlation_ids.push(event.correlation_id);
        self.causation_ids.push(event.causation_id);
        self.app_ids.push(event.context.app_id);
        self.env_ids.push(event.context.env_id);
        self.payloads.push(event.data.map(RawValue::get).filter(|text| payloads && fits_jsonb(text)));
        self.bodies.push(body);
    }
}

impl<'a> EntryColumns<'a> {
    fn params(&self) -> [SqlParam<'_>; 9] {
        [
            &self.positions,
            &self.sequences,
            &self.stored_ats,
            &self.facts,
            &self.ids,
            &self.aggregate_keys,
            &self.aggregate_seqs,
            &self.facets,
            &self.bodies,
        ]
    }

    fn push(&mut self, Record { header, body }: &'a Record, stored_at: PgTimestamp) {
        let (key, sequence) = aggregate(header);
        self.positions.push(number(header.position.get()));
        self.sequences.push(number(header.sequence.get()));
        self.stored_ats.push(stored_at);
        self.facts.push(serde_json::from_slice::<EntryFields<'_>>(body).ok().map(|entry| entry.fact));
        self.ids.push(id_of(header.id));
        self.aggregate_keys.push(key);
        self.aggregate_seqs.push(sequence);
        self.facets.push(header.facets.as_ref().map(pack));
        self.bodies.push(body);
    }
}

/// The aggregate's key, and the number in it; 0 where there is none.
fn aggregate(header: &RecordHeader) -> (Option<Uuid>, i64) {
    let mark = header.facets.and_then(|facets: EventFacets| facets.aggregate);
    mark.map_or((None, 0), |mark| (Some(Uuid::from_u128(mark.key)), number(mark.sequence.get())))
}

fn fingerprint(header: &RecordHeader) -> Option<JsonText<'static>> {
    let mark = header.facets?.idempotency?;
    Some(JsonText(Cow::Owned(Uuid::from_u128(mark.key).to_string())))
}

/// The first number of a version; 1 where there is none.
fn major(version: Option<&JsonText<'_>>) -> i32 {
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok();
    version.and_then(|JsonText(text)| digits(text)).unwrap_or(1)
}

/// What SQL wants to see of an event.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventFields<'a> {
    #[serde(borrow, rename = "type")]
    event_type: JsonText<'a>,
    #[serde(borrow)]
    topic: JsonText<'a>,
    occurred_at: Option<Timestamp>,
    #[serde(borrow)]
    subject: Option<JsonText<'a>>,
    #[serde(borrow)]
    subject_type: Option<JsonText<'a>>,
    #[serde(borrow)]
    tenant: Option<JsonText<'a>>,
    #[serde(borrow)]
    data_version: Option<JsonText<'a>>,
    #[serde(borrow)]
    correlation_id: Option<JsonText<'a>>,
    #[serde(borrow)]
    causation_id: Option<JsonText<'a>>,
    #[serde(borrow)]
    deduplication_id: Option<JsonText<'a>>,
    #[serde(borrow)]
    request_id: Option<JsonText<'a>>,
    #[serde(borrow)]
    actor: Option<ActorFields<'a>>,
    #[serde(borrow, default)]
    context: ContextFields<'a>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ActorFields<'a> {
    #[serde(borrow, rename = "type")]
    actor_type: JsonText<'a>,
    #[serde(borrow)]
    id: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextFields<'a> {
    #[serde(borrow)]
    app_id: Option<JsonText<'a>>,
    #[serde(borrow)]
    env_id: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
struct EntryFields<'a> {
    #[serde(borrow)]
    fact: JsonText<'a>,
}

/// A text of the body, copied only where it holds an escape.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

impl From<&'static str> for JsonText<'_> {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl ToSql for JsonText<'_> {
    fn to_sql(
        &self,
        ty: &tokio_postgres::types::Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // The broker lets no NUL into these texts; a column would refuse one.
        match self.0.contains('\0') {
            true => self.0.replace('\0', "\u{FFFD}").to_sql(ty, out),
            false => self.0.to_sql(ty, out),
        }
    }

    fn accepts(ty: &tokio_postgres::types::Type) -> bool {
        <&str as ToSql>::accepts(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}
