//! Contenders of one case: each with a database of its own, asked in turns.

use super::cluster::{Cluster, Database};
use super::engine::Engine;
use super::sql::Clients;
use crate::Outcome;
use crate::figures::{fine, median, whole};
use crate::http::drive::{Done, Load};
use crate::http::server::Server;
use crate::report::Table;
use crate::sections::Run;
use std::time::Duration;

/// One that is asked, with what came of each round.
pub(super) struct Contender<'a> {
    pub(super) name: String,
    database: &'a Database,
    work: Work<'a>,
    rounds: Vec<Round>,
}

/// How it writes.
pub(super) enum Work<'a> {
    /// Through a broker, on so many connections, so many events to a request.
    Broker {
        server: &'a Server,
        connections: u64,
        batch: u64,
    },
    Sql(Clients),
    Engine(Box<Engine>),
}

/// What came of a round.
struct Round {
    done: Done,
    postgres_cpu: f64,
    commits: i64,
}

impl Round {
    /// Of some processor time in seconds: microseconds of an event.
    fn micros(&self, cpu: f64) -> f64 {
        cpu * 1e6 / self.done.events.max(1) as f64
    }
}

impl<'a> Contender<'a> {
    pub(super) fn new(name: impl Into<String>, database: &'a Database, work: Work<'a>) -> Self {
        Self { name: name.into(), database, work, rounds: Vec::new() }
    }

    /// A row of figures: medians of the rounds.
    pub(super) fn row(&self, table: &mut Table, ratio: String) {
        let figure = |figure: fn(&Round) -> f64| median(self.rounds.iter().map(figure));
        table.row([
            self.name.clone(),
            whole(figure(|round| round.done.events_per_second())),
            fine(figure(|round| round.done.events as f64 / round.commits as f64)),
            fine(figure(|round| round.done.millis(0.5))),
            fine(figure(|round| round.done.millis(0.99))),
            fine(figure(|round| round.micros(round.done.server_cpu))),
            fine(figure(|round| round.micros(round.postgres_cpu))),
            fine(figure(|round| round.micros(round.done.generator_cpu))),
            ratio,
        ]);
    }

    /// Events per second in parts of the best of the others in the same round: the median.
    pub(super) fn ratio(&self, others: &[&Self]) -> f64 {
        let speed = |round: &Round| round.done.events_per_second();
        let best =
            |at: usize| others.iter().filter_map(|other| other.rounds.get(at)).map(speed).fold(f64::NAN, f64::max);
        median(self.rounds.iter().enumerate().map(|(at, round)| speed(round) / best(at)))
    }

    async fn round(&mut self, cluster: &Cluster, time: Duration) -> Outcome<Round> {
        let (last, cpu) = (self.database.last().await?, cluster.cpu_seconds()?);
        let done = match &mut self.work {
            Work::Broker { server, connections, batch } => {
                Load::publish(*connections, *batch, time).run(server).await?
            }
            Work::Sql(clients) => clients.run(time).await?,
            Work::Engine(engine) => engine.run(time).await?,
        };
        let postgres_cpu = cluster.cpu_seconds()? - cpu;
        let (events, commits) = self.database.since(last).await?;
        if u64::try_from(events)? != done.events {
            return Err(format!("{}: {} were answered, {events} are stored", self.name, done.events).into());
        }
        Ok(Round { done, postgres_cpu, commits })
    }
}

/// A table for such rows; `ratio` says what the last column compares with.
pub(super) fn table(title: &str, ratio: &'static str) -> Table {
    Table::new(
        title,
        [
            "",
            "events/s",
            "events/commit",
            "p50 ms",
            "p99 ms",
            "broker CPU us/event",
            "PostgreSQL CPU us/event",
            "generator CPU us/event",
            ratio,
        ],
    )
}

/// A short round that warms up, then rounds of all of them in turns.
pub(super) async fn in_turns(run: &Run<'_>, cluster: &Cluster, contenders: &mut [Contender<'_>]) -> Outcome {
    let time = Duration::from_millis(if run.quick { 500 } else { 2000 });
    cluster.checkpoint();
    for contender in &mut *contenders {
        contender.round(cluster, time / 2).await?;
    }
    for _ in 0..run.rounds() {
        for contender in &mut *contenders {
            let round = contender.round(cluster, time).await?;
            contender.rounds.push(round);
        }
    }
    Ok(())
}
