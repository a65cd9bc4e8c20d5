//! Delivery over HTTP: from the publisher's request to the hands of readers that wait, by long poll and by stream.
//!
//! - *Own topics*: every reader has a topic of its own, and events go to them in turns. Each is received once, so the
//!   number of readers should not matter.
//! - *One topic*: every reader receives every event; the server writes as many answers as there are readers.

use super::one_thread;
use crate::figures::{counted, fine, median, millis_at, percent, whole};
use crate::http::connection::Connection;
use crate::http::pace::{Pace, publish_one};
use crate::http::readers::{Readers, Way};
use crate::http::server::{Kind, Server};
use crate::http::text::Topics;
use crate::report::{Report, Table};
use crate::sections::Run;
use crate::{Outcome, usage};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The rate that DESIGN asks for.
const RATE: f64 = 5000.0;
const READERS_MAX: u64 = 1000;
/// Readers with topics of their own, at [`RATE`].
const OWN: [u64; 3] = [1, 100, READERS_MAX];
/// Readers of one topic, and events per second.
const SHARED: [(u64, f64); 4] = [(100, 500.0), (100, RATE), (READERS_MAX, 50.0), (READERS_MAX, 500.0)];
const ENGINES: [(Kind, &str); 2] = [(Kind::File, "file"), (Kind::Memory, "memory")];

/// So many readers of so many topics, and so many events per second.
#[derive(Debug, Clone, Copy)]
struct Case {
    way: Way,
    readers: u64,
    topics: u64,
    rate: f64,
}

/// What came of it.
struct Delivered {
    rate: f64,
    per_second: f64,
    /// From sending to receiving, in nanoseconds, ascending.
    waits: Vec<u32>,
    answer_p99: f64,
    server_cores: f64,
    generator_share: f64,
    /// Events that had not come when the server was at rest again.
    missing: u64,
}

pub(crate) fn measure_polls(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure(run, report, Way::Poll))
}

pub(crate) fn measure_streams(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    one_thread()?.block_on(measure(run, report, Way::Stream))
}

async fn measure(run: &Run<'_>, report: &mut Report, way: Way) -> Outcome {
    let columns = [
        "",
        "events/s",
        "received/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "most ms",
        "answer p99 ms",
        "server cores",
        "generator",
    ];
    let mut paced = Table::new(format!("From publishing to receiving, by {}", way.name()), columns);
    let columns = ["", "first ms", "middle ms", "last ms, median", "last ms, worst", "server CPU us/reader"];
    let mut all = Table::new(format!("One event, until every {} has it", way.name()), columns);
    for (kind, engine) in ENGINES {
        let server = Server::start(run, kind, engine, Topics(READERS_MAX)).await?;
        let own = OWN.map(|readers| Case { way, readers, topics: readers, rate: RATE });
        let shared = SHARED.map(|(readers, rate)| Case { way, readers, topics: 1, rate });
        for case in own.into_iter().chain(shared) {
            let delivered = case.run(run, &server).await?;
            case.show(report, &mut paced, engine, &delivered);
        }
        for readers in OWN {
            until_all(run, &mut all, &server, way, readers, engine).await?;
        }
    }
    paced
        .note("from before the publisher's request is written until after the reader's response is read, same process");
    paced.note(
        "received/s: while publishing; answer: the publisher's own response; server cores: processor time per second",
    );
    paced.note(
        "generator: its share of the processor time of generator and server; its one thread publishes and runs all \
        readers",
    );
    paced.note(
        "1 000 readers of one topic at 5 000 events/s would be 5 million events per second: more than two cores can \
        write",
    );
    all.note("all readers wait on one topic; one event is published when the server is idle");
    report.table(&paced);
    report.table(&all);
    Ok(())
}

