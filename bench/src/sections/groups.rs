//! Shared groups: what an event costs that goes to one of many waiting members.
//!
//! - Few events are under way at a time, so nearly all members wait: the cost of waking one must not grow with the others.
//! - In the process, without HTTP: a connection per member would cost more than the group.

use super::{Run, runtime};
use crate::events::{self, Aggregates, Maker};
use crate::figures::{fine, median, millis_at, whole};
use crate::report::{Report, Table};
use crate::store::Store;
use crate::{Outcome, usage};
use contract::api::*;
use contract::{Completion, IsoDuration, NewConsumer, Offset};
use event_broker::Broker;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

const GROUP: &str = "crowd";
const MEMBERS: [usize; 2] = [100, 1000];
/// Events that are published and not finished yet.
const UNDER_WAY: usize = 16;
/// Events of one round.
const EVENTS: u64 = 20_000;
/// How long a poll waits.
const WAIT: Duration = Duration::from_secs(20);
/// Of a thousand members, compared with a hundred.
const RATIO_WANTED: f64 = 1.3;

/// A group with its members, which all wait.
struct Crowd {
    store: Store,
    work: Arc<Work>,
    members: JoinSet<Outcome>,
    next: u64,
}

/// What publishers and members share.
struct Work {
    broker: Arc<Broker>,
    /// A place for an event to be under way.
    places: Semaphore,
    done: AtomicU64,
    is_over: AtomicBool,
    /// When each event was published, by its number; and how long each took to a member, in nanoseconds.
    published: Mutex<std::collections::HashMap<Uuid, Instant>>,
    waits: Mutex<Vec<u32>>,
}

/// What came of one round.
struct Round {
    per_second: f64,
    cpu_micros: f64,
    /// From publishing to the member, in nanoseconds, ascending.
    waits: Vec<u32>,
}

pub(crate) fn measure(run: &mut Run<'_>, report: &mut Report) -> Outcome {
    let runtime = runtime()?;
    let making = events::making_seconds()?;
    let columns = ["", "events/s", "CPU us per event", "p50 ms", "p99 ms"];
    let mut table = Table::new("A shared group whose members wait: publish, hand out, finish", columns);
    for engine in ["memory", "file"] {
        let rounds = runtime.block_on(compare(run, engine))?;
        for (count, rounds) in MEMBERS.iter().zip(&rounds) {
            let figure = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure));
            table.row([
                format!("{engine}, {} members", whole(*count as f64)),
                whole(figure(&|round| round.per_second)),
                fine(figure(&|round| round.cpu_micros)),
                fine(figure(&|round| millis_at(&round.waits, 0.5))),
                fine(figure(&|round| millis_at(&round.waits, 0.99))),
            ]);
        }
        let [few, many] = &rounds;
        let ratio =
            |figure: fn(&Round) -> f64| median(few.iter().zip(many).map(|(few, many)| figure(many) / figure(few)));
        let (cpu, time) = (ratio(|round| round.cpu_micros), ratio(|round| 1.0 / round.per_second));
        let name = |what: &str| format!("{engine}: {what} per event, of 1 000 members compared with 100");
        report.target(name("processor time"), "<= 1.3", fine(cpu), cpu <= RATIO_WANTED);
        report.target(name("time"), "<= 1.3", fine(time), time <= RATIO_WANTED);
    }
    table.note(format!(
        "in one process, without HTTP; at most {UNDER_WAY} events under way, so that nearly all members wait; each member \
         takes one event at a time and finishes it at once"
    ));
    table.note(format!("CPU: of the whole process, of which making an event is {} us", fine(making)));
    table.note("p50, p99: from before an event is published until a member has it");
    table.note("both groups exist at the same time and are measured in turns; figures are medians of the rounds");
    report.table(&table);
    Ok(())
}

