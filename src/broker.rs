//! The broker in process: one door to topics, types and events, over its logs.

mod api;
mod declaration_check;
#[cfg(test)]
mod deletion_tests;
mod open_error;
#[cfg(test)]
mod reclaim_tests;
mod reclaiming;
mod setup;
mod slot;
mod supervisor;

pub(crate) use api::BrokerWrites;
pub use declaration_check::check_declared;
pub use open_error::OpenError;
pub use slot::{BrokerOutage, BrokerSlot, SlotState};
pub use supervisor::{BrokerOpener, Supervisor, opener};

use crate::claims::{ClaimDefaults, Claims, StaleEvents};
use crate::clock::{Clock, LogClock, SystemClock, TrustedClock};
use crate::config::{Config, StorageEngine};
use crate::consumers::{self, ConsumerSessions, Consumers};
use crate::dead_letters::DeadLetters;
use crate::dispatch::{self, DispatchContext, DispatchJobs};
use crate::events::{CallerContext, CopyLock, EventReader, PublishRules};
use crate::lag::LagCache;
use crate::ledger::{IncidentReporter, Ledger, ReplyRecorder};
use crate::logs::{self, LogFailure, Logs, TablesFolder};
use crate::projections::Projections;
use crate::shared_groups::SharedGroups;
use crate::subscriptions::{SecretVault, Subscriptions};
use crate::topics::{RetentionFailures, RetentionRun};
use crate::types::{SchemaCompiler, TypeContext, TypeSearches};
use crate::{topics, types};
use contract::{
    Atomicity, BatchOutcome, Error, IdentifierProfile, NewEvent, NewTopic, PauseDetails, ProducerId, Result, Sequence,
    TopicChange, TopicId, UnreadableEvent,
};
use log::file::OpenFiles;
use log::{Log, MemoryLog};
use setup::{dispatching, folder_settings, log_settings, max_clock_jump, open_files};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// A running broker. Cheap to share behind an `Arc`; [`Broker::close`] ends it in good order.
pub struct Broker {
    /// Shared with the retention chore, which ends when this is gone.
    logs: Arc<Logs>,
    policy: PublishRules,
    /// Shared with the chore that clears away expired consumers.
    sessions: Arc<ConsumerSessions>,
    /// Shared with the same chore.
    groups: Arc<SharedGroups>,
    stale: StaleEvents,
    lag: LagCache,
    type_searches: TypeSearches,
    filter_failures: AtomicU64,
    /// Shared with the retention chore.
    retention: Arc<RetentionFailures>,
    vault: Arc<SecretVault>,
    /// Shared with the workers that push events.
    pub(crate) dispatch: Arc<DispatchContext>,
    /// Held as long as the tables are used.
    tables: Mutex<Option<TablesFolder>>,
    /// What cannot be cured but by opening it again.
    incidents: Arc<IncidentReporter>,
    /// Ends the workers that push events at once.
    dispatching: Mutex<Option<AbortHandle>>,
}

