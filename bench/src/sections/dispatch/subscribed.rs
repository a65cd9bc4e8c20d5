//! A broker with one subscription, its receiver, and whoever publishes.

use super::Round;
use crate::Outcome;
use crate::http::connection::{Connection, open_many};
use crate::http::pace::Pace;
use crate::http::receiver::{Manner, Receiver};
use crate::http::server::Server;
use crate::http::text::{self, Topics};
use crate::sections::Run;
use crate::usage::{self, Memory};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Events to a request.
pub(super) const BATCH: u64 = 100;
/// Events that may be published and not received.
pub(super) const AHEAD: u64 = 5000;
const PUBLISHERS: u64 = 4;
/// Message groups of the ordered mode.
const GROUPS: u64 = 1000;
/// How long the last completion may take.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);
const CODE: &str = "bench";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Immediate,
    /// BLOCK_ON_ERROR in a thousand groups.
    Ordered,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Immediate => "IMMEDIATE",
            Self::Ordered => "BLOCK_ON_ERROR, 1 000 groups",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Immediate => "IMMEDIATE",
            Self::Ordered => "BLOCK_ON_ERROR",
        }
    }
}

/// A broker that delivers.
pub(super) struct Subscribed {
    server: Arc<Server>,
    receiver: Arc<Receiver>,
    pub(super) mode: Mode,
    /// The receiver of a second subscription, which never responds.
    hanging: Option<Receiver>,
}

/// What came of a steady rate.
pub(super) struct Paced {
    pub(super) rate: f64,
    pub(super) waits: Vec<u32>,
    pub(super) answers: Vec<u32>,
    pub(super) cores: f64,
}

/// The body that makes a subscription to events of a type on topic 0.
pub(super) fn subscription(code: &str, event_type: &str, mode: &str, receiver: &Receiver) -> Vec<u8> {
    let target = format!("http://{}/hooks", receiver.address);
    let types = json!([{"type": event_type}]);
    let body = json!({
        "code": code, "topic": text::topic(0), "eventTypes": types, "target": target, "mode": mode, "timeoutSeconds": 300,
    });
    text::post("/v1/subscriptions", body.to_string().as_bytes())
}

impl Subscribed {
    /// Starts one; `name` tells it from others of its mode.
    pub(super) async fn start(run: &Run<'_>, mode: Mode, name: &str) -> Outcome<Self> {
        let receiver = Receiver::start(Manner::Answers)?;
        let server = Server::start_calling(run, &format!("{}-{name}", mode.word()), Topics::ONE).await?;
        let mut connection = Connection::open(server.address).await?;
        let new = subscription(CODE, &text::event_type(0), mode.word(), &receiver);
        connection.expect(201, &new).await?;
        Ok(Self { server: Arc::new(server), receiver: Arc::new(receiver), mode, hanging: None })
    }

    /// Adds a subscription to the same events whose receiver never responds.
    pub(super) async fn add_hanging(&mut self) -> Outcome {
        let receiver = Receiver::start(Manner::Holds)?;
        let new = subscription("hanging", &text::event_type(0), self.mode.word(), &receiver);
        Connection::open(self.server.address).await?.expect(201, &new).await?;
        self.hanging = Some(receiver);
        Ok(())
    }

    /// How many requests hang.
    pub(super) fn hanging_requests(&self) -> u64 {
        self.hanging.as_ref().map_or(0, Receiver::count)
    }

    pub(super) fn memory(&self) -> Outcome<Memory> {
        self.server.memory()
    }

    pub(super) async fn settle(&self) -> Outcome {
        self.server.settle().await
    }

