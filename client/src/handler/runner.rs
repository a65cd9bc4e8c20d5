//! The runner: takes events in, lets each have its turn, and keeps the broker informed.
//!
//! - The loop only routes; what happens to one event is `work`'s business, whose turn it is is `lanes`'.

use super::effect::Handle;
use super::lanes::{Key, Lanes, Likeness, Waiting};
use super::options::{Division, Options, State};
use super::progress::Progress;
use super::shared::Shared;
use super::source::{Batch, Polling, Source};
use super::stopped::RunnerError;
use super::sweep::Swept;
use super::weather::{Asked, is_passing};
use super::work::{Desk, Ended};
use crate::client::Client;
use crate::stop::{First, Stop};
use contract::{Cursor, Error, EventBroker, Kind, Offset, Result as Answered, StoredEvent, TopicId, limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

/// How often the offset is committed, where no completion has done it.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Where an event waits longer than this, those behind it are not kept in memory.
const LONG: Duration = Duration::from_secs(2);
/// Work that was interrupted has this long to be handed back.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Works on the events of a topic, each once.
pub struct Runner {
    desk: Desk,
}

/// Works on the events of a topic, each once, until `stop` ends.
///
/// ```no_run
/// use contract::{Claim, StoredEvent, TopicId};
/// use event_broker_client::{Client, handler};
///
/// # async fn charge(account: &str, token: u64) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new("http://127.0.0.1:8087")?;
/// let topic = TopicId::parse("gts.hx.core.events.topic.v1~")?;
/// let billing = |event: StoredEvent, claim: Claim| async move {
///     charge(&event.event().map_err(std::io::Error::other)?.source, claim.token.get()).await
/// };
/// let stop = async { drop(tokio::signal::ctrl_c().await) };
/// handler::run(client, "billing", topic, handler::Options::default(), billing, stop).await?;
/// # Ok(())
/// # }
/// ```
pub async fn run(
    client: Client,
    name: impl Into<String>,
    topic: TopicId,
    options: Options,
    effect: impl Handle,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), RunnerError> {
    Runner::new(client, name, topic, options, effect).run(stop).await
}

impl Runner {
    /// A runner of the handler of this name.
    pub fn new(client: Client, name: impl Into<String>, topic: TopicId, options: Options, effect: impl Handle) -> Self {
        let options = Options { order: options.runner_order(), ..options };
        Self { desk: Desk::new(client, name.into(), topic, options, Arc::new(effect)) }
    }

    /// How it stands, to be looked at while it runs.
    pub fn state(&self) -> watch::Receiver<State> {
        self.desk.weather.state()
    }

    /// Works until `stop` ends, or the broker refuses for good; then it finishes what it is at.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), RunnerError> {
        let Self { desk } = self;
        let handler = desk.name.clone();
        let (client, topic) = (desk.client.clone(), desk.topic.clone());
        let source: Arc<dyn Source> = match desk.options.division {
            Division::ByClaim => Arc::new(Polling::new(client, &handler, topic, &desk.options)),
            Division::ByGroup => Arc::new(Shared::new(client, &handler, topic, &desk.options)),
        };
        let mut floor = Floor::new(Arc::new(desk), source);
        let mut stop = Stop::new(stop);
        let ended = floor.work(&mut stop).await;
        floor.drain().await;
        ended.map_err(|error| RunnerError { handler, error })
    }
}

/// What runs beside the work.
enum Chore {
    Committed,
    Swept(Swept),
    Fetched(Option<StoredEvent>),
}

/// An event that was worked on.
struct Finished {
    key: Key,
    waiting: Waiting,
    ended: Ended,
}

/// What the loop woke up for.
enum Woken {
    Worked(Box<Finished>),
    Awake(Key),
    Read(Batch),
    Chore(Chore),
    Ticked,
    Failed(Error),
}

struct Floor {
    desk: Arc<Desk>,
    source: Arc<dyn Source>,
    lanes: Lanes,
    likeness: Likeness,
    at_work: JoinSet<Box<Finished>>,
    asleep: JoinSet<Key>,
    reader: JoinSet<Error>,
    chores: JoinSet<Chore>,
    sweep_at: Instant,
    sweep_from: Option<Cursor>,
}

impl Floor {
    fn new(desk: Arc<Desk>, source: Arc<dyn Source>) -> Self {
        Self {
            desk,
            source,
            lanes: Lanes::default(),
            likeness: Likeness::Exact,
            at_work: JoinSet::new(),
            asleep: JoinSet::new(),
            reader: JoinSet::new(),
            chores: JoinSet::new(),
            sweep_at: Instant::now(),
            sweep_from: None,
        }
    }

