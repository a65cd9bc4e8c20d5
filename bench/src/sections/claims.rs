//! Claiming events and finishing them over HTTP, beside publishing of the same shape: what "once" costs.
//!
//! - Both go to one broker, in turns: events are published in one round, and some of them worked on in the next.
//! - A pair is a claim and its `done`, each in a request of its own; in a batch they are 100 claims, then 100 `done`.
//! - The handler has the broker's default order (`latest`), and every event is about one of 100 000 aggregates.

mod pairs;

use super::Run;
use super::http::one_thread;
use super::postgres::cluster::Cluster;
use crate::Outcome;
use crate::figures::{counted, fine, median, percent, whole};
use crate::http::drive::{Done, Load};
use crate::http::server::{Kind, Server};
use crate::http::text::Topics;
use crate::raw::Samples;
use crate::report::{Report, Table};
use pairs::{Pairs, Stock};
use std::time::Duration;

const SHAPES: [Shape; 4] = [
    Shape { connections: 1, batch: 1 },
    Shape { connections: 64, batch: 1 },
    Shape { connections: 1, batch: 100 },
    Shape { connections: 64, batch: 100 },
];

/// On how many connections, and how many to a request.
#[derive(Debug, Clone, Copy)]
struct Shape {
    connections: u64,
    batch: u64,
}

/// One round of each.
struct Round {
    published: Done,
    paired: Done,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let cluster = Cluster::start(run.place);
    one_thread()?.block_on(async {
        let mut samples = Samples::default();
        let mut table = Table::new(
            "Claim and done over HTTP, compared with publishing",
            [
                "",
                "pairs/s",
                "p50 ms",
                "p99 ms",
                "server CPU us/pair",
                "publishing events/s",
                "server CPU us/event",
                "pairs of events",
            ],
        );
        samples.take(run.place, run.raw_time())?;
        let server = Server::start(run, Kind::File, "claims-file", Topics::ONE).await?;
        engine(run, report, &mut table, ("file", &server)).await?;
        drop(server);
        match &cluster {
            Ok(cluster) => {
                let database = cluster.database().await?;
                let server = Server::start_on(run, &database.url, "claims-postgres").await?;
                engine(run, report, &mut table, ("PostgreSQL", &server)).await?;
            }
            Err(reason) => table.note(format!("PostgreSQL: not run: {reason}")),
        }
        samples.take(run.place, run.raw_time())?;
        table.note(
            "a pair is two requests, one after the other, and two entries in the log; p50 and p99 are for both \
            together",
        );
        table.note(
            "pairs of events: pairs per second as a share of the events published per second with the same \
            connections and batches; medians of alternating rounds",
        );
        report.table(&table);
        report.table(&samples.table());
        Ok(())
    })
}

async fn engine(run: &Run<'_>, report: &mut Report, table: &mut Table, (name, server): (&str, &Server)) -> Outcome {
    let stock = Stock::default();
    for shape in SHAPES {
        let rounds = rounds(run, shape, server, &stock).await?;
        let figure = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
        let ratio = figure(|round| round.paired.events_per_second() / round.published.events_per_second());
        let per = |cpu: f64, done: &Done| cpu * 1e6 / done.events.max(1) as f64;
        let Shape { connections, batch } = shape;
        let kind = if batch == 1 { "single".to_owned() } else { format!("batches of {batch}") };
        let label = format!("{name}: {}, {kind}", counted(connections, "connection"));
        table.row([
            label.clone(),
            whole(figure(|round| round.paired.events_per_second())),
            fine(figure(|round| round.paired.millis(0.5))),
            fine(figure(|round| round.paired.millis(0.99))),
            fine(median(rounds.iter().map(|round| per(round.paired.server_cpu, &round.paired)))),
            whole(figure(|round| round.published.events_per_second())),
            fine(median(rounds.iter().map(|round| per(round.published.server_cpu, &round.published)))),
            percent(ratio),
        ]);
        report.target(format!("{label}: claim and done, of publishing"), ">= 30 %", percent(ratio), ratio >= 0.3);
    }
    Ok(())
}

async fn rounds(run: &Run<'_>, shape: Shape, server: &Server, stock: &Stock) -> Outcome<Vec<Round>> {
    let time = Duration::from_millis(if run.quick { 500 } else { 2000 });
    let Shape { connections, batch } = shape;
    // In small rounds few are published: enough for all that is worked on.
    stock.fill(Load::publish(16, 100, time / 2).run(server).await?.events);
    let pairs = Pairs { connections, batch, time };
    Pairs { time: time / 4, ..pairs }.run(server, stock).await?;
    let mut rounds = Vec::new();
    for _ in 0..run.rounds() {
        let published = Load::publish(connections, batch, time).run(server).await?;
        stock.fill(published.events);
        let paired = pairs.run(server, stock).await?;
        rounds.push(Round { published, paired });
    }
    Ok(rounds)
}
