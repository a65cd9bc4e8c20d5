//! Plain SQL: clients that each write rows, wait for the commit, and write again.

use super::cluster::{Database, connect};
use super::rows::Rows;
use crate::http::drive::Done;
use crate::{Outcome, usage};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::{Client, Statement};

/// Rows of a commit while a table is filled.
const FILL: u64 = 1000;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A prepared `INSERT` of one row.
    Insert,
    /// A prepared `INSERT` of what arrays unfold to.
    Unnest,
    /// A binary `COPY`.
    Copy,
}

/// A table that is written to.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) rows: Arc<Rows>,
    /// The next row's number.
    next: Arc<AtomicU64>,
}

/// Connected clients with their statement prepared.
pub(super) struct Clients {
    clients: Vec<Arc<Writing>>,
    table: Table,
    /// Rows of a commit.
    batch: u64,
}

struct Writing {
    client: Client,
    statement: Statement,
    way: Way,
}

impl Table {
    /// A table with the broker's rows in it, as the broker's own has them.
    pub(super) async fn filled(database: &Database, rows: &Arc<Rows>) -> Outcome<Self> {
        let table = Self { rows: Arc::clone(rows), next: Arc::new(AtomicU64::new(1)) };
        let writing = Writing::connect(database, &table, Way::Unnest).await?;
        while table.next.load(Ordering::Relaxed) <= rows.len() {
            let first = table.next.fetch_add(FILL, Ordering::Relaxed);
            writing.commit(rows, first, FILL).await?;
        }
        Ok(table)
    }
}

impl Clients {
    pub(super) async fn connect(database: &Database, table: &Table, way: Way, count: u64, batch: u64) -> Outcome<Self> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(Arc::new(Writing::connect(database, table, way).await?));
        }
        Ok(Self { clients, table: table.clone(), batch })
    }

    /// Has all of them write for a while.
    pub(super) async fn run(&self, time: Duration) -> Outcome<Done> {
        let (generator_cpu, begun) = (usage::cpu_time(), Instant::now());
        let writers: Vec<_> = self
            .clients
            .iter()
            .map(|client| {
                let (client, table, batch) = (Arc::clone(client), self.table.clone(), self.batch);
                tokio::spawn(async move { client.write(&table, batch, begun, time).await })
            })
            .collect();
        let mut all = Done::default();
        for writer in writers {
            all.waits.append(&mut writer.await??);
        }
        all.seconds = begun.elapsed().as_secs_f64();
        all.generator_cpu = usage::cpu_time().saturating_sub(generator_cpu).as_secs_f64();
        all.requests = all.waits.len() as u64;
        all.events = all.requests * self.batch;
        all.waits.sort_unstable();
        Ok(all)
    }
}

impl Writing {
    async fn connect(database: &Database, table: &Table, way: Way) -> Outcome<Self> {
        let client = connect(&database.url).await?;
        let text = match way {
            Way::Insert => table.rows.insert(),
            Way::Unnest => table.rows.unnest(),
            Way::Copy => table.rows.copy(),
        };
        let statement = client.prepare(&text).await?;
        Ok(Self { client, statement, way })
    }

    /// Commits until the time is over; says how long each took, in nanoseconds.
    async fn write(&self, table: &Table, batch: u64, begun: Instant, time: Duration) -> Outcome<Vec<u32>> {
        let mut waits = Vec::new();
        while begun.elapsed() < time {
            let first = table.next.fetch_add(batch, Ordering::Relaxed);
            let asked = Instant::now();
            self.commit(&table.rows, first, batch).await?;
            waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        Ok(waits)
    }

    /// One statement, which is one transaction.
    async fn commit(&self, rows: &Rows, first: u64, count: u64) -> Outcome {
        let written = match self.way {
            Way::Insert => self.client.execute_raw(&self.statement, rows.row(first)).await?,
            Way::Unnest => self.client.execute_raw(&self.statement, rows.arrays(first, count)).await?,
            Way::Copy => {
                let sink = self.client.copy_in(&self.statement).await?;
                let mut writer = pin!(BinaryCopyInWriter::new(sink, &rows.types()));
                for number in first..first + count {
                    writer.as_mut().write_raw(rows.row(number)).await?;
                }
                writer.finish().await?
            }
        };
        if written == count { Ok(()) } else { Err(format!("{written} rows were written instead of {count}").into()) }
    }
}