    /// Works until the order to stop comes.
    async fn work(&mut self, stop: &mut Stop<'_>) -> Answered<()> {
        let Some(begin) = self.begin(stop).await? else { return Ok(()) };
        if !self.source.is_divided() {
            *self.desk.progress() = Progress::at(begin);
        }
        let (read, mut pages) = mpsc::channel(1);
        self.reader.spawn(read_on(Arc::clone(&self.desk), Arc::clone(&self.source), begin, read));
        let mut tick = interval(COMMIT_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_work();
            let woken = stop.or(self.woken(&mut pages, &mut tick)).await;
            match woken {
                First::Stopped => return Ok(()),
                First::Done(Woken::Worked(finished)) => self.ended(*finished)?,
                First::Done(Woken::Awake(key)) => self.lanes.wake(&key),
                First::Done(Woken::Read(batch)) => self.take_in(batch),
                First::Done(Woken::Chore(chore)) => self.chore_ended(chore),
                First::Done(Woken::Ticked) => self.chores(),
                First::Done(Woken::Failed(error)) => return Err(error),
            }
        }
    }

    /// Where to begin; `None` where the order to stop comes first.
    async fn begin(&mut self, stop: &mut Stop<'_>) -> Answered<Option<Offset>> {
        loop {
            let asking = async {
                let topic = self.desk.client.topic(&self.desk.topic).await?;
                Ok((Likeness::of(&topic.definition.aggregate_normalisation), self.source.begin().await?))
            };
            let error = match stop.or(asking).await {
                First::Stopped => return Ok(None),
                First::Done(Ok((likeness, begin))) => {
                    self.likeness = likeness;
                    self.desk.weather.fair(Asked::Reading);
                    return Ok(Some(begin));
                }
                First::Done(Err(error)) if is_passing(&error) => error,
                First::Done(Err(error)) => return Err(error),
            };
            let wait = self.desk.weather.away(&error, Asked::Reading);
            if stop.came_within(wait).await {
                return Ok(None);
            }
        }
    }

    /// The next thing that happens. Nothing is lost where this is not waited for to its end.
    async fn woken(&mut self, pages: &mut mpsc::Receiver<Batch>, tick: &mut tokio::time::Interval) -> Woken {
        let has_room = self.has_room();
        let paused = self.desk.weather.paused_until();
        tokio::select! {
            Some(worked) = self.at_work.join_next() => match worked {
                Ok(finished) => Woken::Worked(finished),
                Err(cause) => Woken::Failed(broken(cause)),
            },
            Some(Ok(key)) = self.asleep.join_next() => Woken::Awake(key),
            Some(batch) = pages.recv(), if has_room => Woken::Read(batch),
            Some(ended) = self.reader.join_next() => Woken::Failed(ended.unwrap_or_else(broken)),
            Some(Ok(chore)) = self.chores.join_next() => Woken::Chore(chore),
            () = sleep_until(paused.unwrap_or_else(Instant::now)), if paused.is_some() => Woken::Ticked,
            _ = tick.tick() => Woken::Ticked,
        }
    }

    fn has_room(&self) -> bool {
        let (texts, known) = self.lanes.sizes();
        let options = &self.desk.options;
        texts < options.window_events.max(1) && known < options.waiting_max
    }

    fn take_in(&mut self, batch: Batch) {
        let sequences = batch.arrivals.iter().map(|arrival| arrival.event.sequence);
        self.desk.progress().read(sequences, batch.next);
        for arrival in batch.arrivals {
            self.lanes.push(Key::of(&arrival.event, self.likeness), Waiting::new(arrival.event, arrival.taken));
        }
    }

    /// Begins as much as there is room for, unless the broker is away.
    fn begin_work(&mut self) {
        while self.at_work.len() < self.desk.options.parallel.max(1) && self.desk.weather.paused_until().is_none() {
            let Some((key, mut waiting)) = self.lanes.next() else { return };
            let desk = Arc::clone(&self.desk);
            self.at_work.spawn(async move {
                let ended = desk.work(&mut waiting).await;
                Box::new(Finished { key, waiting, ended })
            });
        }
    }

