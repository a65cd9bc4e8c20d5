//! Growth: what an event costs in the first tenth of a long history, and in the last.

use super::Run;
use crate::Outcome;
use crate::events::Aggregates;
use crate::figures::{fine, mebibytes, median, percent, whole};
use crate::history::{BATCH, CALLERS, Step};
use crate::load::{Done, Until};
use crate::report::{Report, Table};

pub(crate) const EVENTS: u64 = 10_000_000;
/// Flat enough: the last three tenths may cost this much of the first three.
const FLAT: f64 = 1.2;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let events = run.count(EVENTS);
    let history = run.history(events)?;
    let mut table = Table::new(
        format!("{CALLERS} callers, batches of {BATCH}, every event of a new aggregate"),
        [
            "events",
            "events/s",
            "CPU us/event",
            "disk MiB/s",
            "events/sync",
            "ms/sync",
            "disk busy",
            "synced raw MiB/s",
            "disk of it",
            "RSS MiB",
        ],
    );
    for (number, step) in history.steps.iter().enumerate() {
        let upto = events / history.steps.len() as u64 * (number as u64 + 1);
        table.row(row(format!("to {}", whole(upto as f64)), step));
    }
    let (done, memory) = history.publish(Until::Count(events / 10), Aggregates::Among(events))?;
    let raw_bytes_per_second = history.bare.synced_bytes_per_second();
    let again = Step { done, memory, raw_bytes_per_second };
    table.row(row("more, old aggregates".to_owned(), &again));
    table.note(
        "the last row is events of existing aggregates, in no particular order: their rows are looked up on disk",
    );
    table.note("synced raw: as many bytes per write as the engine in the step before, fdatasync after each");
    report.table(&table);
    report.table(&history.bare.table());
    let growth = growth(&history.steps, Done::cpu_micros);
    let measured = format!("x {growth:.2} (old aggregates: x {:.2})", again.done.cpu_micros() / first(&history.steps));
    report.target("CPU per event, last three tenths against first three", "x 1.2 at most", measured, growth <= FLAT);
    let slower = self::growth(&history.steps, |done| done.seconds / done.events as f64);
    report.target(
        "time per event, last three tenths against first three",
        "x 1.2 at most",
        format!("x {slower:.2}"),
        slower <= FLAT,
    );
    Ok(())
}

fn row(name: String, step: &Step) -> [String; 10] {
    let Step { done, memory, raw_bytes_per_second } = step;
    [
        name,
        whole(done.events_per_second()),
        fine(done.cpu_micros()),
        mebibytes(done.disk_bytes_per_second()),
        fine(done.events_per_sync()),
        fine(done.millis_per_sync()),
        percent(done.disk_busy()),
        mebibytes(*raw_bytes_per_second),
        percent(done.disk_bytes_per_second() / raw_bytes_per_second),
        mebibytes(memory.rss_bytes as f64),
    ]
}

/// The median of the last three steps, in those of the first three.
fn growth(steps: &[Step], figure: impl Fn(&Done) -> f64 + Copy) -> f64 {
    let figures = || steps.iter().map(|step| figure(&step.done));
    median(figures().rev().take(3)) / median(figures().take(3))
}

fn first(steps: &[Step]) -> f64 {
    median(steps.iter().take(3).map(|step| step.done.cpu_micros()))
}
