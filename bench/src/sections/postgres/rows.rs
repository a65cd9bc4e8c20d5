//! The rows that plain SQL writes: those the broker wrote, cell by cell as PostgreSQL sent them, with fresh numbers.
//!
//! - Row `n` has position and sequence `n` and an id of its own. Its aggregate is the broker's, so keys come in the same
//!   disorder; each pass over the rows counts every aggregate further up.
//! - Which columns there are is PostgreSQL's word: nothing here repeats the table's definition.

use crate::Outcome;
use crate::events::mixed;
use bytes::{BufMut, Bytes, BytesMut};
use std::error::Error;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

const TABLE: &str = "event_broker.events";

/// A value as it goes over the wire; `None` is NULL.
pub(super) type Cell = Option<Wire>;

/// Bytes of a value in PostgreSQL's binary format, whatever its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wire(Bytes);

/// The broker's rows, to be written again under other numbers.
pub(super) struct Rows {
    columns: Vec<Column>,
    stored: Vec<Vec<Cell>>,
    /// Added to an aggregate's number with each pass.
    step: i64,
}

struct Column {
    name: String,
    sql_type: Type,
    part: Part,
}

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The row's number.
    Number,
    Id,
    AggregateNumber,
    AsStored,
}

impl Rows {
    /// The first `count` rows of the events that the broker stored.
    pub(super) async fn stored(client: &Client, count: u64) -> Outcome<Self> {
        let statement = client.prepare(&format!("SELECT * FROM {TABLE} ORDER BY event_id LIMIT $1")).await?;
        let columns = statement.columns().iter().map(|column| Column {
            name: column.name().to_owned(),
            sql_type: column.type_().clone(),
            part: Part::of(column.name()),
        });
        let columns: Vec<_> = columns.collect();
        let rows = client.query(&statement, &[&i64::try_from(count)?]).await?;
        let cells = |row: &tokio_postgres::Row| (0..columns.len()).map(|at| row.try_get(at)).collect();
        let stored = rows.iter().map(cells).collect::<Result<Vec<Vec<Cell>>, _>>()?;
        if stored.len() as u64 != count {
            return Err(format!("the broker stored {} events instead of {count}", stored.len()).into());
        }
        let aggregates = client.query_one(&format!("SELECT max(aggregate_seq) FROM {TABLE}"), &[]).await?;
        Ok(Self { columns, stored, step: aggregates.try_get(0)? })
    }

    /// How many there are before numbers of aggregates are counted up.
    pub(super) fn len(&self) -> u64 {
        self.stored.len() as u64
    }

    /// Bytes of a row's cells, about.
    pub(super) fn bytes(&self) -> f64 {
        let bytes: usize = self.stored.iter().flatten().flatten().map(|cell| cell.0.len()).sum();
        bytes as f64 / self.len() as f64
    }

    /// The row of a number, from 1.
    pub(super) fn row(&self, number: u64) -> Vec<Cell> {
        let before = number.saturating_sub(1);
        let (pass, at) = (before / self.len(), before % self.len());
        let stored = usize::try_from(at).ok().and_then(|at| self.stored.get(at));
        let cells = stored.into_iter().flatten().zip(&self.columns);
        cells.map(|(cell, column)| column.part.cell(cell, number, pass, self.step)).collect()
    }

    /// The rows of consecutive numbers, column by column.
    pub(super) fn arrays(&self, first: u64, count: u64) -> Vec<Vec<Cell>> {
        let mut arrays: Vec<_> = self.columns.iter().map(|_| Vec::new()).collect();
        for number in first..first + count {
            arrays.iter_mut().zip(self.row(number)).for_each(|(array, cell)| array.push(cell));
        }
        arrays
    }

    pub(super) fn types(&self) -> Vec<Type> {
        self.columns.iter().map(|column| column.sql_type.clone()).collect()
    }

    /// Inserts one row.
    pub(super) fn insert(&self) -> String {
        let values = self.list(|at, _| format!("${at}"));
        format!("INSERT INTO {TABLE} ({}) VALUES ({values})", self.names())
    }

