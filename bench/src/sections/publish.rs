//! Publishing: how fast, how long each caller waits, and how well the disk is used.

use super::{Run, runtime};
use crate::Outcome;
use crate::events::{self, Aggregates};
use crate::figures::{fine, kibibytes, mebibytes, median, millis_at, percent, whole};
use crate::load::{Done, Load, Until};
use crate::place::{Place, remove};
use crate::raw::{self, Samples, Shape, SyncLoop};
use crate::report::{Report, Table};
use crate::store::Store;
use std::time::Duration;
use tokio::runtime::Runtime;

const CASES: [(u64, u64); 6] = [(1, 1), (16, 1), (256, 1), (1, 100), (16, 100), (256, 100)];
/// As many aggregates as a middling system has alive.
const AGGREGATES: Aggregates = Aggregates::Among(100_000);

/// One way to publish, measured several times in turns with the bare disk.
struct Case {
    callers: u64,
    batch: u64,
    rounds: Vec<Done>,
    bare: Vec<Bare>,
}

/// The bare disk with pieces as large as the engine's groups were in that round.
struct Bare {
    growing: SyncLoop,
    ahead: SyncLoop,
    through: f64,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let runtime = runtime()?;
    let mut samples = Samples::default();
    samples.take(run.place, run.raw_time())?;
    let memory = CASES.into_iter().map(|(callers, batch)| in_memory(run, &runtime, callers, batch));
    report.table(&speeds("Publishing, in memory", &memory.collect::<Outcome<Vec<_>>>()?)?);
    let mut files = Vec::new();
    for (callers, batch) in CASES {
        files.push(in_files(run, &runtime, callers, batch)?);
        samples.take(run.place, run.raw_time())?;
    }
    report.table(&speeds("Publishing, in files", &files)?);
    report.table(&groups(&files));
    report.table(&sync_rates(&files));
    report.table(&bandwidths(&files));
    report.table(&samples.table());
    mark(report, &files);
    Ok(())
}

/// One way alone, for as long as a profiler wants.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alone {
    /// How many publish at the same time.
    #[arg(long, default_value_t = 16)]
    callers: u64,
    /// Events to a request.
    #[arg(long, default_value_t = 100)]
    batch: u64,
    /// How long.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// In memory instead of in files.
    #[arg(long)]
    memory: bool,
}

/// Publishes in one way only, without a look at the bare disk.
pub(crate) fn alone(place: &Place, alone: Alone) -> Outcome {
    let runtime = runtime()?;
    let folder = place.fresh("alone")?;
    let store = match alone.memory {
        true => runtime.block_on(Store::memory())?,
        false => runtime.block_on(Store::files(&folder))?,
    };
    let mut case = Case { callers: alone.callers, batch: alone.batch, rounds: Vec::new(), bare: Vec::new() };
    case.publish(&runtime, &store, Duration::from_secs(alone.seconds))?;
    runtime.block_on(store.close());
    let cases = [case];
    speeds("Publishing", &cases)?.print();
    groups(&cases).print();
    Ok(())
}

fn in_memory(run: &Run<'_>, runtime: &Runtime, callers: u64, batch: u64) -> Outcome<Case> {
    let store = runtime.block_on(Store::memory())?;
    let mut case = Case { callers, batch, rounds: Vec::new(), bare: Vec::new() };
    for _ in 0..run.rounds() {
        case.publish(runtime, &store, Duration::from_millis(if run.quick { 200 } else { 700 }))?;
    }
    runtime.block_on(store.close());
    Ok(case)
}

fn in_files(run: &Run<'_>, runtime: &Runtime, callers: u64, batch: u64) -> Outcome<Case> {
    let folder = run.place.fresh("publish")?;
    let store = runtime.block_on(Store::files(&folder))?;
    let mut case = Case { callers, batch, rounds: Vec::new(), bare: Vec::new() };
    for _ in 0..run.rounds() {
        let group = case.publish(runtime, &store, Duration::from_millis(if run.quick { 500 } else { 2500 }))?;
        case.bare.push(Bare {
            growing: raw::sync_loop(run.place, group, Shape::Growing, run.raw_time())?,
            ahead: raw::sync_loop(run.place, group, Shape::WrittenAhead, run.raw_time())?,
            through: raw::write_through(run.place, 256 * raw::PIECE_BYTES)?,
        });
    }
    runtime.block_on(store.close());
    remove(&folder)?;
    Ok(case)
}

impl Case {
    /// One round; answers how many bytes the engine wrote per sync.
    fn publish(&mut self, runtime: &Runtime, store: &Store, time: Duration) -> Outcome<usize> {
        let first = self.rounds.last().map_or(0, |done| done.next);
        let Self { callers, batch, .. } = *self;
        let load = Load { callers, batch, aggregates: AGGREGATES, first, until: Until::Elapsed(time) };
        let done = runtime.block_on(load.run(store))?;
        let group = done.bytes_per_sync() as usize;
        self.rounds.push(done);
        Ok(group.max(1))
    }

    fn name(&self) -> String {
        let callers = if self.callers == 1 { "1 caller".to_owned() } else { format!("{} callers", self.callers) };
        match self.batch {
            1 => format!("{callers}, single"),
            batch => format!("{callers}, batches of {batch}"),
        }
    }

