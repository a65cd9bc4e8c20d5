//! The runner: reads events, starts work on them in order, and commits the offset.
//!
//! - The loop only routes: `work` handles one event, and `lanes` decides which event is next.

use super::availability::{RequestKind, is_passing};
use super::error::HandlerError;
use super::event_handler::EventHandler;
use super::lanes::{LaneKey, LaneQueue, SubjectMatching, WaitingEvent};
use super::options::{HandlerOptions, RunnerState, WorkDivision};
use super::progress::OffsetProgress;
use super::shared_group_source::SharedGroupSource;
use super::source::{EventBatch, EventSource, PollingSource};
use super::sweep::SweepResult;
use super::work::{WorkEnd, WorkerContext};
use crate::client::Client;
use crate::stop::{StopSignal, UntilStopped};
use contract::api::*;
use contract::{Cursor, Error, Kind, Offset, Result as Answered, StoredEvent, TopicId, limits};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

/// The interval between commits of the offset, if no completion has committed it.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// If an event waits longer than this, the events behind it in its lane are not kept in memory.
const LONG: Duration = Duration::from_secs(2);
/// How long releasing the claims of interrupted work may take.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Works on the events of a topic, each once.
pub struct HandlerRunner {
    context: WorkerContext,
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
/// handler::run(client, "billing", topic, handler::HandlerOptions::default(), billing, stop).await?;
/// # Ok(())
/// # }
/// ```
pub async fn run(
    client: Client,
    name: impl Into<String>,
    topic: TopicId,
    options: HandlerOptions,
    effect: impl EventHandler,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), HandlerError> {
    HandlerRunner::new(client, name, topic, options, effect).run(stop).await
}

impl HandlerRunner {
    /// A runner of the handler with this name.
    pub fn new(
        client: Client,
        name: impl Into<String>,
        topic: TopicId,
        options: HandlerOptions,
        effect: impl EventHandler,
    ) -> Self {
        let options = HandlerOptions { order: options.runner_order(), ..options };
        Self { context: WorkerContext::new(client, name.into(), topic, options, Arc::new(effect)) }
    }

    /// The state, to be observed while it runs.
    pub fn state(&self) -> watch::Receiver<RunnerState> {
        self.context.availability.state()
    }

    /// Works until `stop` ends or the broker refuses for good; then it finishes the work in flight.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), HandlerError> {
        let Self { context } = self;
        let handler = context.name.clone();
        let (client, topic) = (context.client.clone(), context.topic.clone());
        let source: Arc<dyn EventSource> = match context.options.division {
            WorkDivision::ByClaim => Arc::new(PollingSource::new(client, &handler, topic, &context.options)),
            WorkDivision::ByGroup => Arc::new(SharedGroupSource::new(client, &handler, topic, &context.options)),
        };
        let mut run_loop = RunLoop::new(Arc::new(context), source);
        let mut stop = StopSignal::new(stop);
        let ended = run_loop.work(&mut stop).await;
        run_loop.drain().await;
        ended.map_err(|error| HandlerError { handler, error })
    }
}

/// A result of a background task.
enum ChoreResult {
    Committed,
    Swept(SweepResult),
    Fetched(Option<StoredEvent>),
}

/// The result of work on an event.
struct FinishedWork {
    key: LaneKey,
    waiting: WaitingEvent,
    ended: WorkEnd,
}

/// What the loop handles next.
enum RunnerEvent {
    Worked(Box<FinishedWork>),
    Awake(LaneKey),
    Read(EventBatch),
    Chore(ChoreResult),
    Ticked,
    Failed(Error),
}

struct RunLoop {
    context: Arc<WorkerContext>,
    source: Arc<dyn EventSource>,
    lanes: LaneQueue,
    matching: SubjectMatching,
    at_work: JoinSet<Box<FinishedWork>>,
    asleep: JoinSet<LaneKey>,
    reader: JoinSet<Error>,
    chores: JoinSet<ChoreResult>,
    sweep_at: Instant,
    sweep_from: Option<Cursor>,
}

impl RunLoop {
    fn new(context: Arc<WorkerContext>, source: Arc<dyn EventSource>) -> Self {
        Self {
            context,
            source,
            lanes: LaneQueue::default(),
            matching: SubjectMatching::Exact,
            at_work: JoinSet::new(),
            asleep: JoinSet::new(),
            reader: JoinSet::new(),
            chores: JoinSet::new(),
            sweep_at: Instant::now(),
            sweep_from: None,
        }
    }