    fn ended(&mut self, Finished { key, waiting, ended }: Finished) -> Answered<()> {
        let (wait, is_long) = match ended {
            Ended::Settled(worked) => {
                tracing::debug!(handler = self.desk.name, sequence = waiting.sequence.get(), ?worked, "settled");
                self.desk.progress().settle(waiting.sequence);
                self.lanes.settle(&key, waiting.sequence);
                return Ok(());
            }
            Ended::Again(wait) => (wait, wait >= LONG),
            Ended::Blocked => (self.desk.options.recheck, true),
            Ended::Away(_) => {
                let until = self.desk.weather.paused_until();
                (until.map_or(Duration::ZERO, |until| until - Instant::now()), false)
            }
            Ended::Refused(error) => return Err(error),
        };
        if self.source.is_divided() {
            // It is handed out again in time, perhaps to somebody else.
            self.lanes.settle(&key, waiting.sequence);
            return Ok(());
        }
        self.lanes.put_back(&key, waiting, is_long);
        self.asleep.spawn(async move {
            tokio::time::sleep(wait).await;
            key
        });
        Ok(())
    }

    /// What is to be done now and then.
    fn chores(&mut self) {
        if !self.chores.is_empty() || self.desk.weather.paused_until().is_some() {
            return;
        }
        if let Some(offset) = self.desk.progress().to_commit() {
            let (desk, source) = (Arc::clone(&self.desk), Arc::clone(&self.source));
            self.chores.spawn(async move {
                commit(&desk, source.as_ref(), offset).await;
                Chore::Committed
            });
        }
        if Instant::now() >= self.sweep_at && !self.source.is_divided() {
            self.sweep_at = Instant::now() + self.desk.options.sweep;
            let (desk, from) = (Arc::clone(&self.desk), self.sweep_from.take());
            self.chores.spawn(async move { Chore::Swept(desk.sweep(from).await) });
        }
    }

    fn chore_ended(&mut self, chore: Chore) {
        match chore {
            Chore::Committed | Chore::Fetched(None) => (),
            Chore::Swept(Swept { sequences, next }) => {
                self.sweep_from = next;
                let room = self.desk.options.waiting_max.saturating_sub(self.lanes.sizes().1);
                for sequence in sequences.into_iter().filter(|it| !self.lanes.knows(*it)).take(room) {
                    let desk = Arc::clone(&self.desk);
                    self.chores.spawn(async move { Chore::Fetched(desk.fetch(sequence.get()).await.ok()) });
                }
            }
            Chore::Fetched(Some(event)) => self.lanes.push(Key::of(&event, self.likeness), Waiting::new(event, None)),
        }
    }

    /// Finishes what is being worked on; what takes too long is handed back.
    async fn drain(&mut self) {
        self.desk.weather.drains();
        self.reader.abort_all();
        self.chores.abort_all();
        self.finish_until(Instant::now() + self.desk.options.drain).await;
        self.desk.interrupt.send_replace(true);
        self.finish_until(Instant::now() + RELEASE_MAX).await;
        self.at_work.shutdown().await;
        let offset = self.desk.progress().to_commit();
        if let Some(offset) = offset {
            commit(&self.desk, self.source.as_ref(), offset).await;
        }
        self.source.leave().await;
    }

    async fn finish_until(&mut self, until: Instant) {
        while let Ok(Some(worked)) = timeout_at(until, self.at_work.join_next()).await {
            if let Ok(finished) = worked
                && matches!(finished.ended, Ended::Settled(_))
            {
                self.desk.progress().settle(finished.waiting.sequence);
            }
        }
    }
}

async fn commit(desk: &Desk, source: &dyn Source, offset: Offset) {
    match source.commit(offset).await {
        Ok(()) => desk.progress().committed(offset),
        Err(error) if is_passing(&error) => drop(desk.weather.away(&error, Asked::Writing)),
        Err(error) => tracing::warn!(handler = desk.name, %error, "the offset was not committed"),
    }
}

/// Reads on and on; ends where the broker refuses for good.
async fn read_on(desk: Arc<Desk>, source: Arc<dyn Source>, mut after: Offset, pages: mpsc::Sender<Batch>) -> Error {
    loop {
        // Room first: what is read is taken in.
        let Ok(room) = pages.reserve().await else { return Error::new(Kind::Unavailable, "Nobody reads on.") };
        match source.next(after, limits::READ_EVENTS_MAX).await {
            Ok(batch) => {
                desk.weather.fair(Asked::Reading);
                after = batch.next;
                room.send(batch);
            }
            Err(error) if is_passing(&error) => {
                let wait = desk.weather.away(&error, Asked::Reading);
                tokio::time::sleep(wait).await;
            }
            Err(error) => return error,
        }
    }
}

/// A task of the runner's own ended as none should.
fn broken(cause: tokio::task::JoinError) -> Error {
    Error::new(Kind::Unavailable, "A task of the runner broke off.").with_source(cause)
}
