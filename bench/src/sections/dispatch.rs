//! Dispatch: events pushed to a receiver on this machine, and what subscriptions cost those who publish.
//!
//! - *Deliveries*: the broker's whole way, published over HTTP, synced, posted, signed, and its completion synced. Beside
//!   it the same HTTP client in a bare loop, which posts to the same receiver and does nothing else.
//! - *Time*: from the publisher's request to the receiver's hands, at given rates.
//! - *Publishing*: a broker with ten thousand subscriptions and a hundred thousand jobs that wait, beside one without.

mod client;
pub(crate) mod hanging;
mod subscribed;
mod waiting;

use super::Run;
use super::http::one_thread;
use crate::Outcome;
use crate::figures::{fine, mebibytes, median, millis_at, percent, whole};
use crate::report::{Report, Table};
use client::Client;
use std::time::Duration;
use subscribed::{Mode, Subscribed};

/// What DESIGN asks for, per second.
const DELIVERIES_WANTED: f64 = 10_000.0;
/// And the memory it may take, in bytes.
const RSS_WANTED: f64 = 100e6;
/// Deliveries at a time, in every contender: the default pool's.
const CONCURRENCY: usize = 64;
/// Events per second: modest, and under load.
const RATES: [f64; 2] = [1000.0, 4000.0];

/// What came of one round.
#[derive(Debug, Clone, Default)]
struct Round {
    deliveries: u64,
    seconds: f64,
    sender_cpu: f64,
    receiver_cpu: f64,
    generator_cpu: f64,
    /// From publishing to receiving, in nanoseconds, ascending.
    waits: Vec<u32>,
}

impl Round {
    fn per_second(&self) -> f64 {
        self.deliveries as f64 / self.seconds
    }

    fn micros(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.deliveries.max(1) as f64
    }
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(async {
        deliveries(run, report).await?;
        waiting::measure(run, report).await
    })
}

fn time(run: &Run<'_>) -> Duration {
    Duration::from_secs(if run.quick { 2 } else { 5 })
}

async fn deliveries(run: &Run<'_>, report: &mut Report) -> Outcome {
    let client = Client::start()?;
    let mut brokers = Vec::new();
    for mode in [Mode::Immediate, Mode::Ordered] {
        let broker = Subscribed::start(run, mode, "most").await?;
        broker.run(time(run) / 2).await?;
        brokers.push((broker, Vec::new()));
    }
    let mut bare = Vec::new();
    for _ in 0..run.rounds() {
        for (broker, rounds) in &mut brokers {
            rounds.push(broker.run(time(run)).await?);
            broker.settle().await?;
        }
        bare.push(client.run(time(run)).await?);
    }
    let columns = [
        "",
        "deliveries/s",
        "of the client alone",
        "sender CPU us",
        "receiver CPU us",
        "generator CPU us",
        "p50 ms",
        "p99 ms",
        "RSS MiB, peak",
    ];
    let mut table = Table::new("Durable deliveries to a receiver on this machine, at the maximum rate", columns);
    for (broker, rounds) in &brokers {
        show(report, &mut table, broker, rounds, &bare)?;
    }
    table.row(row("the HTTP client alone", &bare, String::new(), String::new()));
    note(&mut table);
    report.table(&table);
    times(run, report, &brokers.into_iter().map(|(broker, _)| broker).collect::<Vec<_>>()).await?;
    memory(run, report).await
}

fn row(name: &str, rounds: &[Round], ratio: String, rss: String) -> [String; 9] {
    let figure = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure));
    let wait = |share| figure(&|round: &Round| millis_at(&round.waits, share));
    let shown = |millis: f64| if millis.is_nan() { String::new() } else { fine(millis) };
    [
        name.to_owned(),
        whole(figure(&Round::per_second)),
        ratio,
        fine(figure(&|round| round.micros(round.sender_cpu))),
        fine(figure(&|round| round.micros(round.receiver_cpu))),
        fine(figure(&|round| round.micros(round.generator_cpu))),
        shown(wait(0.5)),
        shown(wait(0.99)),
        rss,
    ]
}

