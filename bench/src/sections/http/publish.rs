//! Publishing over HTTP, one event per request.

use super::contender::{CONNECTIONS_MAX, Contender, Running, in_turns, note_load, ratio, start_all, warm_up};
use super::one_thread;
use crate::Outcome;
use crate::figures::{counted, fine, percent, whole};
use crate::http::drive::Done;
use crate::http::text;
use crate::raw::Samples;
use crate::report::{Report, Table};
use crate::sections::Run;
use std::time::Duration;

const CONNECTIONS: [u64; 4] = [1, 16, 64, CONNECTIONS_MAX];

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure_all(run, report))
}

async fn measure_all(run: &Run<'_>, report: &mut Report) -> Outcome {
    let mut samples = Samples::default();
    let mut table = Table::new(
        "Publishing over HTTP, one event per request",
        ["", "requests/s", "p50 ms", "p99 ms", "p99.9 ms", "server CPU us", "generator", "of bare axum"],
    );
    let mut running = start_all(run, &mut table).await?;
    for connections in CONNECTIONS {
        samples.take(run.place, run.raw_time())?;
        warm_up(run, &mut running, connections, 1).await?;
        for _ in 0..run.http_rounds() {
            in_turns(run, &mut running, connections, 1, run.http_time()).await?;
        }
        rows(&mut table, connections, &running);
        if connections == CONNECTIONS_MAX {
            mark(report, &running);
        }
    }
    samples.take(run.place, run.raw_time())?;
    let mut body = Vec::new();
    text::event(&mut body, 1_234_567, 0, 0);
    note_load(&mut table, &running, body.len());
    report.table(&table);
    report.table(&samples.table());
    Ok(())
}

fn rows(table: &mut Table, connections: u64, all: &[Running]) {
    for running in all {
        let of_bare = ratio(all, running.contender, Contender::Bare).unwrap_or(f64::NAN);
        table.row([
            format!("{}: {}", counted(connections, "connection"), running.name()),
            whole(running.figure(Done::requests_per_second)),
            fine(running.figure(|done| done.millis(0.5))),
            fine(running.figure(|done| done.millis(0.99))),
            fine(running.figure(|done| done.millis(0.999))),
            fine(running.figure(Done::server_micros)),
            percent(running.figure(Done::generator_share)),
            percent(of_bare),
        ]);
    }
}

fn mark(report: &mut Report, running: &[Running]) {
    let against = |peer| ratio(running, Contender::File, peer);
    for peer in [Contender::OneStream, Contender::OwnStreams] {
        if let Some(times) = against(peer) {
            let name = format!("256 connections, file: of {}", peer.name());
            report.target(name, ">= x 2", format!("x {}", fine(times)), times >= 2.0);
        }
    }
    if let Some(part) = ratio(running, Contender::Memory, Contender::Bare) {
        report.target("256 connections, memory: of a bare axum handler", ">= 70 %", percent(part), part >= 0.7);
    }
}

impl Run<'_> {
    /// How long a round over HTTP takes.
    pub(crate) fn http_time(&self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 2000 })
    }

    /// How long the disk is left alone after a round: longer than durable-streams waits before it flushes.
    pub(super) fn http_pause(&self) -> Duration {
        Duration::from_millis(if self.quick { 0 } else { 3500 })
    }

    /// How often contenders take turns.
    pub(super) fn http_rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }
}