    /// Publishes for a time, as fast as it is delivered, and waits until all of it is.
    pub(super) async fn run(&self, time: Duration) -> Outcome<Round> {
        self.receiver.take()?;
        let connections = open_many(self.server.address, PUBLISHERS).await?;
        let before = self.receiver.count();
        let (broker_cpu, receiver_cpu) = (self.server.cpu_seconds()?, self.receiver.cpu_time().await?);
        let (all_cpu, begun) = (usage::cpu_time(), Instant::now());
        let publishers: Vec<_> = connections
            .into_iter()
            .map(|connection| {
                let (server, receiver) = (Arc::clone(&self.server), Arc::clone(&self.receiver));
                let publisher = Publisher { connection, server, receiver, is_ordered: self.mode == Mode::Ordered };
                tokio::spawn(publisher.publish(begun, time))
            })
            .collect();
        for publisher in publishers {
            publisher.await??;
        }
        self.all_settled().await?;
        let seconds = begun.elapsed().as_secs_f64();
        let receiver_cpu = self.receiver.cpu_time().await?.saturating_sub(receiver_cpu).as_secs_f64();
        let all_cpu = usage::cpu_time().saturating_sub(all_cpu).as_secs_f64();
        Ok(Round {
            deliveries: self.receiver.count() - before,
            seconds,
            sender_cpu: self.server.cpu_seconds()? - broker_cpu,
            receiver_cpu,
            generator_cpu: all_cpu - receiver_cpu,
            waits: self.receiver.take()?,
        })
    }

    /// Publishes single events at a rate.
    pub(super) async fn pace(&self, rate: f64, time: Duration) -> Outcome<Paced> {
        self.receiver.take()?;
        let broker_cpu = self.server.cpu_seconds()?;
        let paced = Pace { rate, time, topics: 1, origin: self.receiver.origin() }.run(&self.server).await?;
        let cores = (self.server.cpu_seconds()? - broker_cpu) / paced.seconds;
        self.all_settled().await?;
        Ok(Paced { rate: paced.rate(), waits: self.receiver.take()?, answers: paced.waits, cores })
    }

    /// Waits until the log says that everything published was delivered.
    async fn all_settled(&self) -> Outcome {
        let mut connection = Connection::open(self.server.address).await?;
        let mut request = Vec::new();
        text::write_get(&mut request, format_args!("/v1/subscriptions/{CODE}"));
        let (begun, last) = (Instant::now(), self.server.next.load(Ordering::Relaxed));
        loop {
            let settled = text::number_after(connection.expect(200, &request).await?, "\"settledThrough\":")?;
            if settled >= last {
                return Ok(());
            }
            if begun.elapsed() > SETTLE_MAX {
                return Err(format!("only {settled} of {last} events are delivered").into());
            }
            tokio::time::sleep(5 * LOOK).await;
        }
    }
}

struct Publisher {
    connection: Connection,
    server: Arc<Server>,
    receiver: Arc<Receiver>,
    is_ordered: bool,
}

impl Publisher {
    async fn publish(mut self, begun: Instant, time: Duration) -> Outcome {
        let (mut body, mut request) = (Vec::new(), Vec::new());
        while begun.elapsed() < time {
            if self.server.next.load(Ordering::Relaxed).saturating_sub(self.receiver.count()) >= AHEAD {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let first = self.server.next.fetch_add(BATCH, Ordering::Relaxed);
            body.clear();
            request.clear();
            self.write(&mut body, first);
            text::write_post(&mut request, "/v1/events:batch", &body);
            let answer = self.connection.expect(207, &request).await?;
            if memchr::memmem::rfind(answer, br#""failed":0}}"#).is_none() {
                return Err("not all of a batch was taken".into());
            }
        }
        Ok(())
    }

    fn write(&self, body: &mut Vec<u8>, first: u64) {
        let sent = u64::try_from(self.receiver.origin().elapsed().as_nanos()).unwrap_or(u64::MAX);
        body.extend_from_slice(br#"{"events":["#);
        for number in first..first + BATCH {
            if number > first {
                body.push(b',');
            }
            text::event(body, number, 0, sent);
            if self.is_ordered {
                body.pop();
                let group = format!(r#","messageGroup":"group-{}"}}"#, number % GROUPS);
                body.extend_from_slice(group.as_bytes());
            }
        }
        body.extend_from_slice(b"]}");
    }
}
