//! As fast as they are answered: connections that each ask, wait for the answer, and ask again.

use super::connection::{Connection, open_many};
use super::server::Server;
use super::text;
use crate::figures::millis_at;
use crate::{Outcome, usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Writes a request: to the buffer, for a connection by number, for what begins with an event by number.
pub(crate) type Write = Arc<dyn Fn(&mut Buffers, usize, u64) + Send + Sync>;

/// What a request is written with; kept, so that nothing is allocated for each.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) request: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Who asks what, and for how long.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) connections: u64,
    pub(crate) time: Duration,
    /// Events in a request or its answer.
    pub(crate) events: u64,
    pub(crate) write: Write,
    /// The only status that is right.
    pub(crate) status: u16,
    /// What the end of a right answer has in it.
    pub(crate) ending: &'static str,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) seconds: f64,
    /// Bytes of all bodies that came back.
    pub(crate) answer_bytes: u64,
    pub(crate) server_cpu: f64,
    pub(crate) generator_cpu: f64,
    /// How long each request took, in nanoseconds, ascending.
    pub(crate) waits: Vec<u32>,
}

impl Done {
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(crate) fn events_per_second(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    pub(crate) fn answer_bytes_per_second(&self) -> f64 {
        self.answer_bytes as f64 / self.seconds
    }

    /// The server's processor time for a request, in microseconds.
    pub(crate) fn server_micros(&self) -> f64 {
        self.server_cpu * 1e6 / self.requests.max(1) as f64
    }

    /// The generator's part of the processor time of both.
    pub(crate) fn generator_share(&self) -> f64 {
        self.generator_cpu / (self.generator_cpu + self.server_cpu)
    }

    /// The wait that `share` of the requests are below, in milliseconds.
    pub(crate) fn millis(&self, share: f64) -> f64 {
        millis_at(&self.waits, share)
    }
}

impl Load {
    /// Events published to ours, so many to a request.
    pub(crate) fn publish(connections: u64, events: u64, time: Duration) -> Self {
        let (path, open, close, status, ending) = match events {
            1 => ("/v1/events", "", "", 201, "}"),
            _ => ("/v1/events:batch", r#"{"events":["#, "]}", 207, r#""failed":0}}"#),
        };
        let write: Write = Arc::new(move |buffers, _, first| {
            buffers.body.extend_from_slice(open.as_bytes());
            text::events(&mut buffers.body, first, events);
            buffers.body.extend_from_slice(close.as_bytes());
            text::write_post(&mut buffers.request, path, &buffers.body);
        });
        Self { connections, time, events, write, status, ending }
    }

    /// Opens the connections, then asks on all of them.
    pub(crate) async fn run(&self, server: &Server) -> Outcome<Done> {
        let connections = open_many(server.endpoint(), self.connections).await?;
        let (server_cpu, generator_cpu, begun) = (server.cpu_seconds()?, usage::cpu_time(), Instant::now());
        let askers: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, connection)| {
                let next = Arc::clone(&server.next);
                tokio::spawn(Asker { connection, number, next, load: self.clone() }.ask(begun))
            })
            .collect();
        let mut all = Done::default();
        for asker in askers {
            let mut done = asker.await??;
            all.answer_bytes += done.answer_bytes;
            all.waits.append(&mut done.waits);
        }
        all.seconds = begun.elapsed().as_secs_f64();
        all.server_cpu = server.cpu_seconds()? - server_cpu;
        all.generator_cpu = usage::cpu_time().saturating_sub(generator_cpu).as_secs_f64();
        all.requests = all.waits.len() as u64;
        all.events = all.requests * self.events;
        all.waits.sort_unstable();
        Ok(all)
    }
}

struct Asker {
    connection: Connection,
    number: usize,
    next: Arc<AtomicU64>,
    load: Load,
}

impl Asker {
    async fn ask(mut self, begun: Instant) -> Outcome<Done> {
        let (mut done, mut buffers) = (Done::default(), Buffers::default());
        let Load { time, events, write, status, ending, .. } = &self.load;
        while begun.elapsed() < *time {
            let first = self.next.fetch_add(*events, Ordering::Relaxed);
            buffers.request.clear();
            buffers.body.clear();
            write(&mut buffers, self.number, first);
            let asked = Instant::now();
            let body = self.connection.expect(*status, &buffers.request).await?;
            done.waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
            done.answer_bytes += body.len() as u64;
            if !ends_with(body, ending) {
                return Err(format!("an answer does not end with {ending}").into());
            }
        }
        Ok(done)
    }
}

/// Whether the last bytes have this in them.
fn ends_with(body: &[u8], ending: &str) -> bool {
    let start = body.len().saturating_sub(64);
    let end = body.get(start..).unwrap_or_default();
    memchr::memmem::find(end, ending.as_bytes()).is_some()
}