    /// Works until the stop signal.
    async fn work(&mut self, stop: &mut StopSignal<'_>) -> Answered<()> {
        let Some(begin) = self.begin(stop).await? else { return Ok(()) };
        if !self.source.is_divided() {
            *self.context.progress() = OffsetProgress::at(begin);
        }
        let (read, mut pages) = mpsc::channel(1);
        self.reader.spawn(read_on(Arc::clone(&self.context), Arc::clone(&self.source), begin, read));
        let mut tick = interval(COMMIT_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_work();
            let woken = stop.unless_stopped(self.next_event(&mut pages, &mut tick)).await;
            match woken {
                UntilStopped::Stopped => return Ok(()),
                UntilStopped::Done(RunnerEvent::Worked(finished)) => self.work_ended(*finished)?,
                UntilStopped::Done(RunnerEvent::Awake(key)) => self.lanes.wake(&key),
                UntilStopped::Done(RunnerEvent::Read(batch)) => self.enqueue_batch(batch),
                UntilStopped::Done(RunnerEvent::Chore(chore)) => self.chore_ended(chore),
                UntilStopped::Done(RunnerEvent::Ticked) => self.chores(),
                UntilStopped::Done(RunnerEvent::Failed(error)) => return Err(error),
            }
        }
    }

    /// The offset to start after; `None` if the stop signal comes first.
    async fn begin(&mut self, stop: &mut StopSignal<'_>) -> Answered<Option<Offset>> {
        loop {
            let start = async {
                let topic = self.context.client.topic(&self.context.topic).await?;
                Ok((SubjectMatching::of(&topic.definition.aggregate_normalisation), self.source.begin().await?))
            };
            let error = match stop.unless_stopped(start).await {
                UntilStopped::Stopped => return Ok(None),
                UntilStopped::Done(Ok((matching, begin))) => {
                    self.matching = matching;
                    self.context.availability.mark_up(RequestKind::Reading);
                    return Ok(Some(begin));
                }
                UntilStopped::Done(Err(error)) if is_passing(&error) => error,
                UntilStopped::Done(Err(error)) => return Err(error),
            };
            let wait = self.context.availability.mark_down(&error, RequestKind::Reading);
            if stop.stopped_within(wait).await {
                return Ok(None);
            }
        }
    }

    /// The next event of the loop. Cancel safe: nothing is lost if the future is dropped.
    async fn next_event(
        &mut self,
        pages: &mut mpsc::Receiver<EventBatch>,
        tick: &mut tokio::time::Interval,
    ) -> RunnerEvent {
        let has_room = self.has_room();
        let paused = self.context.availability.paused_until();
        tokio::select! {
            Some(worked) = self.at_work.join_next() => match worked {
                Ok(finished) => RunnerEvent::Worked(finished),
                Err(cause) => RunnerEvent::Failed(task_failed(cause)),
            },
            Some(Ok(key)) = self.asleep.join_next() => RunnerEvent::Awake(key),
            Some(batch) = pages.recv(), if has_room => RunnerEvent::Read(batch),
            Some(ended) = self.reader.join_next() => RunnerEvent::Failed(ended.unwrap_or_else(task_failed)),
            Some(Ok(chore)) = self.chores.join_next() => RunnerEvent::Chore(chore),
            () = sleep_until(paused.unwrap_or_else(Instant::now)), if paused.is_some() => RunnerEvent::Ticked,
            _ = tick.tick() => RunnerEvent::Ticked,
        }
    }

    fn has_room(&self) -> bool {
        let (texts, known) = self.lanes.sizes();
        let options = &self.context.options;
        texts < options.window_events.max(1) && known < options.waiting_max
    }

    fn enqueue_batch(&mut self, batch: EventBatch) {
        let sequences = batch.arrivals.iter().map(|arrival| arrival.event.sequence);
        self.context.progress().read(sequences, batch.next);
        for arrival in batch.arrivals {
            self.lanes
                .push(LaneKey::of(&arrival.event, self.matching), WaitingEvent::new(arrival.event, arrival.held_claim));
        }
    }

    /// Starts as much work as is allowed, unless the broker is unavailable.
    fn begin_work(&mut self) {
        while self.at_work.len() < self.context.options.parallel.max(1)
            && self.context.availability.paused_until().is_none()
        {
            let Some((key, mut waiting)) = self.lanes.next() else { return };
            let context = Arc::clone(&self.context);
            self.at_work.spawn(async move {
                let ended = context.work(&mut waiting).await;
                Box::new(FinishedWork { key, waiting, ended })
            });
        }
    }

