//! Reading over HTTP: a topic from front to back in pages of 100, cache warm.

use super::one_thread;
use crate::Outcome;
use crate::figures::{counted, fine, gibibytes, median, percent, whole};
use crate::http::drive::{Done, Load, Write};
use crate::http::server::{Kind, Server};
use crate::http::text::{self, Topics};
use crate::report::{Report, Table};
use crate::sections::Run;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const EVENTS: u64 = 500_000;
const PAGE: u64 = 100;
const CONNECTIONS: [u64; 3] = [1, 16, 64];
const KINDS: [(Kind, &str); 3] = [
    (Kind::File, "event-broker, file"),
    (Kind::Memory, "event-broker, memory"),
    (Kind::Bare, "bare axum, one page from memory"),
];

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure_all(run, report))
}

async fn measure_all(run: &Run<'_>, report: &mut Report) -> Outcome {
    let mut table = Table::new(
        "Reading over HTTP, pages of 100",
        [
            "",
            "pages/s",
            "GiB/s",
            "events/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "server CPU us/page",
            "generator",
            "of bare",
        ],
    );
    let events = run.count(EVENTS);
    let mut servers = Vec::new();
    for (kind, name) in KINDS {
        let folder = format!("{kind:?}").to_lowercase();
        servers.push((Server::start(run, kind, &folder, Topics::ONE).await?, name));
    }
    for (server, _) in &servers {
        fill(server, events).await?;
    }
    for connections in CONNECTIONS {
        let rounds = rounds(run, &servers, connections, events).await?;
        rows(report, &mut table, connections, &servers, &rounds);
    }
    table.note(format!(
        "{events} events; all connections together read the topic page by page from beginning to end, repeatedly"
    ));
    table.note("GiB/s: response bodies, through a loopback socket, on a machine that reader and server share");
    table.note("bare axum serves the same page every time, with as many bytes, without a lookup");
    report.table(&table);
    Ok(())
}

/// Publishes what is read; a bare handler has its page already.
async fn fill(server: &Server, events: u64) -> Outcome {
    if server.kind != Kind::Bare {
        let load = Load::publish(16, PAGE, Duration::from_millis(200));
        while server.next.load(Ordering::Relaxed) < events {
            load.run(server).await?;
        }
    }
    server.next.store(0, Ordering::Relaxed);
    Ok(())
}

async fn rounds(run: &Run<'_>, servers: &[(Server, &str)], connections: u64, events: u64) -> Outcome<Vec<Vec<Done>>> {
    let write: Write = Arc::new(move |buffers, _, number| {
        let (topic, offset) = (text::topic(0), number % events);
        text::write_get(&mut buffers.request, format_args!("/v1/events?topic={topic}&offset={offset}&limit={PAGE}"));
    });
    let load = |time| Load {
        connections,
        time,
        events: PAGE,
        write: Arc::clone(&write),
        status: 200,
        ending: r#""nextOffset":"#,
    };
    let mut rounds: Vec<Vec<Done>> = servers.iter().map(|_| Vec::new()).collect();
    for (server, _) in servers {
        load(run.http_time() / 4).run(server).await?;
    }
    for _ in 0..run.http_rounds() {
        for ((server, _), rounds) in servers.iter().zip(&mut rounds) {
            rounds.push(load(run.http_time()).run(server).await?);
        }
    }
    Ok(rounds)
}

fn rows(report: &mut Report, table: &mut Table, connections: u64, servers: &[(Server, &str)], rounds: &[Vec<Done>]) {
    let bare = rounds.last().map_or(&[] as &[Done], Vec::as_slice);
    for ((server, name), rounds) in servers.iter().zip(rounds) {
        let figure = |figure: fn(&Done) -> f64| median(rounds.iter().map(figure));
        let of_bare =
            rounds.iter().zip(bare).map(|(ours, bare)| ours.requests_per_second() / bare.requests_per_second());
        let speed = figure(Done::answer_bytes_per_second);
        table.row([
            format!("{}: {name}", counted(connections, "connection")),
            whole(figure(Done::requests_per_second)),
            gibibytes(speed),
            whole(figure(Done::events_per_second)),
            fine(figure(|done| done.millis(0.5))),
            fine(figure(|done| done.millis(0.99))),
            fine(figure(|done| done.millis(0.999))),
            fine(figure(Done::server_micros)),
            percent(figure(Done::generator_share)),
            percent(median(of_bare)),
        ]);
        if server.kind == Kind::File && connections == 16 {
            let measured = format!("{} GiB/s over HTTP", gibibytes(speed));
            let name = "16 connections, list pages of 100, file (the target is meant in process)";
            report.target(name, ">= 1 GiB/s", measured, speed >= 1024.0 * 1024.0 * 1024.0);
        }
    }
}
