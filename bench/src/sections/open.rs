//! Opening: after a crash, after a clean stop, and from the log alone.

use super::{Run, growth};
use crate::Outcome;
use crate::figures::{fine, gibibytes, mebibytes, whole};
use crate::history::History;
use crate::raw::{self, Samples};
use crate::report::{Report, Table};
use crate::worker::Opened;

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let (place, crashes, raw_time) = (run.place, if run.quick { 1 } else { 3 }, run.raw_time());
    let (small, large) = (run.count(growth::EVENTS) / 10, run.count(growth::EVENTS));
    let mut samples = Samples::default();
    let mut table = Table::new(
        "Opening in a new process; seconds until it can publish",
        ["", "seconds", "CPU s", "RSS MiB", "peak MiB", "then closing, s", "reading its files, s", "log GiB"],
    );
    samples.take(place, raw_time)?;
    let mut history = History::build(place, "small", small)?;
    opening(&mut history, &mut table, crashes)?;
    history.remove()?;
    samples.take(place, raw_time)?;
    opening(run.history(large)?, &mut table, crashes)?;
    samples.take(place, raw_time)?;
    table.note("crash: killed (SIGKILL) while 64 callers published batches of 100; the page cache is kept");
    table.note("reading its files: every segment from beginning to end in pieces of 1 MiB, without the broker");
    report.table(&table);
    report.table(&samples.table());
    Ok(())
}

fn opening(history: &mut History, table: &mut Table, crashes: usize) -> Outcome {
    let events = whole(history.events as f64);
    for number in 1..=crashes {
        history.crash()?;
        let opened = history.open()?;
        add(history, table, format!("{events} events, crash {number}"), opened)?;
    }
    let opened = history.open()?;
    add(history, table, format!("{events} events, clean stop"), opened)?;
    history.forget_state()?;
    let opened = history.open()?;
    add(history, table, format!("{events} events, no state folder"), opened)
}

/// A row, with the time it takes to stop again and to read the files.
fn add(history: &mut History, table: &mut Table, name: String, opened: Opened) -> Outcome {
    let closing = history.stop()?;
    let (bytes, reading) = raw::read_segments(&history.folder().join("log"))?;
    let Opened { seconds, cpu_seconds, memory } = opened;
    table.row([
        name,
        fine(seconds),
        fine(cpu_seconds),
        mebibytes(memory.rss_bytes as f64),
        mebibytes(memory.peak_bytes as f64),
        fine(closing),
        fine(reading),
        gibibytes(bytes as f64),
    ]);
    Ok(())
}
