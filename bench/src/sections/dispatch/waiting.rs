//! Publishing beside jobs that wait: a broker with many subscriptions and a receiver that holds its jobs, and a broker with
//! none, asked in turns.

use super::CONCURRENCY;
use super::subscribed::subscription;
use crate::Outcome;
use crate::figures::{counted, fine, mebibytes, median, percent, whole};
use crate::http::connection::{Connection, open_many};
use crate::http::drive::{Done, Load};
use crate::http::receiver::{Manner, Receiver};
use crate::http::server::Server;
use crate::http::text::{self, Topics};
use crate::report::{Report, Table};
use crate::sections::Run;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SUBSCRIPTIONS: u64 = 10_000;
const WAITING: u64 = 100_000;
/// Connections, and events to a request.
const LOADS: [(u64, u64); 2] = [(256, 1), (16, 100)];
/// Connections on which subscriptions are made.
const MAKERS: u64 = 16;
/// How long it may take until the receiver holds what it can.
const HELD_MAX: Duration = Duration::from_secs(60);

/// A broker, and what came of each round.
struct Contender {
    name: &'static str,
    server: Server,
    rounds: Vec<Done>,
}

pub(super) async fn measure(run: &Run<'_>, report: &mut Report) -> Outcome {
    let receiver = Receiver::start(Manner::Holds)?;
    let mut contenders = [contender(run, "no subscriptions").await?, contender(run, "waiting jobs").await?];
    let (subscriptions, waiting) = (run.count(SUBSCRIPTIONS), run.count(WAITING));
    for contender in &contenders {
        publish(&contender.server, waiting).await?;
    }
    let [_, busy] = &contenders;
    subscribe(&busy.server, &receiver, subscriptions).await?;
    let columns = ["", "events/s", "of no subscriptions", "p50 ms", "p99 ms", "broker CPU us/event", "RSS MiB"];
    let mut table = Table::new("Publishing, with and without subscriptions and waiting jobs", columns);
    for (connections, events) in LOADS {
        let load = Load::publish(connections, events, run.http_time());
        for _ in 0..=run.rounds() {
            for contender in &mut contenders {
                contender.rounds.push(load.run(&contender.server).await?);
                contender.server.settle().await?;
            }
        }
        // The first of each only warms up.
        contenders.iter_mut().for_each(|contender| drop(contender.rounds.remove(0)));
        show(report, &mut table, &contenders, connections, events)?;
        contenders.iter_mut().for_each(|contender| contender.rounds.clear());
    }
    table.note(format!(
        "waiting jobs: {} to events of other types of the topic, and one with BLOCK_ON_ERROR to all published \
        events, with {} jobs at the start and one more per event; its receiver accepts 64 and never responds",
        counted(subscriptions, "subscription"),
        whole(waiting as f64)
    ));
    table.note("both get the same events and are measured in turn; medians of the rounds, the ratio of each round");
    report.table(&table);
    Ok(())
}

async fn contender(run: &Run<'_>, name: &'static str) -> Outcome<Contender> {
    let server = Server::start_calling(run, &name.replace(' ', "-"), Topics::ONE).await?;
    Ok(Contender { name, server, rounds: Vec::new() })
}

/// The first events, which become the jobs that wait.
async fn publish(server: &Server, events: u64) -> Outcome {
    let load = Load::publish(16, 100, Duration::from_millis(50));
    while server.next.load(Ordering::Relaxed) < events {
        load.run(server).await?;
    }
    Ok(())
}

/// The subscriptions: one that holds everything, and all the others.
async fn subscribe(server: &Server, receiver: &Receiver, count: u64) -> Outcome {
    let connections = open_many(server.address, MAKERS).await?;
    let makers: Vec<_> = (0..MAKERS)
        .zip(connections)
        .map(|(maker, mut connection)| {
            let numbers = (maker..count).step_by(MAKERS as usize);
            let requests = numbers.map(|number| {
                let event_type = format!("gts.acme.shop.order_shipped{number}.v1");
                subscription(&format!("other-{number}"), &event_type, "IMMEDIATE", receiver)
            });
            let requests: Vec<_> = requests.collect();
            tokio::spawn(async move {
                for request in requests {
                    connection.expect(201, &request).await?;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for maker in makers {
        maker.await??;
    }
    let mut connection = Connection::open(server.address).await?;
    let held = subscription_from_the_start(receiver);
    connection.expect(201, &held).await?;
    let begun = Instant::now();
    while receiver.count() < CONCURRENCY as u64 {
        if begun.elapsed() > HELD_MAX {
            return Err("too little is delivered to the receiver that holds".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.settle().await
}

/// The one that wants everything there is.
fn subscription_from_the_start(receiver: &Receiver) -> Vec<u8> {
    let body = serde_json::json!({
        "code": "held", "topic": text::topic(0), "eventTypes": [{"type": text::event_type(0)}],
        "target": format!("http://{}/hooks", receiver.address), "mode": "BLOCK_ON_ERROR", "timeoutSeconds": 300,
        "startFrom": "earliest",
    });
    text::post("/v1/subscriptions", body.to_string().as_bytes())
}

fn show(report: &mut Report, table: &mut Table, contenders: &[Contender; 2], connections: u64, events: u64) -> Outcome {
    let [idle, busy] = contenders;
    let ratio =
        busy.rounds.iter().zip(&idle.rounds).map(|(busy, idle)| busy.events_per_second() / idle.events_per_second());
    let ratio = median(ratio);
    let what = format!("{}, {}", counted(connections, "connection"), counted(events, "event"));
    for contender in contenders {
        let figure = |figure: &dyn Fn(&Done) -> f64| median(contender.rounds.iter().map(figure));
        table.row([
            format!("{what}: {}", contender.name),
            whole(figure(&Done::events_per_second)),
            if contender.name == idle.name { String::new() } else { percent(ratio) },
            fine(figure(&|done| done.millis(0.5))),
            fine(figure(&|done| done.millis(0.99))),
            fine(figure(&|done| done.server_micros() / events as f64)),
            mebibytes(contender.server.memory()?.rss_bytes as f64),
        ]);
    }
    let name = format!("{what}: publishing beside waiting jobs");
    report.target(name, ">= 90 %", percent(ratio), ratio >= 0.9);
    Ok(())
}
