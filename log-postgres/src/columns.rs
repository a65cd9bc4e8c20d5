//! A batch as columns: arrays that one statement unnests into rows.
//!
//! The columns for SQL queries are read from the event's own JSON, which the broker wrote. A body that is not an event's JSON
//! is stored as well: its columns are empty, and its header and body are returned as they were stored.

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

/// Defines one table's columns, once: the arrays of a batch, and the statement's list of names and types. The order is that
/// of the statement's parameters.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident for $table:literal { $($column:ident: $array:ty => $sql:literal $(as $cast:literal)?,)* }) => {
        $(#[$doc])*
        #[derive(Default)]
        struct $name<'a> {
            $($column: $array,)*
        }

        impl $name<'_> {
            const TABLE: TableColumns = TableColumns {
                table: $table,
                columns: &[$((stringify!($column), $sql, concat!("" $(, "::", $cast)?))),*],
            };

            fn params(&self) -> impl Iterator<Item = SqlParam<'_>> {
                [$(&self.$column as SqlParam<'_>),*].into_iter()
            }
        }
    };
}

columns! {
    /// Events.
    EventColumns for "events" {
        event_id: Vec<i64> => "bigint[]",
        id: Vec<Option<Uuid>> => "uuid[]",
        topic_number: Vec<i64> => "bigint[]",
        topic: Vec<JsonText<'a>> => "text[]",
        topic_seq: Vec<i64> => "bigint[]",
        stored_at: Vec<PgTimestamp> => "timestamptz[]",
        occurred_at: Vec<PgTimestamp> => "timestamptz[]",
        aggregate_type: Vec<JsonText<'a>> => "text[]",
        aggregate_id: Vec<JsonText<'a>> => "text[]",
        aggregate_seq: Vec<i64> => "bigint[]",
        event_type: Vec<JsonText<'a>> => "text[]",
        event_version: Vec<i32> => "int[]",
        data_version: Vec<Option<JsonText<'a>>> => "text[]",
        actor_type: Vec<JsonText<'a>> => "text[]",
        actor_id: Vec<JsonText<'a>> => "text[]",
        org_id: Vec<Option<JsonText<'a>>> => "text[]",
        request_id: Vec<JsonText<'a>> => "text[]",
        idempotency_key: Vec<Option<JsonText<'a>>> => "text[]",
        correlation_id: Vec<Option<JsonText<'a>>> => "text[]",
        causation_id: Vec<Option<JsonText<'a>>> => "text[]",
        app_id: Vec<Option<JsonText<'a>>> => "text[]",
        env_id: Vec<Option<JsonText<'a>>> => "text[]",
        // `jsonb` has no array that text converts to; its elements are converted one by one.
        payload: Vec<Option<&'a str>> => "text[]" as "jsonb",
        aggregate_key: Vec<Option<Uuid>> => "uuid[]",
        facets: Vec<Option<Vec<u8>>> => "bytea[]",
        body: Vec<&'a [u8]> => "bytea[]",
    }
}

columns! {
    /// The broker's own entries.
    EntryColumns for "entries" {
        position: Vec<i64> => "bigint[]",
        sequence: Vec<i64> => "bigint[]",
        stored_at: Vec<PgTimestamp> => "timestamptz[]",
        fact: Vec<Option<JsonText<'a>>> => "text[]",
        id: Vec<Option<Uuid>> => "uuid[]",
        aggregate_key: Vec<Option<Uuid>> => "uuid[]",
        aggregate_seq: Vec<i64> => "bigint[]",
        facets: Vec<Option<Vec<u8>>> => "bytea[]",
        body: Vec<&'a [u8]> => "bytea[]",
    }
}

/// One table's columns: the name of each, the type of the array that holds it, and the cast of its elements, if any.
pub(crate) struct TableColumns {
    pub(crate) table: &'static str,
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str)],
}

pub(crate) const EVENTS: TableColumns = EventColumns::TABLE;
pub(crate) const ENTRIES: TableColumns = EntryColumns::TABLE;

/// The columns of a batch, each an array.
#[derive(Default)]
pub(crate) struct BatchColumns<'a> {
    events: EventColumns<'a>,
    entries: EntryColumns<'a>,
}

/// The tables that the records of a batch go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetTables {
    None,
    Events,
    Entries,
    Both,
}

impl<'a> BatchColumns<'a> {
    /// The columns of `batch`; without payloads if PostgreSQL refused one.
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

    /// Where the records go.
    pub(crate) const fn tables(&self) -> TargetTables {
        match (self.events.event_id.is_empty(), self.entries.position.is_empty()) {
            (true, true) => TargetTables::None,
            (false, true) => TargetTables::Events,
            (true, false) => TargetTables::Entries,
            (false, false) => TargetTables::Both,
        }
    }

