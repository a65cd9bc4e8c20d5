//! Publishing over HTTP in batches of 100, beside what the disk can write.

use super::contender::{Contender, Running, in_turns, note_load, ratio, start_all, warm_up};
use super::one_thread;
use crate::Outcome;
use crate::figures::{counted, fine, mebibytes, median, percent, whole};
use crate::http::drive::Done;
use crate::http::text;
use crate::raw::{self, Samples, Shape};
use crate::report::{Report, Table};
use crate::sections::Run;

const CONNECTIONS: [u64; 3] = [1, 16, 64];
const BATCH: u64 = 100;
/// A middling group of the engine's under this load.
const GROUP_BYTES: usize = 256 * 1024;

/// The broker's segments beside the bare disk, in one round.
struct Written {
    bytes_per_second: f64,
    synced_raw: f64,
    through: f64,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure_all(run, report))
}

async fn measure_all(run: &Run<'_>, report: &mut Report) -> Outcome {
    let mut samples = Samples::default();
    let mut table = Table::new(
        "Publishing over HTTP, batches of 100",
        [
            "",
            "events/s",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "server CPU us/event",
            "generator",
            "of bare axum",
        ],
    );
    let mut disk = Table::new(
        "The file engine below it, compared with the bare disk",
        ["", "disk MiB/s", "synced raw MiB/s", "ours of it", "unsynced raw MiB/s", "ours of it"],
    );
    let mut running = start_all(run, &mut table).await?;
    for connections in CONNECTIONS {
        samples.take(run.place, run.raw_time())?;
        let written = rounds(run, &mut running, connections).await?;
        rows(&mut table, connections, &running);
        show_disk(report, &mut disk, connections, &written);
    }
    samples.take(run.place, run.raw_time())?;
    disk.note(
        "disk: growth of the segment files; raw: 256 KiB pieces with fdatasync each, and 1 MiB with one at the end",
    );
    disk.note("the bare loop has the machine to itself; ours shares it with parsing, validation and the generator");
    let mut body = br#"{"events":[]}"#.to_vec();
    text::events(&mut body, 1_234_567, BATCH);
    note_load(&mut table, &running, body.len());
    report.table(&table);
    report.table(&disk);
    report.table(&samples.table());
    Ok(())
}

async fn rounds(run: &Run<'_>, running: &mut [Running], connections: u64) -> Outcome<Vec<Written>> {
    warm_up(run, running, connections, BATCH).await?;
    let mut written = Vec::new();
    for _ in 0..run.http_rounds() {
        let synced_raw = raw::sync_loop(run.place, GROUP_BYTES, Shape::Growing, run.raw_time())?.bytes_per_second;
        let through = raw::write_through(run.place, 256 * raw::PIECE_BYTES)?;
        let before = segments(running)?;
        in_turns(run, running, connections, BATCH, run.http_time()).await?;
        let (after, seconds) = (segments(running)?, file(running)?.rounds.last().map_or(f64::NAN, |done| done.seconds));
        let bytes_per_second = after.saturating_sub(before) as f64 / seconds;
        written.push(Written { bytes_per_second, synced_raw, through });
    }
    Ok(written)
}

fn file(running: &[Running]) -> Outcome<&Running> {
    let file = running.iter().find(|running| running.contender == Contender::File);
    file.ok_or_else(|| "ours is not among the contenders".into())
}

fn segments(running: &[Running]) -> Outcome<u64> {
    file(running)?.server.segment_bytes()
}

fn rows(table: &mut Table, connections: u64, all: &[Running]) {
    for running in all {
        let of_bare = ratio(all, running.contender, Contender::Bare).unwrap_or(f64::NAN);
        table.row([
            format!("{}: {}", counted(connections, "connection"), running.name()),
            whole(running.figure(Done::events_per_second)),
            whole(running.figure(Done::requests_per_second)),
            fine(running.figure(|done| done.millis(0.5))),
            fine(running.figure(|done| done.millis(0.99))),
            fine(running.figure(|done| done.millis(0.999))),
            fine(running.figure(|done| done.server_micros() / BATCH as f64)),
            percent(running.figure(Done::generator_share)),
            percent(of_bare),
        ]);
    }
}

fn show_disk(report: &mut Report, table: &mut Table, connections: u64, written: &[Written]) {
    let figure = |figure: fn(&Written) -> f64| median(written.iter().map(figure));
    let of_synced = figure(|written| written.bytes_per_second / written.synced_raw);
    let of_through = figure(|written| written.bytes_per_second / written.through);
    table.row([
        counted(connections, "connection"),
        mebibytes(figure(|written| written.bytes_per_second)),
        mebibytes(figure(|written| written.synced_raw)),
        percent(of_synced),
        mebibytes(figure(|written| written.through)),
        percent(of_through),
    ]);
    let name =
        format!("{}, batches of 100, file: of raw synced sequential writing", counted(connections, "connection"));
    let measured = format!("{} ({} of unsynced)", percent(of_synced), percent(of_through));
    report.target(name, ">= 60 %", measured, of_synced >= 0.6);
}