    fn median(&self, figure: impl Fn(&Done) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    fn bare(&self, figure: impl Fn(&Bare) -> f64) -> f64 {
        median(self.bare.iter().map(figure))
    }
}

fn speeds(title: &str, cases: &[Case]) -> Outcome<Table> {
    let mut table = Table::new(title, ["", "events/s", "text MiB/s", "p50 ms", "p99 ms", "CPU s per million"]);
    for case in cases {
        table.row([
            case.name(),
            whole(case.median(Done::events_per_second)),
            mebibytes(case.median(Done::text_bytes_per_second)),
            fine(case.median(|done| millis_at(&done.waits, 0.5))),
            fine(case.median(|done| millis_at(&done.waits, 0.99))),
            fine(case.median(Done::cpu_micros)),
        ]);
    }
    let text = median(cases.iter().map(|case| case.median(|done| done.text_bytes as f64 / done.events as f64)));
    table
        .note(format!("an event's JSON is about {text:.0} bytes as stored; 100 000 aggregates; every event has an id"));
    let making = fine(events::making_seconds()?);
    table.note(format!("processor time includes making the events: {making} s per million"));
    Ok(table)
}

fn groups(cases: &[Case]) -> Table {
    let title = "Events to a sync, in files";
    let mut table = Table::new(title, ["", "syncs/s", "events/sync", "KiB/sync", "disk MiB/s", "disk bytes/event"]);
    for case in cases {
        table.row([
            case.name(),
            whole(case.median(Done::syncs_per_second)),
            fine(case.median(Done::events_per_sync)),
            kibibytes(case.median(Done::bytes_per_sync)),
            mebibytes(case.median(Done::disk_bytes_per_second)),
            whole(case.median(|done| done.counts.bytes as f64 / done.events.max(1) as f64)),
        ]);
    }
    table.note("syncs are fdatasync calls on segment files, bytes what the log wrote to them");
    table
}

fn sync_rates(cases: &[Case]) -> Table {
    let title = "Sync rate, beside a bare loop of write + fdatasync with as many bytes";
    let mut table =
        Table::new(title, ["", "syncs/s", "growing file", "ours of it", "file written ahead", "ours of it"]);
    for case in cases {
        let ours = case.median(Done::syncs_per_second);
        let growing = case.bare(|bare| bare.growing.syncs_per_second);
        let ahead = case.bare(|bare| bare.ahead.syncs_per_second);
        table.row([
            case.name(),
            whole(ours),
            whole(growing),
            percent(ours / growing),
            whole(ahead),
            percent(ours / ahead),
        ]);
    }
    table.note("a growing file must also put down its new length; one written full of zeros before need not");
    table.note("the engine writes zeros ahead of small appends, so it can be faster than the growing loop");
    table
}

fn bandwidths(cases: &[Case]) -> Table {
    let title = "Bandwidth, beside bare sequential writing";
    let mut table = Table::new(
        title,
        ["", "disk MiB/s", "synced raw", "disk of it", "text of it", "unsynced raw", "disk of it", "text of it"],
    );
    for case in cases {
        let (disk, text) = (case.median(Done::disk_bytes_per_second), case.median(Done::text_bytes_per_second));
        let synced = case.bare(|bare| bare.growing.bytes_per_second);
        let through = case.bare(|bare| bare.through);
        table.row([
            case.name(),
            mebibytes(disk),
            mebibytes(synced),
            percent(disk / synced),
            percent(text / synced),
            mebibytes(through),
            percent(disk / through),
            percent(text / through),
        ]);
    }
    table.note("synced raw: as many bytes per write as the engine, fdatasync after each: the same durability");
    table.note("unsynced raw: 256 MiB in pieces of 1 MiB, one fdatasync at the end");
    table.note("disk: all bytes written to segments; text: the events' JSON alone");
    table
}

fn mark(report: &mut Report, files: &[Case]) {
    for case in files.iter().filter(|case| case.batch == 100) {
        let disk = case.median(Done::disk_bytes_per_second);
        let part = disk / case.bare(|bare| bare.growing.bytes_per_second);
        let of_through = percent(disk / case.bare(|bare| bare.through));
        let measured = format!("{} ({of_through} of unsynced)", percent(part));
        let name = format!("{}: of raw synced sequential writing", case.name());
        report.target(name, ">= 60 %", measured, part >= 0.6);
    }
    for case in files.iter().filter(|case| case.batch == 1 && case.callers == 256) {
        let events = case.median(Done::events_per_sync);
        report.target(format!("{}: events per fdatasync", case.name()), ">= 80", fine(events), events >= 80.0);
        let ours = case.median(Done::syncs_per_second);
        let part = ours / case.bare(|bare| bare.growing.syncs_per_second);
        let of_ahead = percent(ours / case.bare(|bare| bare.ahead.syncs_per_second));
        let measured = format!("{} ({of_ahead} of written ahead)", percent(part));
        report.target(format!("{}: sync rate of the bare loop's", case.name()), ">= 70 %", measured, part >= 0.7);
    }
}
