//! Publishing: how fast, how long each caller waits, and how well the disk is used.

mod case;
mod tables;

use super::{Run, runtime};
use crate::Outcome;
use crate::figures::{fine, percent};
use crate::load::Done;
use crate::place::Place;
use crate::raw::{Pace, Samples};
use crate::report::Report;
use crate::store::Store;
use case::{Bare, Case};
use std::time::Duration;
use tables::{bandwidths, groups, speeds, sync_rates};

const CASES: [(u64, u64); 6] = [(1, 1), (16, 1), (256, 1), (1, 100), (16, 100), (256, 100)];

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let runtime = runtime()?;
    let mut samples = Samples::default();
    samples.take(run.place, run.raw_time())?;
    let memory = CASES.into_iter().map(|(callers, batch)| Case::new(callers, batch).in_memory(run, &runtime));
    report.table(&speeds("Publishing, in memory", &memory.collect::<Outcome<Vec<_>>>()?)?);
    let mut files = Vec::new();
    for (callers, batch) in CASES {
        files.push(Case::new(callers, batch).in_files(run, &runtime)?);
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

/// The disk the targets were made for: what the design measured of its machine, in the middle.
const DESIGNED_FOR: Pace = Pace { sync: Duration::from_micros(450), bytes_per_second: Some(170.0 * 1024.0 * 1024.0) };

/// Publishing in files on a disk that is no faster than the one the design was made for, beside a bare loop on the same.
pub(crate) fn measure_slow_disk(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let runtime = runtime()?;
    let mut files = Vec::new();
    for (callers, batch) in CASES {
        files.push(Case::new(callers, batch).at(DESIGNED_FOR).in_files(run, &runtime)?);
    }
    let mut table = speeds("Publishing, in files on a slow disk", &files)?;
    table.note(
        "every write and fdatasync is executed; then both, ours and the bare loop, wait until a sync has taken 0.45 ms",
    );
    table.note("and its bytes as long as at 170 MiB/s");
    report.table(&table);
    report.table(&groups(&files));
    report.table(&sync_rates(&files));
    mark_sync_rates(report, &files);
    Ok(())
}

/// One way to publish, without the others, for a profiler.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alone {
    /// Concurrent callers.
    #[arg(long, default_value_t = 16)]
    callers: u64,
    /// Events per request.
    #[arg(long, default_value_t = 100)]
    batch: u64,
    /// Duration in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Publish to memory instead of files.
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
    let mut case = Case::new(alone.callers, alone.batch);
    case.publish(&runtime, &store, Duration::from_secs(alone.seconds))?;
    runtime.block_on(store.close());
    let cases = [case];
    speeds("Publishing", &cases)?.print();
    groups(&cases).print();
    Ok(())
}

fn mark(report: &mut Report, files: &[Case]) {
    for case in files.iter().filter(|case| case.batch == 100) {
        let part = case.ratio(Done::disk_bytes_per_second, Bare::growing_speed);
        let of_through = percent(case.ratio(Done::disk_bytes_per_second, Bare::through));
        let measured = format!("{} ({of_through} of unsynced)", percent(part));
        let name = format!("{}: of raw synced sequential writing", case.name());
        report.target(name, ">= 60 %", measured, part >= 0.6);
    }
    mark_sync_rates(report, files);
}

fn mark_sync_rates(report: &mut Report, files: &[Case]) {
    for case in files.iter().filter(|case| case.batch == 1 && case.callers == 256) {
        let events = case.ours(Done::events_per_sync);
        report.target(format!("{}: events per fdatasync", case.name()), ">= 80", fine(events), events >= 80.0);
        let part = case.ratio(Done::syncs_per_second, Bare::growing_rate);
        let of_ahead = percent(case.ratio(Done::syncs_per_second, Bare::ahead_rate));
        let measured = format!("{} ({of_ahead} of written ahead)", percent(part));
        report.target(format!("{}: sync rate of the bare loop's", case.name()), ">= 70 %", measured, part >= 0.7);
    }
}
