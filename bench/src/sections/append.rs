//! Appending: the file engine alone, without a broker above it, beside the bare disk.
//!
//! Batches of 100 records of 450 bytes, one append after the other, as the broker's appender hands them over; then
//! batches as large as the broker gathers under load.

use super::{Run, runtime};
use crate::Outcome;
use crate::counting::CountingDisk;
use crate::figures::{fine, kibibytes, mebibytes, median, percent, whole};
use crate::place::remove;
use crate::raw::{Shape, sync_loop};
use crate::report::{Report, Table};
use contract::{AggregateSequence, Position, Sequence};
use log::file::{FileLog, FileLogOptions};
use log::{AggregateMark, EventFacets, IdempotencyMark, Log, Record, RecordHeader, TopicNumber};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BODY_BYTES: usize = 450;
const BATCHES: [usize; 3] = [100, 500, 2000];

/// One round of one batch size.
struct Round {
    appends_per_second: f64,
    disk_bytes_per_second: f64,
    raw_syncs_per_second: f64,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let columns =
        ["records a batch", "appends/s", "records/s", "KiB/append", "disk MiB/s", "raw syncs/s", "ours of it"];
    let mut table = Table::new("The file engine alone: one append after the other", columns);
    for batch in BATCHES {
        let rounds = (0..run.rounds()).map(|_| round(run, batch)).collect::<Outcome<Vec<_>>>()?;
        let of = |part: fn(&Round) -> f64| median(rounds.iter().map(part));
        let (appends, speed) = (of(|round| round.appends_per_second), of(|round| round.disk_bytes_per_second));
        let ratio = of(|round| round.appends_per_second / round.raw_syncs_per_second);
        table.row([
            batch.to_string(),
            whole(appends),
            whole(appends * batch as f64),
            kibibytes(speed / appends),
            mebibytes(speed),
            whole(of(|round| round.raw_syncs_per_second)),
            percent(ratio),
        ]);
        if batch == 100 {
            let measured = format!("{} ({} MiB/s)", percent(ratio), fine(speed / 1_048_576.0));
            report.target("file engine, batches of 100: of raw sequential writing", ">= 60 %", measured, ratio >= 0.6);
        }
    }
    table.note("raw: a bare loop of write + fdatasync on a growing file, with as many bytes as an append writes");
    table.note("each round has the bare loop before and after it; ratios are medians over the rounds");
    report.table(&table);
    Ok(())
}

fn round(run: &Run<'_>, batch: usize) -> Outcome<Round> {
    let runtime = runtime()?;
    let folder = run.place.fresh("append")?;
    let disk = CountingDisk::open(&folder)?;
    let counters = disk.counters();
    let log = FileLog::open(Arc::new(disk), FileLogOptions::default())?;
    let bytes = batch * (BODY_BYTES + 144);
    let bare = || sync_loop(run.place, bytes, Shape::Growing, run.raw_time());
    let before = bare()?;
    let (mut appends, begun) = (0_u32, Instant::now());
    let mut tail = 0;
    while begun.elapsed() < run.raw_time().max(Duration::from_millis(500)) {
        let records = (1..=batch as u64).map(|number| record(tail + number)).collect();
        runtime.block_on(log.append(Position(tail), records))?;
        tail += batch as u64;
        appends += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = bare()?;
    let written = counters.total().bytes as f64;
    drop(log);
    remove(&folder)?;
    Ok(Round {
        appends_per_second: f64::from(appends) / seconds,
        disk_bytes_per_second: written / seconds,
        raw_syncs_per_second: f64::midpoint(before.syncs_per_second, after.syncs_per_second),
    })
}

fn record(position: u64) -> Record {
    // Spread like fingerprints are.
    let spread = u128::from(position).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let facets = EventFacets {
        type_tag: 1,
        subject_type_tag: 2,
        tenant: 3,
        aggregate: Some(AggregateMark { key: spread, sequence: AggregateSequence(1) }),
        idempotency: Some(IdempotencyMark { key: !spread, digest: position }),
    };
    let header = RecordHeader {
        position: Position(position),
        topic: TopicNumber(1),
        sequence: Sequence(position),
        time: 0,
        id: spread,
        facets: Some(facets),
    };
    Record { header, body: bytes::Bytes::from_static(&[b'x'; BODY_BYTES]) }
}
