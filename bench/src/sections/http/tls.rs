//! TLS beside plain HTTP, in turns: publishing, long polls, and polls that wait for nothing.
//!
//! The generator decrypts on its one thread, so its share is higher with TLS; the server's processor time is the figure.

use super::idle::{Idle, READERS};
use super::one_thread;
use crate::figures::{counted, fine, kibibytes, median, millis_at, percent, whole};
use crate::http::drive::{Done, Load};
use crate::http::pace::Pace;
use crate::http::readers::{Readers, Way};
use crate::http::server::{Kind, Server};
use crate::http::text::Topics;
use crate::report::{Report, Table};
use crate::sections::Run;
use crate::{Outcome, usage};
use std::time::Duration;

const CONNECTIONS: [u64; 3] = [1, 16, 64];
/// Each with TLS behind the same without.
const ENGINES: [(Kind, Kind, &str); 2] =
    [(Kind::Memory, Kind::MemoryTls, "memory"), (Kind::File, Kind::FileTls, "file")];
/// Readers of one topic, and events per second.
const POLLS: u64 = 100;
const RATE: f64 = 500.0;

/// One server of a pair, with what came of each round.
struct Side {
    server: Server,
    rounds: Vec<Done>,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(async {
        publish(run, report).await?;
        polls(run, report).await?;
        idle_polls(run, report).await
    })
}

async fn publish(run: &Run<'_>, report: &mut Report) -> Outcome {
    let columns = ["", "requests/s", "p50 ms", "p99 ms", "server CPU us", "generator", "of plain HTTP"];
    let mut table = Table::new("Publishing with TLS, one event per request", columns);
    for (plain, encrypted, engine) in ENGINES {
        let mut sides = [Side::start(run, plain).await?, Side::start(run, encrypted).await?];
        for connections in CONNECTIONS {
            sides.iter_mut().for_each(|side| side.rounds.clear());
            for _ in 0..run.http_rounds() {
                for side in &mut sides {
                    let load = Load::publish(connections, 1, run.http_time());
                    side.rounds.push(load.run(&side.server).await?);
                }
            }
            let [plain, encrypted] = &sides;
            for (side, name) in [(plain, "plain"), (encrypted, "TLS")] {
                table.row([
                    format!("{engine}, {}, {name}", counted(connections, "connection")),
                    whole(side.figure(Done::requests_per_second)),
                    fine(side.figure(|done| done.millis(0.5))),
                    fine(side.figure(|done| done.millis(0.99))),
                    fine(side.figure(Done::server_micros)),
                    percent(side.figure(Done::generator_share)),
                    percent(side.figure(Done::requests_per_second) / plain.figure(Done::requests_per_second)),
                ]);
            }
        }
    }
    table.note("TLS 1.3, AES-256-GCM, connections stay open: handshakes are not measured here");
    table.note("generator: its share of the processor time of generator and server; it encrypts and decrypts too");
    report.table(&table);
    Ok(())
}

async fn polls(run: &Run<'_>, report: &mut Report) -> Outcome {
    let columns = ["", "events/s", "received/s", "p50 ms", "p99 ms", "server cores"];
    let title = format!("From publishing to receiving with TLS, {} of one topic", counted(POLLS, "long poll"));
    let mut table = Table::new(title, columns);
    for (plain, encrypted, engine) in ENGINES {
        for (kind, name) in [(plain, "plain"), (encrypted, "TLS")] {
            let server = Server::start(run, kind, "tls-polls", Topics::ONE).await?;
            let readers = Readers::start(&server, Way::Poll, POLLS, 1).await?;
            let time = Duration::from_secs(if run.quick { 1 } else { 5 });
            let origin = readers.receipts.origin;
            let cpu = server.cpu_seconds()?;
            let paced = Pace { rate: RATE, time, topics: 1, origin }.run(&server).await?;
            let received = readers.receipts.count() as f64 / paced.seconds;
            let cores = (server.cpu_seconds()? - cpu) / paced.seconds;
            server.settle().await?;
            readers.check().await?;
            let waits = readers.receipts.take();
            table.row([
                format!("{engine}, {name}"),
                whole(paced.rate()),
                whole(received),
                fine(millis_at(&waits, 0.5)),
                fine(millis_at(&waits, 0.99)),
                fine(cores),
            ]);
        }
    }
    report.table(&table);
    Ok(())
}

async fn idle_polls(run: &Run<'_>, report: &mut Report) -> Outcome {
    let count = run.count(READERS).min(usage::open_files_max() / 2);
    let columns = ["", "KiB each", "CPU, of a core", "seconds to open all"];
    let mut table = Table::new(format!("{} idle polls with TLS", whole(count as f64)), columns);
    for (kind, name) in [(Kind::File, "plain"), (Kind::FileTls, "TLS")] {
        let cost = Idle::Polls.cost(run, kind, count).await?;
        let each = cost.with.saturating_sub(cost.before) as f64 / count as f64;
        let cores = format!("{} %", fine(cost.cores * 100.0));
        table.row([name.to_owned(), kibibytes(each), cores, fine(cost.opening_seconds)]);
    }
    table.note("HTTP/1.1, a connection each; opening includes the handshakes of server and generator");
    report.table(&table);
    Ok(())
}

impl Side {
    async fn start(run: &Run<'_>, kind: Kind) -> Outcome<Self> {
        let name = format!("{kind:?}").to_lowercase();
        Ok(Self { server: Server::start(run, kind, &name, Topics::ONE).await?, rounds: Vec::new() })
    }

    /// The median of the rounds.
    fn figure(&self, figure: impl Fn(&Done) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }
}