/// The rounds of each number of members, in turns.
async fn compare(run: &Run<'_>, engine: &str) -> Outcome<[Vec<Round>; 2]> {
    let (mut crowds, mut rounds) = (Vec::new(), [Vec::new(), Vec::new()]);
    for count in MEMBERS {
        let mut crowd = Crowd::gather(run, engine, count).await?;
        crowd.round(run.count(EVENTS) / 10).await?;
        crowds.push(crowd);
    }
    for _ in 0..run.rounds() {
        for (crowd, rounds) in crowds.iter_mut().zip(&mut rounds) {
            rounds.push(crowd.round(run.count(EVENTS)).await?);
        }
    }
    for crowd in crowds {
        crowd.dismiss().await?;
    }
    Ok(rounds)
}

impl Crowd {
    async fn gather(run: &Run<'_>, engine: &str, count: usize) -> Outcome<Self> {
        let store = match engine {
            "memory" => Store::memory().await?,
            _ => Store::files(&run.place.fresh(&format!("groups-{count}"))?).await?,
        };
        let work = Arc::new(Work {
            broker: Arc::clone(&store.broker),
            places: Semaphore::new(UNDER_WAY),
            done: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            published: Mutex::default(),
            waits: Mutex::default(),
        });
        let mut members = JoinSet::new();
        for _ in 0..count {
            let member = NewConsumer::new(GROUP, events::topic()?).shared();
            let session: IsoDuration = "PT1H".parse()?;
            let member = NewConsumer { max_in_flight: Some(1), session_timeout: Some(session), ..member };
            let id = store.broker.create_consumer(member).await?.id;
            members.spawn(Arc::clone(&work).take(id));
        }
        Ok(Self { store, work, members, next: 0 })
    }

    /// Publishes so many events, and waits until all of them are finished.
    async fn round(&mut self, count: u64) -> Outcome<Round> {
        let (first, end) = (self.next, self.next + count);
        self.next = end;
        self.work.waits().clear();
        let (cpu, begun) = (usage::cpu_time(), Instant::now());
        let mut publishing = JoinSet::new();
        let numbers = Arc::new(AtomicU64::new(first));
        for _ in 0..UNDER_WAY {
            publishing.spawn(Arc::clone(&self.work).publish(Arc::clone(&numbers), end));
        }
        while let Some(published) = publishing.join_next().await {
            published??;
        }
        // All places are free again when the last event is finished.
        drop(self.work.places.acquire_many(UNDER_WAY as u32).await?);
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = usage::cpu_time().saturating_sub(cpu).as_secs_f64();
        if self.work.done.load(Ordering::Relaxed) != end {
            return Err("an event was not finished exactly once".into());
        }
        let mut waits = std::mem::take(&mut *self.work.waits());
        waits.sort_unstable();
        Ok(Round { per_second: count as f64 / seconds, cpu_micros: cpu * 1e6 / count as f64, waits })
    }

    async fn dismiss(mut self) -> Outcome {
        self.work.is_over.store(true, Ordering::Relaxed);
        self.members.shutdown().await;
        self.store.close().await;
        Ok(())
    }
}

impl Work {
    /// Takes one event after the other and finishes it.
    async fn take(self: Arc<Self>, member: Uuid) -> Outcome {
        while !self.is_over.load(Ordering::Relaxed) {
            let page = self.broker.wait_as(member, Offset::ZERO.into(), 1, WAIT).await?;
            let now = Instant::now();
            for (event, claim) in page.items.iter().zip(&page.claims) {
                let sent = self.published().remove(&event.id);
                let wait = sent.map_or(u32::MAX, |sent| u32::try_from((now - sent).as_nanos()).unwrap_or(u32::MAX));
                self.waits().push(wait);
                self.broker.complete_claim(&claim.id, Completion::of(claim.token), None).await?;
                self.done.fetch_add(1, Ordering::Relaxed);
                self.places.add_permits(1);
            }
        }
        Ok(())
    }

    async fn publish(self: Arc<Self>, numbers: Arc<AtomicU64>, end: u64) -> Outcome {
        let maker = Maker::new(Aggregates::Distinct)?;
        loop {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return Ok(());
            }
            self.places.acquire().await?.forget();
            let event = maker.event(number)?;
            self.published().insert(event.id.unwrap_or_default(), Instant::now());
            self.broker.publish(event, None).await?;
        }
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<Uuid, Instant>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
