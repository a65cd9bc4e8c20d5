//! Readers that wait for nothing: what 10,000 of them cost, and whether a publisher notices.

use super::one_thread;
use crate::figures::{counted, fine, kibibytes, mebibytes, median, millis_at, whole};
use crate::http::connection::open_many;
use crate::http::pace::{Pace, Paced};
use crate::http::server::{Kind, Server};
use crate::http::text::{self, Topics};
use crate::report::{Report, Table};
use crate::sections::Run;
use crate::usage::open_files_max;
use crate::{Failure, Outcome};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

pub(super) const READERS: u64 = 10_000;
/// Requests that share an HTTP/2 connection.
const STREAMS_EACH: u64 = 1000;
/// Most connections; fewer where the system allows fewer files.
const CROWD: u64 = 20_000;
/// Files that a server or the benchmark has open beside its connections.
const SPARE_FILES: u64 = 300;
/// How long polls are looked at while they wait: most of their own time.
const WATCH_POLLS: Duration = Duration::from_secs(20);
/// How long streams are; more than the time between two signs of life.
const WATCH_STREAMS: Duration = Duration::from_secs(18);
/// How long after readers have left it is seen what they leave behind: the server gives memory back every few seconds.
const LEFT: Duration = Duration::from_secs(12);

/// How idle readers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    Polls,
    PollsTogether,
    Streams,
}

/// What they cost.
pub(super) struct Cost {
    pub(super) before: u64,
    pub(super) with: u64,
    pub(super) after: u64,
    pub(super) opening_seconds: f64,
    pub(super) cores: f64,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure_all(run, report))
}

async fn measure_all(run: &Run<'_>, report: &mut Report) -> Outcome {
    let columns = ["", "KiB each", "CPU, of a core", "RSS before MiB", "with MiB", "after MiB", "seconds to open all"];
    let count = run.count(READERS);
    let mut table = Table::new(format!("{} idle readers", whole(count as f64)), columns);
    for idle in [Idle::Polls, Idle::PollsTogether, Idle::Streams] {
        let cost = idle.cost(run, Kind::File, count).await?;
        idle.show(report, &mut table, count, &cost);
    }
    table.note("file engine, a topic without new events; RSS of the server, without the kernel's memory for sockets");
    table.note(
        "CPU in 20 of the 30 s that a poll waits; for streams in 18 s, in which each sends a keep-alive once or \
        twice",
    );
    table.note("with: at the end of that time; after: 12 s after all readers disconnected");
    report.table(&table);
    crowd(run, report).await
}

impl Idle {
    fn name(self) -> &'static str {
        match self {
            Self::Polls => "long polls, HTTP/1.1, a connection each",
            Self::PollsTogether => "long polls, HTTP/2, 1000 to a connection",
            Self::Streams => "streams, HTTP/1.1, a connection each",
        }
    }

    fn watch(self) -> Duration {
        match self {
            Self::Polls | Self::PollsTogether => WATCH_POLLS,
            Self::Streams => WATCH_STREAMS,
        }
    }

    pub(super) async fn cost(self, run: &Run<'_>, kind: Kind, count: u64) -> Outcome<Cost> {
        let server = Server::start(run, kind, "idle", Topics::ONE).await?;
        warm(&server).await?;
        let (before, begun) = (server.memory()?.rss_bytes, Instant::now());
        let mut waiting = JoinSet::new();
        self.open(&server, count, &mut waiting).await?;
        let opening_seconds = begun.elapsed().as_secs_f64();
        server.settle().await?;
        let (cpu, begun) = (server.cpu_seconds()?, Instant::now());
        let ended = tokio::time::timeout(self.watch(), waiting.join_next()).await;
        let cores = (server.cpu_seconds()? - cpu) / begun.elapsed().as_secs_f64();
        let with = server.memory()?.rss_bytes;
        if let Ok(Some(ended)) = ended {
            ended??;
            return Err("a reader was answered although nothing happened".into());
        }
        waiting.shutdown().await;
        tokio::time::sleep(LEFT).await;
        Ok(Cost { before, with, after: server.memory()?.rss_bytes, opening_seconds, cores })
    }

    async fn open(self, server: &Server, count: u64, waiting: &mut JoinSet<Outcome>) -> Outcome {
        match self {
            Self::Polls => open_polls(server, count, waiting).await,
            Self::PollsTogether => open_together(server, count, waiting).await,
            Self::Streams => open_streams(server, count, waiting).await,
        }
    }

    fn show(self, report: &mut Report, table: &mut Table, count: u64, cost: &Cost) {
        let each = cost.with.saturating_sub(cost.before) as f64 / count as f64;
        table.row([
            self.name().to_owned(),
            kibibytes(each),
            format!("{} %", fine(cost.cores * 100.0)),
            mebibytes(cost.before as f64),
            mebibytes(cost.with as f64),
            mebibytes(cost.after as f64),
            fine(cost.opening_seconds),
        ]);
        let name = format!("idle {}", self.name());
        report.target(format!("{name}: RAM each"), "< 10 KiB", format!("{} KiB", kibibytes(each)), each < 10240.0);
        if self != Self::Streams {
            let cores = format!("{} % of a core", fine(cost.cores * 100.0));
            report.target(format!("{name}: CPU"), "none (< 0.5 %)", cores, cost.cores < 0.005);
        }
    }
}

