//! The broker on PostgreSQL over HTTP, beside plain SQL that writes the same rows to the same table.
//!
//! - One throw-away server with `fsync` on and PostgreSQL's own defaults; every contender has a database of its own in it,
//!   filled alike, and they are asked in turns.
//! - Plain SQL does less: no schema, no idempotency, no order, no compare; its numbers come from this process.

pub(super) mod cluster;
mod contender;
mod engine;
mod rows;
mod sql;

use super::Run;
use super::http::one_thread;
use crate::Outcome;
use crate::figures::{counted, fine, percent, whole};
use crate::http::drive::Load;
use crate::http::server::Server;
use crate::raw::Samples;
use crate::report::{Report, Table};
use cluster::{Cluster, Database, connect};
use contender::{Contender, Work, in_turns, table};
use engine::Engine;
use rows::Rows;
use sql::{Clients, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Events in every table before anything is measured; plain SQL writes them again and again.
const EVENTS: u64 = 50_000;
/// Clients that write single events.
const CLIENTS: [u64; 3] = [1, 16, 256];
const BATCH: u64 = 100;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let cluster = match Cluster::start(run.place) {
        Ok(cluster) => cluster,
        Err(reason) => {
            let mut table = Table::new("Publishing to PostgreSQL", [""]);
            table.note(format!("not run: {reason}"));
            report.table(&table);
            return Ok(());
        }
    };
    one_thread()?.block_on(async {
        let mut samples = Samples::default();
        singles(run, report, &cluster, &mut samples).await?;
        batches(run, report, &cluster, &mut samples).await?;
        samples.take(run.place, run.raw_time())?;
        report.table(&samples.table());
        Ok(())
    })
}

/// One event to a request, and one row to a commit.
async fn singles(run: &Run<'_>, report: &mut Report, cluster: &Cluster, samples: &mut Samples) -> Outcome {
    let (ours, theirs) = (cluster.database().await?, cluster.database().await?);
    let server = broker(run, &ours, "postgres").await?;
    let rows = stored(run, &ours).await?;
    let filled = sql::Table::filled(&theirs, &rows).await?;
    let mut table = table("Publishing to PostgreSQL, one event per request", "of INSERT");
    for count in CLIENTS {
        samples.take(run.place, run.raw_time())?;
        let clients = Clients::connect(&theirs, &filled, Way::Insert, count, 1).await?;
        let through = Work::Broker { server: &server, connections: count, batch: 1 };
        let mut contenders = [
            Contender::new(format!("{}: event-broker", counted(count, "connection")), &ours, through),
            Contender::new(format!("{}: plain INSERT", counted(count, "connection")), &theirs, Work::Sql(clients)),
        ];
        in_turns(run, cluster, &mut contenders).await?;
        let [broker, insert] = &contenders;
        let ratio = broker.ratio(&[insert]);
        broker.row(&mut table, percent(ratio));
        insert.row(&mut table, String::new());
        if count > 1 {
            let name = format!("{}, single: of plain INSERT", counted(count, "connection"));
            report.target(name, ">= x 1", format!("x {}", fine(ratio)), ratio >= 1.0);
        }
    }
    note(&mut table, cluster, &rows);
    table.note("plain INSERT: as many connections to PostgreSQL, a prepared statement, one row and one commit each");
    report.table(&table);
    Ok(())
}

/// Batches of 100 through the broker, and 100 rows to a commit on one connection.
async fn batches(run: &Run<'_>, report: &mut Report, cluster: &Cluster, samples: &mut Samples) -> Outcome {
    let mut databases = Vec::new();
    for _ in 0..5 {
        databases.push(cluster.database().await?);
    }
    let [one, sixteen, unnest, copy, engine] = databases.as_slice() else { return Err("a database is missing".into()) };
    let servers = (broker(run, one, "postgres-1").await?, broker(run, sixteen, "postgres-16").await?);
    let rows = stored(run, one).await?;
    let looped = async |database, way| -> Outcome<Work<'_>> {
        let table = sql::Table::filled(database, &rows).await?;
        Ok(Work::Sql(Clients::connect(database, &table, way, 1, BATCH).await?))
    };
    let alone = Engine::filled(engine, one, rows.len(), BATCH).await?;
    let through = |server, connections| Work::Broker { server, connections, batch: BATCH };
    let mut contenders = [
        Contender::new("event-broker, 1 connection", one, through(&servers.0, 1)),
        Contender::new("event-broker, 16 connections", sixteen, through(&servers.1, 16)),
        Contender::new("UNNEST loop", unnest, looped(unnest, Way::Unnest).await?),
        Contender::new("binary COPY loop", copy, looped(copy, Way::Copy).await?),
        Contender::new("the engine alone", engine, Work::Engine(Box::new(alone))),
    ];
    samples.take(run.place, run.raw_time())?;
    in_turns(run, cluster, &mut contenders).await?;
    let mut table = table("Publishing to PostgreSQL, batches of 100", "of the better loop");
    let [broker, brokers, unnest, copy, engine] = &contenders;
    for contender in [broker, brokers, unnest, copy, engine] {
        let ratio = contender.ratio(&[unnest, copy]);
        contender.row(&mut table, percent(ratio));
        if [&broker.name, &brokers.name].contains(&&contender.name) {
            let name = format!("{}, batches of 100: of the better loop", contender.name);
            report.target(name, ">= 70 %", percent(ratio), ratio >= 0.7);
        }
    }
    note(&mut table, cluster, &rows);
    table.note("the loops: one connection, 100 rows per commit, prepared; the better of the two in each round counts");
    table.note(
        "the engine alone: PostgresLog::append of 100 records in this process; its CPU is shown as the generator's",
    );
    report.table(&table);
    Ok(())
}

/// A broker on a database, with its first events in it.
async fn broker(run: &Run<'_>, database: &Database, name: &str) -> Outcome<Server> {
    let server = Server::start_on(run, &database.url, name).await?;
    let load = Load::publish(16, BATCH, Duration::from_millis(100));
    while server.next.load(Ordering::Relaxed) < run.count(EVENTS) {
        load.run(&server).await?;
    }
    Ok(server)
}

/// The first rows that a broker stored.
async fn stored(run: &Run<'_>, database: &Database) -> Outcome<Arc<Rows>> {
    let client = connect(&database.url).await?;
    Ok(Arc::new(Rows::stored(&client, run.count(EVENTS)).await?))
}

fn note(table: &mut Table, cluster: &Cluster, rows: &Rows) {
    table.note(format!(
        "PostgreSQL {} with its defaults (fsync, full_page_writes and synchronous_commit on), but max_connections 300; \
        its files are on the measured disk",
        cluster.version()
    ));
    table.note(format!(
        "all write to the broker's own table with its seven indexes, each in a separate database that initially \
        contains {} events; plain SQL writes the broker's rows (about {} bytes of column data each) with new numbers \
        and ids",
        whole(rows.len() as f64),
        whole(rows.bytes())
    ));
    table.note("events/commit: by the transaction ids of the rows; all rows of a round are counted in the table");
    table.note("PostgreSQL CPU: all its processes; generator: one thread, which is the SQL client of plain SQL");
}