    fn work_ended(&mut self, FinishedWork { key, waiting, ended }: FinishedWork) -> Answered<()> {
        let (wait, is_long) = match ended {
            WorkEnd::Settled(outcome) => {
                tracing::debug!(handler = self.context.name, sequence = waiting.sequence.get(), ?outcome, "settled");
                self.context.progress().settle(waiting.sequence);
                self.lanes.settle(&key, waiting.sequence);
                return Ok(());
            }
            WorkEnd::Again(wait) => (wait, wait >= LONG),
            WorkEnd::Blocked => (self.context.options.recheck, true),
            WorkEnd::Unavailable(_) => {
                let until = self.context.availability.paused_until();
                (until.map_or(Duration::ZERO, |until| until - Instant::now()), false)
            }
            WorkEnd::Refused(error) => return Err(error),
        };
        if self.source.is_divided() {
            // The group assigns it again, perhaps to another member.
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

    /// Starts background tasks that are due.
    fn chores(&mut self) {
        if !self.chores.is_empty() || self.context.availability.paused_until().is_some() {
            return;
        }
        if let Some(offset) = self.context.progress().to_commit() {
            let (context, source) = (Arc::clone(&self.context), Arc::clone(&self.source));
            self.chores.spawn(async move {
                commit(&context, source.as_ref(), offset).await;
                ChoreResult::Committed
            });
        }
        if Instant::now() >= self.sweep_at && !self.source.is_divided() {
            self.sweep_at = Instant::now() + self.context.options.sweep;
            let (context, from) = (Arc::clone(&self.context), self.sweep_from.take());
            self.chores.spawn(async move { ChoreResult::Swept(context.sweep(from).await) });
        }
    }

    fn chore_ended(&mut self, chore: ChoreResult) {
        match chore {
            ChoreResult::Committed | ChoreResult::Fetched(None) => (),
            ChoreResult::Swept(SweepResult { sequences, next }) => {
                self.sweep_from = next;
                let room = self.context.options.waiting_max.saturating_sub(self.lanes.sizes().1);
                for sequence in sequences.into_iter().filter(|it| !self.lanes.knows(*it)).take(room) {
                    let context = Arc::clone(&self.context);
                    self.chores.spawn(async move { ChoreResult::Fetched(context.fetch(sequence.get()).await.ok()) });
                }
            }
            ChoreResult::Fetched(Some(event)) => {
                self.lanes.push(LaneKey::of(&event, self.matching), WaitingEvent::new(event, None));
            }
        }
    }

    /// Finishes the work in flight; work that takes too long is cancelled and its claim released.
    async fn drain(&mut self) {
        self.context.availability.mark_draining();
        self.reader.abort_all();
        self.chores.abort_all();
        self.finish_until(Instant::now() + self.context.options.drain).await;
        self.context.interrupt.send_replace(true);
        self.finish_until(Instant::now() + RELEASE_MAX).await;
        self.at_work.shutdown().await;
        let offset = self.context.progress().to_commit();
        if let Some(offset) = offset {
            commit(&self.context, self.source.as_ref(), offset).await;
        }
        self.source.leave().await;
    }

    async fn finish_until(&mut self, until: Instant) {
        while let Ok(Some(worked)) = timeout_at(until, self.at_work.join_next()).await {
            if let Ok(finished) = worked
                && matches!(finished.ended, WorkEnd::Settled(_))
            {
                self.context.progress().settle(finished.waiting.sequence);
            }
        }
    }
}

async fn commit(context: &WorkerContext, source: &dyn EventSource, offset: Offset) {
    match source.commit(offset).await {
        Ok(()) => context.progress().committed(offset),
        Err(error) if is_passing(&error) => drop(context.availability.mark_down(&error, RequestKind::Writing)),
        Err(error) => tracing::warn!(handler = context.name, %error, "the offset was not committed"),
    }
}

/// Reads pages until the broker refuses for good.
async fn read_on(
    context: Arc<WorkerContext>,
    source: Arc<dyn EventSource>,
    mut after: Offset,
    pages: mpsc::Sender<EventBatch>,
) -> Error {
    loop {
        // Room is reserved first, so that every page that was read is taken.
        let Ok(room) = pages.reserve().await else { return Error::new(Kind::Unavailable, "The runner has ended.") };
        match source.next(after, limits::READ_EVENTS_MAX).await {
            Ok(batch) => {
                context.availability.mark_up(RequestKind::Reading);
                after = batch.next;
                room.send(batch);
            }
            Err(error) if is_passing(&error) => {
                let wait = context.availability.mark_down(&error, RequestKind::Reading);
                tokio::time::sleep(wait).await;
            }
            Err(error) => match error.resume_offset().filter(|resume| *resume > after) {
                Some(resume) => {
                    let (handler, after_offset) = (&context.name, after.get());
                    let resume_offset = resume.get();
                    tracing::warn!(
                        handler,
                        after_offset,
                        resume_offset,
                        "retention removed events before this handler read them: it continues with the next stored event"
                    );
                    after = resume;
                }
                None => return error,
            },
        }
    }
}

/// A task of the runner panicked or was cancelled.
fn task_failed(cause: tokio::task::JoinError) -> Error {
    Error::new(Kind::Unavailable, "A task of the runner broke off.").with_source(cause)
}