/// So that what a server takes once is not counted as a reader's.
async fn warm(server: &Server) -> Outcome {
    let pace = Pace { rate: 2000.0, time: Duration::from_millis(500), topics: 1, origin: Instant::now() };
    pace.run(server).await?;
    server.settle().await
}

fn poll_path() -> String {
    format!("/v1/events:poll?topic={}&offset=0&timeout=30", Topics::ONE.quiet())
}

async fn open_polls(server: &Server, count: u64, waiting: &mut JoinSet<Outcome>) -> Outcome {
    let mut request = Vec::new();
    text::write_get(&mut request, format_args!("{}", poll_path()));
    for mut connection in open_many(server.endpoint(), count).await? {
        let request = request.clone();
        waiting.spawn(async move { connection.expect(200, &request).await.map(|_| ()) });
    }
    Ok(())
}

async fn open_streams(server: &Server, count: u64, waiting: &mut JoinSet<Outcome>) -> Outcome {
    let mut request = Vec::new();
    text::write_get(&mut request, format_args!("/v1/events:stream?topic={}", Topics::ONE.quiet()));
    for mut connection in open_many(server.endpoint(), count).await? {
        let request = request.clone();
        waiting.spawn(async move {
            connection.follow(&request).await?;
            loop {
                connection.more(<[u8]>::len).await?;
            }
        });
    }
    Ok(())
}

/// Many polls on few connections.
async fn open_together(server: &Server, count: u64, waiting: &mut JoinSet<Outcome>) -> Outcome {
    let mut left = count;
    while left > 0 {
        let socket = TokioIo::new(TcpStream::connect(server.address).await?);
        let (sender, connection) = http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), socket).await?;
        waiting.spawn(async move { connection.await.map_err(Failure::from) });
        for _ in 0..left.min(STREAMS_EACH) {
            let uri = format!("http://{}{}", server.address, poll_path());
            let request = hyper::Request::get(uri).body(Empty::new())?;
            let mut sender = sender.clone();
            waiting.spawn(async move {
                match sender.send_request(request).await?.status().as_u16() {
                    200 => Ok(()),
                    other => Err(format!("a poll was answered with {other}").into()),
                }
            });
            tokio::task::yield_now().await;
        }
        left = left.saturating_sub(STREAMS_EACH);
    }
    Ok(())
}

/// A publisher alone, among as many connections as fit, and alone again.
async fn crowd(run: &Run<'_>, report: &mut Report) -> Outcome {
    let fitting = CROWD.min(open_files_max().saturating_sub(SPARE_FILES));
    let count = run.count(fitting);
    let server = Server::start(run, Kind::File, "crowd", Topics::ONE).await?;
    warm(&server).await?;
    let before = publish(run, &server).await?;
    let mut waiting = JoinSet::new();
    open_polls(&server, count, &mut waiting).await?;
    server.settle().await?;
    let among = publish(run, &server).await?;
    let answered = waiting.try_join_next().is_some();
    waiting.shutdown().await;
    server.settle().await?;
    let after = publish(run, &server).await?;
    let mut table =
        Table::new("A publisher beside waiting connections", ["", "events/s", "p50 ms", "p99 ms", "p99.9 ms"]);
    let crowded = format!("with {} waiting, a connection each", counted(count, "poll"));
    for (name, rounds) in [("alone", &before), (crowded.as_str(), &among), ("alone again", &after)] {
        let at = |share| fine(at(rounds, share));
        let rate = whole(median(rounds.iter().map(Paced::rate)));
        table.row([name.to_owned(), rate, at(0.5), at(0.99), at(0.999)]);
    }
    table.note(format!(
        "the target is 20 000 connections; a process may have {} files open here, so {} fit in addition to its own",
        whole(open_files_max() as f64),
        whole(fitting as f64)
    ));
    table.note(
        "64 connections publish 2 000 events/s to a topic other than the one that the readers wait for, file engine",
    );
    table.note("medians of the rounds");
    if answered {
        table.note("some polls ended while the publisher was measured");
    }
    report.table(&table);
    let (alone, among) = (f64::midpoint(at(&before, 0.99), at(&after, 0.99)), at(&among, 0.99));
    let measured = format!("x {} ({} ms, alone {} ms)", fine(among / alone), fine(among), fine(alone));
    let name = format!("publisher's p99 with {} open, against alone", counted(count, "connection"));
    report.target(name, "x 1.5 at most", measured, among <= 1.5 * alone && !answered);
    Ok(())
}

/// A few rounds of publishing at a rate that leaves the machine idle most of the time.
async fn publish(run: &Run<'_>, server: &Server) -> Outcome<Vec<Paced>> {
    let time = Duration::from_secs(if run.quick { 1 } else { 4 });
    let mut rounds = Vec::new();
    for _ in 0..run.http_rounds() {
        let pace = Pace { rate: 2000.0, time, topics: 1, origin: Instant::now() };
        rounds.push(pace.run(server).await?);
    }
    Ok(rounds)
}

/// The median over the rounds of the wait that `share` of the answers are below, in milliseconds.
fn at(rounds: &[Paced], share: f64) -> f64 {
    median(rounds.iter().map(|paced| millis_at(&paced.waits, share)))
}