    /// Inserts as many rows as its arrays are long.
    pub(super) fn unnest(&self) -> String {
        let arrays = self.list(|at, column| format!("${at}::{}[]", column.sql_type.name()));
        format!("INSERT INTO {TABLE} ({}) SELECT * FROM unnest({arrays})", self.names())
    }

    pub(super) fn copy(&self) -> String {
        format!("COPY {TABLE} ({}) FROM STDIN (FORMAT binary)", self.names())
    }

    fn names(&self) -> String {
        self.list(|_, column| column.name.clone())
    }

    fn list(&self, item: impl Fn(usize, &Column) -> String) -> String {
        let items = self.columns.iter().zip(1..).map(|(column, at)| item(at, column));
        items.collect::<Vec<_>>().join(", ")
    }
}

impl Part {
    fn of(column: &str) -> Self {
        match column {
            "event_id" | "topic_seq" => Self::Number,
            "id" => Self::Id,
            "aggregate_seq" => Self::AggregateNumber,
            _ => Self::AsStored,
        }
    }

    fn cell(self, stored: &Cell, number: u64, pass: u64, step: i64) -> Cell {
        match self {
            Self::Number => Some(Wire::of(&number.to_be_bytes())),
            Self::Id => Some(Wire::of(Uuid::from_u64_pair(mixed(number), mixed(!number)).as_bytes())),
            Self::AggregateNumber => stored.as_ref().map(|stored| stored.counted_up(pass, step)),
            Self::AsStored => stored.clone(),
        }
    }
}

impl Wire {
    fn of(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// A `bigint` that is higher by so many steps.
    fn counted_up(&self, pass: u64, step: i64) -> Self {
        let stored = self.0.as_ref().try_into().map_or(0, i64::from_be_bytes);
        let passes = i64::try_from(pass).unwrap_or(i64::MAX);
        Self::of(&stored.saturating_add(passes.saturating_mul(step)).to_be_bytes())
    }
}

impl<'a> FromSql<'a> for Wire {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::of(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Wire {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> Cell {
        Some(Wire::of(&number.to_be_bytes()))
    }

    fn rows() -> Rows {
        let column = |name: &str, sql_type| Column { name: name.to_owned(), sql_type, part: Part::of(name) };
        let columns =
            [("event_id", Type::INT8), ("id", Type::UUID), ("aggregate_seq", Type::INT8), ("payload", Type::JSONB)];
        let columns = columns.map(|(name, sql_type)| column(name, sql_type)).into();
        let stored = vec![vec![number(7), None, number(1), None], vec![number(9), None, number(2), None]];
        Rows { columns, stored, step: 2 }
    }

    #[test]
    fn no_number_comes_twice() {
        let rows = rows();
        let written: Vec<_> = (1..=5).map(|number| rows.row(number)).collect();
        let column = |at: usize| written.iter().map(|row| row[at].clone()).collect::<Vec<_>>();
        assert_eq!(column(0), [1, 2, 3, 4, 5].map(number));
        assert_eq!(column(2), [1, 2, 3, 4, 5].map(number));
        let mut ids = column(1);
        ids.dedup();
        assert_eq!(ids.len(), 5);
        assert_eq!(column(3), vec![None; 5]);
    }

    #[test]
    fn arrays_hold_what_rows_hold() {
        let (rows, mut arrays) = (rows(), rows().arrays(2, 3));
        for at in (2..=4).rev() {
            let row: Vec<_> = arrays.iter_mut().map(|array| array.pop().unwrap()).collect();
            assert_eq!(row, rows.row(at));
        }
    }

    #[test]
    fn statements_name_every_column() {
        let rows = rows();
        let names = "event_id, id, aggregate_seq, payload";
        assert_eq!(rows.insert(), format!("INSERT INTO {TABLE} ({names}) VALUES ($1, $2, $3, $4)"));
        let arrays = "$1::int8[], $2::uuid[], $3::int8[], $4::jsonb[]";
        assert_eq!(rows.unnest(), format!("INSERT INTO {TABLE} ({names}) SELECT * FROM unnest({arrays})"));
        assert_eq!(rows.copy(), format!("COPY {TABLE} ({names}) FROM STDIN (FORMAT binary)"));
    }
}