    /// The columns of the tables in [`Self::tables`], in their order.
    pub(crate) fn params(&self) -> impl Iterator<Item = SqlParam<'_>> {
        let tables = self.tables();
        let events = matches!(tables, TargetTables::Events | TargetTables::Both).then(|| self.events.params());
        let entries = matches!(tables, TargetTables::Entries | TargetTables::Both).then(|| self.entries.params());
        events.into_iter().flatten().chain(entries.into_iter().flatten())
    }

    /// How many records there are.
    pub(crate) fn amount(&self) -> i32 {
        let amount = self.events.event_id.len() + self.entries.position.len();
        i32::try_from(amount).unwrap_or(i32::MAX)
    }

    /// When the first record was stored.
    pub(crate) fn first_stored_at(&self) -> Option<PgTimestamp> {
        [self.events.stored_at.first(), self.entries.stored_at.first()].into_iter().flatten().min().copied()
    }
}

impl<'a> EventColumns<'a> {
    fn push(&mut self, Record { header, body }: &'a Record, stored_at: PgTimestamp, payloads: bool) {
        // If the body is not an event's JSON, its columns stay empty.
        let event: EventFields<'a> = serde_json::from_slice(body).unwrap_or_default();
        let (key, sequence) = aggregate(header);
        self.event_id.push(number(header.position.get()));
        self.id.push(id_of(header.id));
        self.topic_number.push(header.topic.0.into());
        self.topic_seq.push(number(header.sequence.get()));
        self.stored_at.push(stored_at);
        self.occurred_at.push(event.occurred_at.map_or(stored_at, PgTimestamp::of));
        self.aggregate_seq.push(sequence);
        self.aggregate_key.push(key);
        self.facets.push(header.facets.as_ref().map(pack));
        self.event_version.push(major(event.data_version.as_ref()));
        self.idempotency_key.push(event.deduplication_id.or_else(|| fingerprint(header)));
        self.topic.push(event.topic);
        self.event_type.push(event.event_type);
        // An event without a subject has no aggregate, even if it names a subject type.
        let of_aggregate = |text: Option<JsonText<'a>>| text.filter(|_| key.is_some()).unwrap_or_default();
        self.aggregate_type.push(of_aggregate(event.subject_type));
        self.aggregate_id.push(of_aggregate(event.subject));
        self.data_version.push(event.data_version);
        let actor = event.actor.unwrap_or_else(|| ActorFields { actor_type: "system".into(), id: JsonText::default() });
        self.actor_type.push(actor.actor_type);
        self.actor_id.push(actor.id);
        self.org_id.push(event.tenant);
        self.request_id.push(event.request_id.unwrap_or_default());
        self.correlation_id.push(event.correlation_id);
        self.causation_id.push(event.causation_id);
        self.app_id.push(event.context.app_id);
        self.env_id.push(event.context.env_id);
        self.payload.push(event.data.map(RawValue::get).filter(|text| payloads && fits_jsonb(text)));
        self.body.push(body);
    }
}

impl<'a> EntryColumns<'a> {
    fn push(&mut self, Record { header, body }: &'a Record, stored_at: PgTimestamp) {
        let (key, sequence) = aggregate(header);
        self.position.push(number(header.position.get()));
        self.sequence.push(number(header.sequence.get()));
        self.stored_at.push(stored_at);
        self.fact.push(serde_json::from_slice::<EntryFields<'_>>(body).ok().map(|entry| entry.fact));
        self.id.push(id_of(header.id));
        self.aggregate_key.push(key);
        self.aggregate_seq.push(sequence);
        self.facets.push(header.facets.as_ref().map(pack));
        self.body.push(body);
    }
}

/// The aggregate's key and the event's number in it; `None` and 0 for an event without an aggregate.
fn aggregate(header: &RecordHeader) -> (Option<Uuid>, i64) {
    let mark = header.facets.and_then(|facets: EventFacets| facets.aggregate);
    mark.map_or((None, 0), |mark| (Some(Uuid::from_u128(mark.key)), number(mark.sequence.get())))
}

fn fingerprint(header: &RecordHeader) -> Option<JsonText<'static>> {
    let mark = header.facets?.idempotency?;
    Some(JsonText(Cow::Owned(Uuid::from_u128(mark.key).to_string())))
}

/// The major number of a version; 1 if there is none.
fn major(version: Option<&JsonText<'_>>) -> i32 {
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok();
    version.and_then(|JsonText(text)| digits(text)).unwrap_or(1)
}

/// The members of an event that have columns.
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

/// A string of the body, copied only if it contains an escape.
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
        // The broker refuses NUL in these members; a column could not store it.
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
