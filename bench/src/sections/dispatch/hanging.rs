//! A subscription beside one whose receiver never responds, both in the default pool; and a subscription alone, in turns.

use super::subscribed::{Mode, Subscribed};
use super::{Round, time};
use crate::Outcome;
use crate::figures::{fine, median, millis_at, percent, whole};
use crate::report::{Report, Table};
use crate::sections::Run;
use crate::sections::http::one_thread;

/// Of the deliveries per second of a subscription alone: the part of the pool that a hanging receiver leaves. It may have three
/// quarters of what slow ones may use, which is three quarters of the pool: 36 of 64 places.
const SHARE_WANTED: f64 = 0.44;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(beside(run, report))
}

async fn beside(run: &Run<'_>, report: &mut Report) -> Outcome {
    let alone = Subscribed::start(run, Mode::Immediate, "alone").await?;
    let mut beside = Subscribed::start(run, Mode::Immediate, "beside").await?;
    beside.add_hanging().await?;
    // The hanging subscription has then as many deliveries under way as it may have.
    alone.run(time(run) / 2).await?;
    beside.run(time(run) / 2).await?;
    let (mut alone_rounds, mut beside_rounds) = (Vec::new(), Vec::new());
    for _ in 0..run.rounds() {
        for (broker, rounds) in [(&alone, &mut alone_rounds), (&beside, &mut beside_rounds)] {
            rounds.push(broker.run(time(run)).await?);
            broker.settle().await?;
        }
    }
    let columns = ["", "deliveries/s", "of one alone", "p50 ms", "p99 ms", "p99.9 ms"];
    let mut table = Table::new("A subscription beside one whose receiver never responds, in one pool", columns);
    let share =
        median(beside_rounds.iter().zip(&alone_rounds).map(|(one, other)| one.per_second() / other.per_second()));
    for (name, rounds, ratio) in
        [("alone", &alone_rounds, String::new()), ("beside it", &beside_rounds, percent(share))]
    {
        let at = |share| fine(median(rounds.iter().map(|round: &Round| millis_at(&round.waits, share))));
        let rate = whole(median(rounds.iter().map(Round::per_second)));
        table.row([name.to_owned(), rate, ratio, at(0.5), at(0.99), at(0.999)]);
    }
    table.note(format!(
        "the hanging receiver accepted {} requests and responded to none; it takes every event that the other takes",
        whole(beside.hanging_requests() as f64)
    ));
    table
        .note("IMMEDIATE, default pool, time-out 300 s; both brokers exist at the same time and are measured in turns");
    report.table(&table);
    let name = "deliveries per second beside a hanging receiver, of those alone";
    report.target(name, ">= 44 %", percent(share), share >= SHARE_WANTED);
    Ok(())
}
