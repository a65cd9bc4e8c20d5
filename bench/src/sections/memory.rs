//! Memory: what ten million aggregates and as many live idempotency keys take of RAM.

use super::{Run, growth};
use crate::Outcome;
use crate::figures::{fine, mebibytes, whole};
use crate::report::{Report, Table};
use crate::usage::Memory;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let events = run.count(growth::EVENTS);
    let history = run.history(events)?;
    let title = format!("RAM with {0} aggregates and {0} live keys, in a separate process", whole(events as f64));
    let mut table = Table::new(title, ["", "RSS MiB", "peak MiB", "RSS bytes per aggregate and key"]);
    let mut add = |name: &str, memory: Memory| {
        let each = fine(memory.rss_bytes as f64 / events as f64);
        table.row([name.to_owned(), mebibytes(memory.rss_bytes as f64), mebibytes(memory.peak_bytes as f64), each]);
    };
    if let Some(step) = history.steps.first() {
        add(&format!("at {} events, publishing", whole(events as f64 / 10.0)), step.memory);
    }
    if let Some(step) = history.steps.last() {
        add(&format!("at {} events, publishing", whole(events as f64)), step.memory);
    }
    history.crash()?;
    add("opened after a crash", history.open()?.memory);
    add("opened after a clean stop", history.open()?.memory);
    table.note("peak: the maximum since the process started; publishing includes the callers and their requests");
    report.table(&table);
    report.table(&history.bare.table());
    Ok(())
}
