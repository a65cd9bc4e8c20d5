//! Callers that publish as fast as they are answered.

use crate::counting::Counts;
use crate::events::{Aggregates, Maker};
use crate::store::Store;
use crate::{Outcome, usage};
use contract::api::*;
use contract::{Atomicity, PublishOutcome as Stored, PublishedEvent};
use event_broker::Broker;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Who publishes what, and until when.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) callers: u64,
    /// Events to a request; 1 publishes single events.
    pub(crate) batch: u64,
    pub(crate) aggregates: Aggregates,
    /// Number of the first event; numbers used before would be duplicates.
    pub(crate) first: u64,
    pub(crate) until: Until,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Until {
    /// So many events.
    Count(u64),
    /// So long.
    Elapsed(Duration),
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) events: u64,
    /// Number of the next event not published.
    pub(crate) next: u64,
    /// Bytes of the events' JSON.
    pub(crate) text_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) counts: Counts,
    /// How long each request took, in nanoseconds, ascending.
    #[serde(skip)]
    pub(crate) waits: Vec<u32>,
}

impl Done {
    pub(crate) fn events_per_second(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    pub(crate) fn disk_bytes_per_second(&self) -> f64 {
        self.counts.bytes as f64 / self.seconds
    }

    pub(crate) fn text_bytes_per_second(&self) -> f64 {
        self.text_bytes as f64 / self.seconds
    }

    pub(crate) fn syncs_per_second(&self) -> f64 {
        self.counts.syncs as f64 / self.seconds
    }

    pub(crate) fn events_per_sync(&self) -> f64 {
        self.events as f64 / self.counts.syncs.max(1) as f64
    }

    pub(crate) fn bytes_per_sync(&self) -> f64 {
        self.counts.bytes as f64 / self.counts.syncs.max(1) as f64
    }

    /// Part of the time in which the log's thread was writing or syncing.
    pub(crate) fn disk_busy(&self) -> f64 {
        self.counts.nanos as f64 / 1e9 / self.seconds
    }

    /// How long writing and syncing a group took, in milliseconds.
    pub(crate) fn millis_per_sync(&self) -> f64 {
        self.counts.nanos as f64 / 1e6 / self.counts.syncs.max(1) as f64
    }

    /// Processor time of one event, in microseconds; also seconds for a million.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.events.max(1) as f64
    }
}

impl Load {
    /// Publishes all of it.
    pub(crate) async fn run(self, store: &Store) -> Outcome<Done> {
        let maker = Arc::new(Maker::new(self.aggregates)?);
        let next = Arc::new(AtomicU64::new(self.first));
        let (counts, cpu, begun) = (store.counts(), usage::cpu_time(), Instant::now());
        let callers: Vec<_> = (0..self.callers)
            .map(|_| {
                let (broker, maker, next) = (Arc::clone(&store.broker), Arc::clone(&maker), Arc::clone(&next));
                tokio::spawn(Caller { broker, maker, next, load: self, begun, share: Share::default() }.publish())
            })
            .collect();
        let mut all = Share::default();
        for caller in callers {
            all.add(caller.await??);
        }
        let seconds = begun.elapsed().as_secs_f64();
        all.waits.sort_unstable();
        Ok(Done {
            events: all.events,
            next: next.load(Ordering::Relaxed),
            text_bytes: all.text_bytes,
            seconds,
            cpu_seconds: usage::cpu_time().saturating_sub(cpu).as_secs_f64(),
            counts: store.counts().since(counts),
            waits: all.waits,
        })
    }
}

/// What one caller published.
#[derive(Default)]
struct Share {
    events: u64,
    text_bytes: u64,
    waits: Vec<u32>,
}

impl Share {
    fn add(&mut self, mut other: Self) {
        self.events += other.events;
        self.text_bytes += other.text_bytes;
        self.waits.append(&mut other.waits);
    }

    fn take(&mut self, published: &PublishedEvent) -> Outcome {
        if published.outcome != Stored::Created {
            return Err("an event was taken for a duplicate: a mistake of the benchmark's".into());
        }
        self.events += 1;
        self.text_bytes += published.event.text.len() as u64;
        Ok(())
    }
}

struct Caller {
    broker: Arc<Broker>,
    maker: Arc<Maker>,
    next: Arc<AtomicU64>,
    load: Load,
    begun: Instant,
    share: Share,
}

impl Caller {
    async fn publish(mut self) -> Outcome<Share> {
        while let Some(numbers) = self.numbers() {
            let events = numbers.map(|number| self.maker.event(number)).collect::<Outcome<Vec<_>>>()?;
            let asked = Instant::now();
            self.request(events).await?;
            self.share.waits.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        Ok(self.share)
    }

    /// The events of the next request; `None` when it is time to stop.
    fn numbers(&self) -> Option<std::ops::Range<u64>> {
        let end = match self.load.until {
            Until::Count(count) => self.load.first.saturating_add(count),
            Until::Elapsed(time) if self.begun.elapsed() >= time => return None,
            Until::Elapsed(_) => u64::MAX,
        };
        let take = |next: u64| (next < end).then(|| (next + self.load.batch).min(end));
        let first = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(first..take(first)?)
    }

    async fn request(&mut self, mut events: Vec<contract::NewEvent>) -> Outcome {
        if self.load.batch == 1
            && let Some(event) = events.pop()
        {
            return self.share.take(&self.broker.publish(event, None).await?);
        }
        for published in self.broker.publish_batch(events, Atomicity::PerTopic, None).await? {
            self.share.take(&published?)?;
        }
        Ok(())
    }
}