impl Case {
    async fn run(self, run: &Run<'_>, server: &Server) -> Outcome<Delivered> {
        let readers = Readers::start(server, self.way, self.readers, self.topics).await?;
        let time = Duration::from_secs(if run.quick { 1 } else { 5 });
        let origin = readers.receipts.origin;
        let (server_cpu, generator_cpu) = (server.cpu_seconds()?, usage::cpu_time());
        let paced = Pace { rate: self.rate, time, topics: self.topics, origin }.run(server).await?;
        let received = readers.receipts.count();
        let server_cpu = server.cpu_seconds()? - server_cpu;
        let generator_cpu = usage::cpu_time().saturating_sub(generator_cpu).as_secs_f64();
        server.settle().await?;
        readers.check().await?;
        let waits = readers.receipts.take();
        let copies = if self.topics == 1 { self.readers } else { 1 };
        Ok(Delivered {
            rate: paced.rate(),
            per_second: received as f64 / paced.seconds,
            missing: (paced.waits.len() as u64 * copies).saturating_sub(waits.len() as u64),
            waits,
            answer_p99: millis_at(&paced.waits, 0.99),
            server_cores: server_cpu / paced.seconds,
            generator_share: generator_cpu / (generator_cpu + server_cpu),
        })
    }

    fn name(self, engine: &str) -> String {
        let Self { readers, rate, way, .. } = self;
        let readers = counted(readers, way.name());
        let place = if self.topics == self.readers { "own topics" } else { "one topic" };
        format!("{engine}, {readers}, {place}, {} events/s", whole(rate))
    }

    fn show(self, report: &mut Report, table: &mut Table, engine: &str, delivered: &Delivered) {
        let at = |share| millis_at(&delivered.waits, share);
        table.row([
            self.name(engine),
            whole(delivered.rate),
            whole(delivered.per_second),
            fine(at(0.5)),
            fine(at(0.99)),
            fine(at(0.999)),
            fine(at(1.0)),
            fine(delivered.answer_p99),
            fine(delivered.server_cores),
            percent(delivered.generator_share),
        ]);
        if delivered.missing > 0 {
            table.note(format!("{}: {} had not been received 10 s later", self.name(engine), delivered.missing));
        }
        if self.rate >= RATE {
            let met = at(0.99) < 10.0 && delivered.missing == 0 && delivered.rate > 0.95 * self.rate;
            let measured = format!("{} ms at {} events/s", fine(at(0.99)), whole(delivered.rate));
            report.target(format!("{}: publish to receive, p99", self.name(engine)), "< 10 ms", measured, met);
        }
    }
}

/// How long one event takes to reach all of so many readers.
async fn until_all(run: &Run<'_>, table: &mut Table, server: &Server, way: Way, count: u64, engine: &str) -> Outcome {
    let readers = Readers::start(server, way, count, 1).await?;
    let mut publisher = Connection::open(server.address).await?;
    let mut rounds = Vec::new();
    let cpu = server.cpu_seconds()?;
    let times = if run.quick { 3 } else { 20 };
    for _ in 0..times {
        let number = server.next.fetch_add(1, Ordering::Relaxed);
        publish_one(&mut publisher, number, 0, readers.receipts.origin).await?;
        rounds.push(readers.receipts.all(count).await?);
        server.settle().await?;
    }
    let cpu = server.cpu_seconds()? - cpu;
    let figure = |index: usize| median(rounds.iter().filter_map(|round| round.get(index).copied()));
    let worst = rounds.iter().map(|[_, _, last]| *last).fold(f64::NAN, f64::max);
    let each = cpu * 1e6 / (times * count) as f64;
    let name = format!("{engine}, {}", counted(count, way.name()));
    // Processor time is counted in hundredths of a second: too coarse for a few.
    let each = if times * count < 1000 { String::new() } else { fine(each) };
    table.row([name, fine(figure(0)), fine(figure(1)), fine(figure(2)), fine(worst), each]);
    Ok(())
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Poll => "long poll",
            Self::Stream => "stream",
        }
    }
}