impl Broker {
    /// Opens the log the configuration names, folds it, and registers what the configuration declares.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_at(config, Arc::new(SystemClock)).await
    }

    /// The same with a clock of the caller's.
    pub async fn open_at(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let clock = Arc::new(TrustedClock::new(clock, max_clock_jump(&config)));
        Self::open_with_clock(config, clock).await
    }

    /// The same with a clock that a broker before this one may have had.
    async fn open_with_clock(config: Config, clock: Arc<TrustedClock>) -> Result<Self, OpenError> {
        match config.storage.engine {
            StorageEngine::Memory => {
                Self::start_on(config, (Arc::new(MemoryLog::new()), open_files()), None, clock).await
            }
            StorageEngine::File => {
                let (path, files) = (&config.storage.path, open_files());
                let log = logs::open_folder_apart(path.clone(), folder_settings(&config, Arc::clone(&files))).await?;
                let state = logs::state_of(path);
                Self::start_on(config, (Arc::new(log), files), Some(state), clock).await
            }
            StorageEngine::Database => Self::on_database(config, clock).await,
        }
    }

    /// A broker on the database the configuration names. Its tables lie in a folder of its own below `storage.path`, or
    /// in memory where that is empty.
    async fn on_database(config: Config, clock: Arc<TrustedClock>) -> Result<Self, OpenError> {
        let (log, tables) = logs::open_database(&config.storage).await?;
        let state = tables.as_ref().map(|tables| tables.state());
        let broker = Self::start_on(config, (Arc::new(log), open_files()), state, clock).await?;
        Ok(Self { tables: Mutex::new(tables), ..broker })
    }

    /// A broker on a log that is open already; its tables go to `state`, or stay in memory.
    pub async fn on_log(
        config: Config,
        log: Arc<dyn Log>,
        state: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(TrustedClock::new(clock, max_clock_jump(&config)));
        Self::start_on(config, (log, open_files()), state, clock).await
    }

    async fn start_on(
        config: Config,
        (log, files): (Arc<dyn Log>, Arc<OpenFiles>),
        state: Option<PathBuf>,
        clock: Arc<TrustedClock>,
    ) -> Result<Self, OpenError> {
        let rows = config.maintenance.checkpoint_rows;
        let answers = config.idempotency.key_retention_millis();
        let incidents = Arc::new(IncidentReporter::default());
        // Asked before the first record is stored. A server that does not answer keeps the log from being opened anyway.
        if let Ok(Some(time)) = log.server_time().await {
            clock.note_server_time(time);
        }
        let log_clock = LogClock::new(Arc::clone(&clock));
        let ledger = Ledger::open(log, log_clock, state, rows, answers, Arc::clone(&incidents)).await?;
        let settings = log_settings(&config, Arc::clone(&incidents), files);
        let logs = Arc::new(Logs::new(ledger, Arc::clone(&clock), settings));
        let policy = PublishRules { config, schemas: SchemaCompiler::default(), import_copies: CopyLock::default() };
        // Memory and files belong to one process, so it knows of every poll.
        let is_alone = !logs.default_ledger().log().is_shared();
        let sessions = Arc::new(ConsumerSessions::new(is_alone));
        let vault = Arc::new(SecretVault::of(&policy.config));
        let preparing = Arc::clone(&vault);
        // If it panics, it has said so, and whoever needs the key is told.
        let _ = tokio::task::spawn_blocking(move || preparing.prepare()).await;
        let dispatch = Arc::new(dispatching(&policy.config, &logs, clock.unfiltered(), &vault)?);
        let (groups, filter_failures, retention) = (Arc::default(), AtomicU64::new(0), Arc::default());
        let (stale, lag) = (StaleEvents::default(), LagCache::default());
        let (tables, dispatching) = (Mutex::default(), Mutex::default());
        let broker = Self {
            logs,
            policy,
            sessions,
            groups,
            stale,
            lag,
            type_searches: TypeSearches::default(),
            filter_failures,
            retention,
            vault,
            dispatch,
            tables,
            incidents,
            dispatching,
        };
        if let Err(error) = broker.start().await {
            broker.close().await;
            return Err(error);
        }
        broker.start_chores();
        let registry = broker.logs.default_ledger().registry();
        tracing::info!(
            position = broker.logs.default_ledger().position().borrow().get(),
            topics = registry.definitions().count(),
            event_types = registry.event_type_count(),
            "the log is open"
        );
        if let Some(pause) = dispatch::pause_of(&broker.logs) {
            tracing::warn!("{}", paused_line(&pause));
        }
        Ok(broker)
    }

    /// Starts what is done now and then; it ends when the logs close.
    fn start_chores(&self) {
        let config = &self.policy.config;
        let every = Duration::from_secs(config.maintenance.retention_check_secs);
        let (failures, age) = (Arc::clone(&self.retention), config.storage.retention_millis());
        let expiring = topics::run_retention(Arc::downgrade(&self.logs), failures, every, age);
        self.incidents.spawn("retention", expiring);
        let reclaiming = logs::run_reclaiming(Arc::downgrade(&self.logs), every, self.reclaim_policy());
        self.incidents.spawn("reclaiming", reclaiming);
        let (logs, sessions, groups) =
            (Arc::downgrade(&self.logs), Arc::clone(&self.sessions), Arc::clone(&self.groups));
        let unused = consumers::unused_millis(config.claims.unused_days);
        self.incidents.spawn("consumers", consumers::run_consumer_expiry(logs, sessions, groups, every, unused));
        if config.dispatch.enabled {
            let (logs, context) = (Arc::downgrade(&self.logs), Arc::clone(&self.dispatch));
            let started = dispatch::start(logs, context, &self.incidents);
            *self.dispatching.lock().unwrap_or_else(PoisonError::into_inner) = Some(started.abort_handle());
        }
    }

    async fn start(&self) -> Result<(), OpenError> {
        topics::reopen_side_logs(&self.logs).await.map_err(OpenError::SideLog)?;
        topics::finish_removals(&self.logs).await;
        self.declare().await
    }

    /// Begins no more deliveries; [`Self::close`] waits a while for those under way.
    pub fn stop_dispatching(&self) {
        self.dispatch.stop();
    }

    /// Answers what was accepted, ends what waits, and leaves checkpoints. The logs are let go with the last handle.
    pub async fn close(&self) {
        self.dispatch.stopped().await;
        self.logs.close().await;
    }

    /// Ends a broker that failed, as a whole and at once: whoever waits is refused with `cause`, deliveries are cut off,
    /// and the logs are let go, whoever still holds this broker. Then another one can be opened.
    pub async fn abandon(&self, cause: &Error) {
        self.dispatch.stop();
        let dispatching = self.dispatching.lock().unwrap_or_else(PoisonError::into_inner).take();
        dispatching.iter().for_each(AbortHandle::abort);
        self.logs.abandon(cause).await;
        drop(self.tables.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits until the broker must be opened again, and answers why. [`Supervisor`] does that; a program with a broker of
    /// its own calls [`Broker::abandon`] then, and opens another one.
    pub async fn failed(&self) -> Error {
        self.incidents.reported().await
    }

    /// Why it must be opened again, if so.
    #[must_use]
    pub fn incident(&self) -> Option<Error> {
        self.incidents.first()
    }

    /// Why nothing is promised any more, or for the moment, if so: the default log cannot be written to.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.logs.default_ledger().failure()
    }

    /// Every log that failed, the default one first. A side log's failure stops its own topics alone.
    #[must_use]
    pub fn failures(&self) -> Vec<LogFailure> {
        self.logs.failures()
    }

    /// What an operator should look at though the broker works: one sentence each.
    #[must_use]
    pub fn degradations(&self) -> Vec<String> {
        let mut degradations = self.logs.degradations();
        degradations.extend(self.retention.lines());
        degradations.extend(dispatch::pause_of(&self.logs).as_ref().map(paused_line));
        degradations.extend(self.dispatch.degradations());
        degradations
    }

    /// How often a CEL filter had no answer for an event since the broker was opened.
    #[must_use]
    pub fn filter_failures(&self) -> u64 {
        self.filter_failures.load(Ordering::Relaxed)
    }

    /// Forgets handlers and groups now that were not used for as long as the configuration says.
    pub async fn forget_unused(&self) -> Result<()> {
        consumers::forget_unused(&self.logs, consumers::unused_millis(self.policy.config.claims.unused_days)).await
    }

    /// Removes what is past its topic's retention now; answers how many sequences went. Where a topic fails the others are
    /// still looked at, and the first failure is answered.
    pub async fn expire(&self) -> Result<u64> {
        let tombstones = topics::tombstones(&self.logs.default_ledger().registry());
        let default_age = self.policy.config.storage.retention_millis();
        let expiring = RetentionRun { default_age, tombstones: &tombstones, failures: &self.retention };
        self.retention.try_all();
        let mut removed = Ok(0);
        for (home, ledger) in self.logs.housed_ledgers() {
            // One log's failure keeps no other from letting go.
            let here = topics::expire(&ledger, home.as_ref(), &expiring).await;
            removed = removed.and_then(|before| Ok(before + here?));
        }
        removed
    }

    /// Removes a topic's events up to and including `through`; answers how many sequences went.
    pub async fn trim(&self, topic: &TopicId, through: Sequence) -> Result<u64> {
        let found = self.logs.find(topic)?;
        topics::trim(self.logs.ledger(&found.log), &found.topic, through).await
    }

    /// Where event types are registered.
    pub(crate) fn type_context(&self) -> TypeContext<'_> {
        TypeContext { ledger: self.logs.default_ledger(), schemas: &self.policy.schemas }
    }

    /// Publishes a batch in which some events could not be read. Those are refused in their places, and count as refused
    /// events of their topics.
    pub async fn publish_submitted(
        &self,
        events: Vec<Result<NewEvent, UnreadableEvent>>,
        atomicity: Atomicity,
        producer: Option<&ProducerId>,
    ) -> Result<BatchOutcome> {
        self.context(producer).publish_batch(events, atomicity, ReplyRecorder::disabled()).await
    }

    /// Stores lines of an import, each independently of the others; the limits of batches do not apply.
    pub(crate) async fn import(&self, events: Vec<Result<NewEvent, UnreadableEvent>>) -> Result<BatchOutcome> {
        self.context(None).import(events).await
    }

    /// Most events and rows in one answer.
    #[must_use]
    pub const fn limit_max(&self) -> usize {
        self.policy.config.consumer.max_limit
    }

    /// What identifiers are held to that somebody sends.
    #[must_use]
    pub const fn profile(&self) -> IdentifierProfile {
        self.policy.config.gts.profile
    }

    /// The default log's ledger, for tests that look inside.
    #[cfg(test)]
    pub(crate) fn default_ledger(&self) -> &Arc<Ledger> {
        self.logs.default_ledger()
    }

    /// Knows everything that was in the logs when this was asked, whoever wrote it.
    pub(crate) async fn refresh(&self) -> Result<()> {
        self.logs.default_ledger().refresh().await
    }

    /// What is in force.
    pub(crate) const fn config(&self) -> &Config {
        &self.policy.config
    }

    /// Registers what the configuration declares. A declared topic that exists is changed to what is declared, where
    /// that may change.
    async fn declare(&self) -> Result<(), OpenError> {
        let config = &self.policy.config;
        for (index, topic) in config.topics.iter().enumerate() {
            self.declare_topic(topic).await.map_err(|error| OpenError::declared(format!("topics[{index}]"), error))?;
        }
        if let Some(id) = &config.default_topic
            && self.logs.default_ledger().registry().definition(id).is_none()
        {
            let registered = topics::register(&self.logs, NewTopic::new(id.clone()), ReplyRecorder::disabled()).await;
            registered.map_err(|error| OpenError::declared("default_topic".to_owned(), error))?;
        }
        for (index, event_type) in config.event_types.iter().enumerate() {
            let declared = types::declare(self.type_context(), event_type.clone()).await;
            declared.map_err(|error| OpenError::declared(format!("event_types[{index}]"), error))?;
        }
        Ok(())
    }

    async fn declare_topic(&self, declared: &NewTopic) -> Result<()> {
        if self.logs.default_ledger().registry().definition(&declared.id).is_some() {
            let NewTopic { description, retention, idempotent_retention, on_payload_mismatch, .. } = declared.clone();
            let change = TopicChange { description, retention, idempotent_retention, on_payload_mismatch };
            topics::change(&self.logs, &declared.id, change, ReplyRecorder::disabled()).await?;
        }
        topics::register(&self.logs, declared.clone(), ReplyRecorder::disabled()).await?;
        Ok(())
    }

    fn reader(&self) -> EventReader<'_> {
        let config = &self.policy.config;
        EventReader {
            logs: &self.logs,
            limit_max: config.consumer.max_limit,
            wait_max: Duration::from_secs(config.polling.max_timeout_secs),
            filter_failures: &self.filter_failures,
        }
    }

    fn consumers(&self) -> Consumers<'_> {
        let default_session = self.policy.config.consumer.session_timeout_secs;
        let terms = ClaimDefaults::of(&self.policy.config.claims);
        Consumers {
            context: self.context(None),
            sessions: &self.sessions,
            default_session,
            groups: &self.groups,
            terms,
            lag: &self.lag,
        }
    }

    /// Projections, and waiting for them.
    pub(crate) fn projections(&self) -> Projections<'_> {
        Projections { context: self.context(None) }
    }

    fn claims<'a>(&'a self, producer: Option<&'a ProducerId>) -> Claims<'a> {
        Claims { context: self.context(producer), stale: &self.stale, lag: &self.lag }
    }

    fn letters<'a>(&'a self, by: Option<&'a ProducerId>) -> DeadLetters<'a> {
        DeadLetters { context: self.context(by) }
    }

    /// Subscriptions and pools, on behalf of `by`.
    pub(crate) fn subscriptions<'a>(&'a self, by: Option<&'a ProducerId>) -> Subscriptions<'a> {
        Subscriptions {
            context: self.context(by),
            vault: &self.vault,
            deliver: self.dispatch.deliver.as_ref(),
            breakers: &self.dispatch.breakers,
            owner: self.dispatch.owner,
            counted_max: crate::subscriptions::COUNTED_MAX,
        }
    }

    /// Dispatch jobs, on behalf of `by`.
    pub(crate) fn jobs<'a>(&'a self, by: Option<&'a ProducerId>) -> DispatchJobs<'a> {
        DispatchJobs { logs: &self.logs, reader: self.reader(), vault: &self.vault, context: &self.dispatch, by }
    }

    /// The context of a request; `caller` publishes, claims or decides.
    fn context<'a>(&'a self, caller: Option<&'a ProducerId>) -> CallerContext<'a> {
        CallerContext { logs: &self.logs, rules: &self.policy, reader: self.reader(), caller }
    }
}

/// What an operator is told while dispatch is paused.
fn paused_line(PauseDetails { since, by, .. }: &PauseDetails) -> String {
    format!(
        "Dispatch is paused since {since} (by {by}): nothing is delivered. Resume it with `POST /v1/server/dispatch:resume` \
        or `event-broker serve --resume-dispatch`."
    )
}
