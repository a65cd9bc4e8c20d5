//! Pairs: connections that each claim, wait for the answer, say that it is done, and claim again.
//!
//! Where another connection was faster with a later event of the same aggregate, the answer is `stale`: no pair.

use crate::http::connection::{Connection, open_many};
use crate::http::drive::Done;
use crate::http::server::Server;
use crate::http::text;
use crate::{Outcome, usage};
use serde::Deserialize;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Events that are there to be worked on, by their sequences.
#[derive(Clone, Default)]
pub(super) struct Stock(Arc<Sequences>);

#[derive(Default)]
struct Sequences {
    /// Through here they are published.
    tail: AtomicU64,
    /// Through here they are taken.
    taken: AtomicU64,
}

impl Stock {
    /// So many more are there.
    pub(super) fn fill(&self, events: u64) {
        self.0.tail.fetch_add(events, Ordering::Relaxed);
    }

    /// The first of the next so many; none when there are not enough.
    fn take(&self, count: u64) -> Option<u64> {
        let first = self.0.taken.fetch_add(count, Ordering::Relaxed) + 1;
        if first + count - 1 <= self.0.tail.load(Ordering::Relaxed) {
            return Some(first);
        }
        self.0.taken.fetch_sub(count, Ordering::Relaxed);
        None
    }
}

/// Who works, on how many at a time, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    pub(super) connections: u64,
    pub(super) batch: u64,
    pub(super) time: Duration,
}

impl Pairs {
    /// Works on all connections.
    pub(super) async fn run(self, server: &Server, stock: &Stock) -> Outcome<Done> {
        let connections = open_many(server.address, self.connections).await?;
        let (server_cpu, generator_cpu, begun) = (server.cpu_seconds()?, usage::cpu_time(), Instant::now());
        let workers: Vec<_> = connections
            .into_iter()
            .map(|connection| {
                let worker =
                    Worker { connection, request: Vec::new(), body: Vec::new(), stock: stock.clone(), pairs: self };
                tokio::spawn(worker.work(begun))
            })
            .collect();
        let mut all = Done::default();
        for worker in workers {
            let (mut waits, pairs) = worker.await??;
            all.waits.append(&mut waits);
            all.events += pairs;
        }
        all.seconds = begun.elapsed().as_secs_f64();
        all.server_cpu = server.cpu_seconds()? - server_cpu;
        all.generator_cpu = usage::cpu_time().saturating_sub(generator_cpu).as_secs_f64();
        all.requests = all.waits.len() as u64;
        all.waits.sort_unstable();
        Ok(all)
    }
}

struct Worker {
    connection: Connection,
    request: Vec<u8>,
    body: Vec<u8>,
    stock: Stock,
    pairs: Pairs,
}

/// What is needed of a claim.
#[derive(Deserialize)]
struct Claim<'a> {
    #[serde(borrow)]
    id: &'a str,
    token: u64,
}

#[derive(Deserialize)]
struct One<'a> {
    #[serde(borrow)]
    claim: Option<Claim<'a>>,
}

#[derive(Deserialize)]
struct Several<'a> {
    #[serde(borrow)]
    results: Vec<One<'a>>,
}

impl Worker {
    /// Works until the time is over, or nothing is left; says how long each pair of requests took, in nanoseconds, and how
    /// many claims were finished.
    async fn work(mut self, begun: Instant) -> Outcome<(Vec<u32>, u64)> {
        let (mut waits, mut pairs) = (Vec::new(), 0);
        while begun.elapsed() < self.pairs.time {
            let Some(first) = self.stock.take(self.pairs.batch) else { break };
            let asked = Instant::now();
            pairs += match self.pairs.batch {
                1 => self.one(first).await?,
                count => self.several(first, count).await?,
            };
            waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        Ok((waits, pairs))
    }

    async fn one(&mut self, sequence: u64) -> Outcome<u64> {
        self.begin();
        wanted(&mut self.body, sequence);
        text::write_post(&mut self.request, "/v1/claims", &self.body);
        let answer = self.connection.expect(200, &self.request).await?;
        let One { claim } = serde_json::from_slice(answer)?;
        let Some(Claim { id, token }) = claim else { return Ok(0) };
        let path = format!("/v1/claims/{id}:done");
        self.request.clear();
        text::write_post(&mut self.request, &path, format!(r#"{{"token":{token}}}"#).as_bytes());
        self.connection.expect(200, &self.request).await?;
        Ok(1)
    }

    async fn several(&mut self, first: u64, count: u64) -> Outcome<u64> {
        self.begin();
        self.body.extend_from_slice(br#"{"claims":["#);
        for sequence in first..first + count {
            if sequence > first {
                self.body.push(b',');
            }
            wanted(&mut self.body, sequence);
        }
        self.body.extend_from_slice(b"]}");
        text::write_post(&mut self.request, "/v1/claims", &self.body);
        let answer = self.connection.expect(200, &self.request).await?;
        let Several { results } = serde_json::from_slice(answer)?;
        let claims = || results.iter().filter_map(|one| one.claim.as_ref());
        let pairs = claims().count() as u64;
        let done = claims().map(|Claim { id, token }| format!(r#"{{"id":"{id}","token":{token}}}"#));
        let body = format!(r#"{{"claims":[{}]}}"#, done.collect::<Vec<_>>().join(","));
        self.request.clear();
        text::write_post(&mut self.request, "/v1/claims:done", body.as_bytes());
        let answer = self.connection.expect(200, &self.request).await?;
        let refused = memchr::memmem::find(answer, br#""error""#);
        if refused.is_some() { Err("a claim could not be finished".into()) } else { Ok(pairs) }
    }

    fn begin(&mut self) {
        self.request.clear();
        self.body.clear();
    }
}

/// The wish for one event of the topic that is published to.
fn wanted(out: &mut Vec<u8>, sequence: u64) {
    let topic = text::topic(0);
    // Writing to memory cannot fail.
    let _ = write!(out, r#"{{"handler":"bench","topic":"{topic}","sequence":{sequence}}}"#);
}