fn show(report: &mut Report, table: &mut Table, broker: &Subscribed, rounds: &[Round], bare: &[Round]) -> Outcome {
    let ratio = median(rounds.iter().zip(bare).map(|(ours, bare)| ours.per_second() / bare.per_second()));
    let (rate, peak) = (median(rounds.iter().map(Round::per_second)), broker.memory()?.peak_bytes as f64);
    table.row(row(broker.mode.name(), rounds, percent(ratio), mebibytes(peak)));
    let name = broker.mode.name();
    let met = rate >= DELIVERIES_WANTED;
    report.target(format!("{name}: durable deliveries per second"), ">= 10 000", whole(rate), met);
    let measured = format!("{} MB", fine(peak / 1e6));
    report.target(format!("{name}: the broker's RSS, peak"), "< 100 MB", measured, peak < RSS_WANTED);
    Ok(())
}

/// RAM at the rate that is wanted, in brokers of their own.
async fn memory(run: &Run<'_>, report: &mut Report) -> Outcome {
    let columns = ["", "deliveries", "deliveries/s", "p99 ms", "broker cores", "RSS MiB, peak"];
    let mut table = Table::new("RAM at a steady rate, in a fresh broker", columns);
    for mode in [Mode::Immediate, Mode::Ordered] {
        let broker = Subscribed::start(run, mode, "steady").await?;
        let paced = broker.pace(1.02 * DELIVERIES_WANTED, 6 * time(run)).await?;
        let peak = broker.memory()?.peak_bytes as f64;
        table.row([
            mode.name().to_owned(),
            whole(paced.waits.len() as f64),
            whole(paced.rate),
            fine(millis_at(&paced.waits, 0.99)),
            fine(paced.cores),
            mebibytes(peak),
        ]);
        let name = format!("{}: the broker's RSS at {} deliveries/s, peak", mode.name(), whole(paced.rate));
        let met = peak < RSS_WANTED && paced.rate >= DELIVERIES_WANTED;
        report.target(name, "< 100 MB", format!("{} MB", fine(peak / 1e6)), met);
    }
    table.note("single events; the peak since the process started, including the pages of the program itself");
    report.table(&table);
    Ok(())
}

fn note(table: &mut Table) {
    table.note(format!(
        "events of about 600 bytes as stored are published in batches of {}, every one synced, at most {} ahead of \
        the receiver, so the times are mostly time in this queue; a round ends when the last completion is durable",
        subscribed::BATCH,
        whole(subscribed::AHEAD as f64)
    ));
    table.note(format!(
        "default pool: {CONCURRENCY} deliveries at a time over HTTP/1.1; signed with one secret; the receiver is one \
        thread that responds 204, on the same two cores"
    ));
    table.note(
        "RSS includes the table rows of the published events, up to maintenance.checkpoint_rows; a broker without \
        subscriptions has them as well",
    );
    table.note(
        "the HTTP client alone: the same library with as many concurrent calls, the same headers and body, nothing \
        read, signed or stored; here sender CPU is the client's",
    );
    table.note(
        "all run at the same time and are measured in turn; figures are medians of the rounds, CPU is per delivery",
    );
    table.note("no other webhook dispatcher was available on this machine for a comparison");
}

/// From publishing to receiving, at given rates.
async fn times(run: &Run<'_>, report: &mut Report, brokers: &[Subscribed]) -> Outcome {
    let columns = ["", "events/s", "p50 ms", "p99 ms", "p99.9 ms", "answer p50 ms", "answer p99 ms", "broker cores"];
    let mut table = Table::new("From publishing to receiving, at a given rate", columns);
    for broker in brokers {
        for rate in RATES {
            let paced = broker.pace(rate, time(run)).await?;
            let at = |share| fine(millis_at(&paced.waits, share));
            table.row([
                format!("{}, {} events/s", broker.mode.name(), whole(rate)),
                whole(paced.rate),
                at(0.5),
                at(0.99),
                at(0.999),
                fine(millis_at(&paced.answers, 0.5)),
                fine(millis_at(&paced.answers, 0.99)),
                fine(paced.cores),
            ]);
        }
    }
    table.note("from before the request that publishes one event is written until its delivery is read, same process");
    table.note("answer: the publisher's own response, after the sync; a delivery begins when the event is durable");
    report.table(&table);
    Ok(())
}
