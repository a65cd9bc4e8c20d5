//! Contenders for the same load: ours in files and in memory, a bare handler, and `durable-streams`.

use crate::Outcome;
use crate::figures::median;
use crate::http::connection::Connection;
use crate::http::drive::{Done, Load, Write};
use crate::http::server::{Kind, Server};
use crate::http::text::{self, Topics};
use crate::report::Table;
use crate::sections::Run;
use std::sync::Arc;
use std::time::Duration;

/// Most connections a contender is asked on.
pub(super) const CONNECTIONS_MAX: u64 = 256;

/// One that is asked, in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    File,
    Memory,
    Bare,
    /// All connections append to one stream, as all of ours publish to one topic.
    OneStream,
    /// Each connection appends to a stream of its own: no order between them.
    OwnStreams,
}

/// A running contender with what came of each round.
pub(super) struct Running {
    pub(super) contender: Contender,
    pub(super) server: Server,
    pub(super) rounds: Vec<Done>,
}

impl Contender {
    pub(super) const ALL: [Self; 5] = [Self::File, Self::Memory, Self::Bare, Self::OneStream, Self::OwnStreams];

    /// The order of a round: nobody has the disk right after another that leaves writing behind.
    pub(super) const TURNS: [Self; 5] = [Self::File, Self::Memory, Self::OneStream, Self::Bare, Self::OwnStreams];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "event-broker, file",
            Self::Memory => "event-broker, memory",
            Self::Bare => "bare axum",
            Self::OneStream => "durable-streams, one stream",
            Self::OwnStreams => "durable-streams, a stream per connection",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Memory => Kind::Memory,
            Self::Bare => Kind::Bare,
            Self::OneStream | Self::OwnStreams => Kind::DurableStreams,
        }
    }

    async fn start(self, run: &Run<'_>) -> Outcome<Running> {
        let name = format!("{self:?}").to_lowercase();
        let server = Server::start(run, self.kind(), &name, Topics::ONE).await?;
        if server.kind == Kind::DurableStreams {
            let mut connection = Connection::open(server.address).await?;
            for number in 0..CONNECTIONS_MAX {
                let request = format!(
                    "PUT /events{number} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                    content-length: 0\r\n\r\n"
                );
                connection.expect(201, request.as_bytes()).await?;
            }
        }
        Ok(Running { contender: self, server, rounds: Vec::new() })
    }

    /// The load as this one takes it.
    fn load(self, connections: u64, events: u64, time: Duration) -> Load {
        let (status, ending) = match (self, events) {
            (Self::File | Self::Memory, 1) => (201, "}"),
            (Self::File | Self::Memory, _) => (207, r#""failed":0}}"#),
            (Self::Bare, _) => (201, "}"),
            (Self::OneStream | Self::OwnStreams, _) => (204, ""),
        };
        Load { connections, time, events, write: self.write(events), status, ending }
    }

    fn write(self, events: u64) -> Write {
        Arc::new(move |buffers, connection, first| {
            let body = &mut buffers.body;
            let (open, close) = match (self, events) {
                (_, 1) => ("", ""),
                (Self::OneStream | Self::OwnStreams, _) => ("[", "]"),
                _ => (r#"{"events":["#, "]}"),
            };
            body.extend_from_slice(open.as_bytes());
            text::events(body, first, events);
            body.extend_from_slice(close.as_bytes());
            let request = &mut buffers.request;
            match (self, events) {
                (Self::OneStream, _) => text::write_post(request, "/events0", body),
                (Self::OwnStreams, _) => text::write_post(request, &format!("/events{connection}"), body),
                (_, 1) => text::write_post(request, "/v1/events", body),
                _ => text::write_post(request, "/v1/events:batch", body),
            }
        })
    }
}

impl Running {
    pub(super) fn name(&self) -> &'static str {
        self.contender.name()
    }

    /// The median of the rounds.
    pub(super) fn figure(&self, figure: impl Fn(&Done) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    /// Asks for one round, and keeps what came of it.
    async fn round(&mut self, connections: u64, events: u64, time: Duration) -> Outcome {
        let done = self.contender.load(connections, events, time).run(&self.server).await?;
        self.rounds.push(done);
        Ok(())
    }
}

/// Starts all that can be started; a note says why one cannot.
pub(super) async fn start_all(run: &Run<'_>, table: &mut Table) -> Outcome<Vec<Running>> {
    let mut running = Vec::new();
    for contender in Contender::ALL {
        let is_peer = contender.kind() == Kind::DurableStreams;
        match is_peer.then(|| run.programs.durable_streams()) {
            Some(Err(reason)) => table.note(format!("{}: not run: {reason}", contender.name())),
            _ => running.push(contender.start(run).await?),
        }
    }
    Ok(running)
}

/// A short round of all that only warms up; what came of the rounds before is forgotten.
pub(super) async fn warm_up(run: &Run<'_>, running: &mut [Running], connections: u64, events: u64) -> Outcome {
    in_turns(run, running, connections, events, run.http_time() / 4).await?;
    running.iter_mut().for_each(|running| running.rounds.clear());
    Ok(())
}

/// A round of all of them in turns, then a pause: what the last has left to write is nobody else's.
pub(super) async fn in_turns(
    run: &Run<'_>,
    running: &mut [Running],
    connections: u64,
    events: u64,
    time: Duration,
) -> Outcome {
    for contender in Contender::TURNS {
        for running in running.iter_mut().filter(|running| running.contender == contender) {
            running.round(connections, events, time).await?;
        }
    }
    tokio::time::sleep(run.http_pause()).await;
    Ok(())
}

/// One contender's requests per second in parts of another's in the same round: the median.
pub(super) fn ratio(running: &[Running], ours: Contender, theirs: Contender) -> Option<f64> {
    let find = |wanted| running.iter().find(|running| running.contender == wanted);
    let rounds = find(ours)?.rounds.iter().zip(&find(theirs)?.rounds);
    Some(median(rounds.map(|(ours, theirs)| ours.requests_per_second() / theirs.requests_per_second())))
}

/// What the notes of every such table say.
pub(super) fn note_load(table: &mut Table, running: &[Running], body_bytes: usize) {
    table.note(format!(
        "a request's body has {body_bytes} bytes and is the same for all servers; ids and subjects are new, 100 000 \
        aggregates"
    ));
    table.note(
        "ours checks schema, idempotency and order; file and durable-streams (--durability wal) respond after \
        fdatasync, the others store nothing",
    );
    if running.iter().any(|running| running.server.kind == Kind::DurableStreams) {
        table.note(
            "durable-streams 0.1.5 with its defaults; JSON mode, which parses the body; responds 204 without a \
                body",
        );
    }
    table.note("generator: its share of the processor time of generator and server; one thread of the bench process");
    table.note(
        "all servers run at the same time and are measured in turn; figures and ratios are medians of the rounds",
    );
    table
        .note("durable-streams flushes the whole file system some seconds later; a pause keeps that out of our rounds");
}
