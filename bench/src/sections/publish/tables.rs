//! The tables of the section.

use super::case::{Bare, Case};
use crate::Outcome;
use crate::events;
use crate::figures::{fine, kibibytes, mebibytes, median, millis_at, percent, whole};
use crate::load::Done;
use crate::report::Table;

pub(super) fn speeds(title: &str, cases: &[Case]) -> Outcome<Table> {
    let mut table = Table::new(title, ["", "events/s", "text MiB/s", "p50 ms", "p99 ms", "CPU s per million"]);
    for case in cases {
        table.row([
            case.name(),
            whole(case.ours(Done::events_per_second)),
            mebibytes(case.ours(Done::text_bytes_per_second)),
            fine(case.ours(|done| millis_at(&done.waits, 0.5))),
            fine(case.ours(|done| millis_at(&done.waits, 0.99))),
            fine(case.ours(Done::cpu_micros)),
        ]);
    }
    let text = median(cases.iter().map(|case| case.ours(|done| done.text_bytes as f64 / done.events as f64)));
    table
        .note(format!("an event's JSON is about {text:.0} bytes as stored; 100 000 aggregates; every event has an id"));
    let making = fine(events::making_seconds()?);
    table.note(format!("processor time includes making the events: {making} s per million"));
    Ok(table)
}

pub(super) fn groups(cases: &[Case]) -> Table {
    let title = "Events per sync, in files";
    let mut table = Table::new(
        title,
        ["", "syncs/s", "events/sync", "KiB/sync", "ms/sync", "disk busy", "disk MiB/s", "disk bytes/event"],
    );
    for case in cases {
        table.row([
            case.name(),
            whole(case.ours(Done::syncs_per_second)),
            fine(case.ours(Done::events_per_sync)),
            kibibytes(case.ours(Done::bytes_per_sync)),
            fine(case.ours(Done::millis_per_sync)),
            percent(case.ours(Done::disk_busy)),
            mebibytes(case.ours(Done::disk_bytes_per_second)),
            whole(case.ours(|done| done.counts.bytes as f64 / done.events.max(1) as f64)),
        ]);
    }
    table.note("syncs are fdatasync calls on segment files, bytes are what the log wrote to them");
    table.note(
        "ms/sync: the engine's own write and fdatasync of a group; disk busy: the share of the time spent in them",
    );
    table
}

pub(super) fn sync_rates(cases: &[Case]) -> Table {
    let title = "Sync rate, compared with a bare loop of write + fdatasync with as many bytes";
    let mut table =
        Table::new(title, ["", "syncs/s", "growing file", "ours of it", "file written ahead", "ours of it"]);
    for case in cases {
        table.row([
            case.name(),
            whole(case.ours(Done::syncs_per_second)),
            whole(case.bare(Bare::growing_rate)),
            percent(case.ratio(Done::syncs_per_second, Bare::growing_rate)),
            whole(case.bare(Bare::ahead_rate)),
            percent(case.ratio(Done::syncs_per_second, Bare::ahead_rate)),
        ]);
    }
    table.note("a growing file must also store its new length; a file that was filled with zeros before need not");
    table.note("the engine writes zeros ahead of small appends, so it can be faster than the growing loop");
    table
}

pub(super) fn bandwidths(cases: &[Case]) -> Table {
    let title = "Bandwidth, compared with bare sequential writing";
    let mut table = Table::new(
        title,
        ["", "disk MiB/s", "synced raw", "disk of it", "text of it", "unsynced raw", "disk of it", "text of it"],
    );
    for case in cases {
        let (disk, text) = (Done::disk_bytes_per_second, Done::text_bytes_per_second);
        table.row([
            case.name(),
            mebibytes(case.ours(disk)),
            mebibytes(case.bare(Bare::growing_speed)),
            percent(case.ratio(disk, Bare::growing_speed)),
            percent(case.ratio(text, Bare::growing_speed)),
            mebibytes(case.bare(Bare::through)),
            percent(case.ratio(disk, Bare::through)),
            percent(case.ratio(text, Bare::through)),
        ]);
    }
    table.note("synced raw: as many bytes per write as the engine, fdatasync after each: the same durability");
    table.note("ratios are medians over the rounds, each against the bare disk just before and after it");
    table.note("unsynced raw: 256 MiB in pieces of 1 MiB, one fdatasync at the end");
    table.note("disk: all bytes written to segments; text: the events' JSON alone");
    table
}
