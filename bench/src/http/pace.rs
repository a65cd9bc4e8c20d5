//! At a given rate: publishers that send each event when its moment comes, or as soon after it as they can.
//!
//! The runtime's clock ticks in milliseconds, so at 5,000 a second about five leave together.

use super::connection::{Connection, open_many};
use super::server::Server;
use super::text;
use crate::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Enough that a slow answer delays nobody else's moment.
const CONNECTIONS: u64 = 64;

/// A steady load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Events per second.
    pub(crate) rate: f64,
    pub(crate) time: Duration,
    /// Topics the events go to in turns.
    pub(crate) topics: u64,
    /// Stamps count nanoseconds from here.
    pub(crate) origin: Instant,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Paced {
    pub(crate) seconds: f64,
    /// How long each answer took, in nanoseconds, ascending.
    pub(crate) waits: Vec<u32>,
}

impl Paced {
    pub(crate) fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.seconds
    }
}

impl Pace {
    pub(crate) async fn run(self, server: &Server) -> Outcome<Paced> {
        let connections = open_many(server.endpoint(), CONNECTIONS).await?;
        let (turn, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let publishers: Vec<_> = connections
            .into_iter()
            .map(|connection| {
                let (turn, next) = (Arc::clone(&turn), Arc::clone(&server.next));
                tokio::spawn(Publisher { connection, turn, next, pace: self }.publish(begun))
            })
            .collect();
        let mut all = Paced::default();
        for publisher in publishers {
            all.waits.append(&mut publisher.await??);
        }
        all.seconds = begun.elapsed().as_secs_f64();
        all.waits.sort_unstable();
        Ok(all)
    }
}

struct Publisher {
    connection: Connection,
    /// Whose moment is next.
    turn: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
    pace: Pace,
}

impl Publisher {
    async fn publish(mut self, begun: Instant) -> Outcome<Vec<u32>> {
        let mut waits = Vec::new();
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let due = Duration::from_secs_f64(turn as f64 / self.pace.rate);
            // Also when the server is too slow for the rate: what is not sent in time is not sent.
            if due > self.pace.time || begun.elapsed() > self.pace.time {
                return Ok(waits);
            }
            tokio::time::sleep_until((begun + due).into()).await;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            waits.push(publish_one(&mut self.connection, number, turn % self.pace.topics, self.pace.origin).await?);
        }
    }
}

/// Publishes an event with the moment in it; answers how long that took, in nanoseconds.
pub(crate) async fn publish_one(connection: &mut Connection, number: u64, topic: u64, origin: Instant) -> Outcome<u32> {
    let mut body = Vec::with_capacity(512);
    let asked = Instant::now();
    let sent = u64::try_from(asked.duration_since(origin).as_nanos()).unwrap_or(u64::MAX);
    text::event(&mut body, number, topic, sent);
    connection.expect(201, &text::post("/v1/events", &body)).await?;
    Ok(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX))
}
