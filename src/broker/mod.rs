//! The broker in this process: opening, closing and failing; its operations are in [`api`].

mod api;
mod declaration_check;
mod declarations;
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
use crate::events::{CallerContext, EventReader, PublishRules};
use crate::lag::LagCache;
use crate::ledger::{IncidentReporter, Ledger, ReplyRecorder};
use crate::logs::{self, LogFailure, Logs, TablesFolder};
use crate::projections::Projections;
use crate::shared_groups::SharedGroups;
use crate::subscriptions::{SecretVault, Subscriptions};
use crate::topics;
use crate::topics::{RetentionFailures, RetentionRun};
use crate::types::{TypeContext, TypeSearches};
use contract::{
    Atomicity, BatchOutcome, Error, IdentifierProfile, NewEvent, PauseDetails, ProducerId, Result, Sequence, TopicId,
    UnreadableEvent,
};
use declarations::DeclarationPolicy;
use log::file::OpenFiles;
use log::{Log, MemoryLog};
use setup::{dispatching, folder_settings, log_settings, max_clock_jump, open_files, publish_rules};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// A running broker. Share it behind an `Arc`; [`Broker::close`] shuts it down in order.
pub struct Broker {
    /// Shared with the retention task, which ends when this is dropped.
    logs: Arc<Logs>,
    policy: PublishRules,
    /// Shared with the task that removes expired consumers.
    sessions: Arc<ConsumerSessions>,
    /// Shared with the same task.
    groups: Arc<SharedGroups>,
    stale: StaleEvents,
    lag: LagCache,
    type_searches: TypeSearches,
    filter_failures: AtomicU64,
    /// Shared with the retention task.
    retention: Arc<RetentionFailures>,
    vault: Arc<SecretVault>,
    /// Shared with the workers that deliver events.
    pub(crate) dispatch: Arc<DispatchContext>,
    /// Locked as long as the tables are used.
    tables: Mutex<Option<TablesFolder>>,
    /// Failures that require the broker to be reopened.
    incidents: Arc<IncidentReporter>,
    /// Aborts the workers that deliver events.
    dispatching: Mutex<Option<AbortHandle>>,
}

impl Broker {
    /// Opens the log of the configuration, folds it, and registers what the configuration declares.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_at(config, Arc::new(SystemClock)).await
    }

    /// The same with a clock of the caller.
    pub async fn open_at(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let clock = Arc::new(TrustedClock::new(clock, max_clock_jump(&config)));
        Self::open_with_clock(config, clock, DeclarationPolicy::Required).await
    }

    /// The same with a clock that may have been used by a previous broker.
    async fn open_with_clock(
        config: Config,
        clock: Arc<TrustedClock>,
        declarations: DeclarationPolicy,
    ) -> Result<Self, OpenError> {
        match config.storage.engine {
            StorageEngine::Memory => {
                Self::start_on(config, (Arc::new(MemoryLog::new()), open_files()), None, clock, declarations).await
            }
            StorageEngine::File => {
                let (path, files) = (&config.storage.path, open_files());
                let log = logs::open_folder_apart(path.clone(), folder_settings(&config, Arc::clone(&files))).await?;
                let state = logs::state_of(path);
                Self::start_on(config, (Arc::new(log), files), Some(state), clock, declarations).await
            }
            StorageEngine::Database => Self::on_database(config, clock, declarations).await,
        }
    }

    /// A broker on the database of the configuration. Its tables are kept in a folder of its own below `storage.path`, or in
    /// memory if that is empty.
    async fn on_database(
        config: Config,
        clock: Arc<TrustedClock>,
        declarations: DeclarationPolicy,
    ) -> Result<Self, OpenError> {
        let (log, tables) = logs::open_database(&config.storage).await?;
        let state = tables.as_ref().map(|tables| tables.state());
        let broker = Self::start_on(config, (Arc::new(log), open_files()), state, clock, declarations).await?;
        Ok(Self { tables: Mutex::new(tables), ..broker })
    }

    /// A broker on an open log; its tables are kept in `state`, or in memory.
    pub async fn on_log(
        config: Config,
        log: Arc<dyn Log>,
        state: Option<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let clock = Arc::new(TrustedClock::new(clock, max_clock_jump(&config)));
        Self::start_on(config, (log, open_files()), state, clock, DeclarationPolicy::Required).await
    }

    async fn start_on(
        config: Config,
        (log, files): (Arc<dyn Log>, Arc<OpenFiles>),
        state: Option<PathBuf>,
        clock: Arc<TrustedClock>,
        declarations: DeclarationPolicy,
    ) -> Result<Self, OpenError> {
        let rows = config.maintenance.checkpoint_rows;
        let answers = config.idempotency.key_retention_millis();
        let incidents = Arc::new(IncidentReporter::default());
        // Requested before the first record is stored. If the server does not respond, the log cannot be opened anyway.
        if let Ok(Some(time)) = log.server_time().await {
            clock.note_server_time(time);
        }
        let log_clock = LogClock::new(Arc::clone(&clock));
        let ledger = Ledger::open(log, log_clock, state, rows, answers, Arc::clone(&incidents)).await?;
        let settings = log_settings(&config, Arc::clone(&incidents), files);
        let logs = Arc::new(Logs::new(ledger, Arc::clone(&clock), settings));
        let policy = publish_rules(config);
        // Logs in memory and in files belong to one process, so it knows of every poll.
        let is_alone = !logs.default_ledger().log().is_shared();
        let sessions = Arc::new(ConsumerSessions::new(is_alone));
        let vault = Arc::new(SecretVault::of(&policy.config));
        let preparing = Arc::clone(&vault);
        // A panic is in the log output, and requests that need the key are refused.
        if let Err(error) = tokio::task::spawn_blocking(move || preparing.prepare()).await {
            tracing::error!(%error, "the key of secrets was not prepared");
        }
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
        if let Err(error) = Box::pin(broker.start(declarations)).await {
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

    /// Starts the background tasks; they end when the logs close.
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

    async fn start(&self, declarations: DeclarationPolicy) -> Result<(), OpenError> {
        topics::reopen_side_logs(&self.logs).await.map_err(OpenError::SideLog)?;
        topics::finish_removals(&self.logs).await;
        topics::close_unused_logs(&self.logs).await;
        // Boxed: the future of opening is moved by many callers.
        Box::pin(self.declare(declarations)).await
    }

    /// Starts no more deliveries; [`Self::close`] waits some time for those in flight.
    pub fn stop_dispatching(&self) {
        self.dispatch.stop();
    }

    /// Finishes accepted requests, ends waiting ones, and writes checkpoints. The logs are closed with the last reference.
    pub async fn close(&self) {
        self.dispatch.stopped().await;
        self.logs.close().await;
    }

    /// Ends a failed broker completely and at once: waiting requests are refused with `cause`, deliveries are aborted, and the
    /// logs are closed even if the broker is still referenced. Then another one can be opened.
    pub async fn abandon(&self, cause: &Error) {
        self.dispatch.stop();
        let dispatching = self.dispatching.lock().unwrap_or_else(PoisonError::into_inner).take();
        dispatching.iter().for_each(AbortHandle::abort);
        self.logs.abandon(cause).await;
        drop(self.tables.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits until the broker must be reopened, and returns the reason. [`Supervisor`] does that; a program that embeds a broker
    /// calls [`Broker::abandon`] then, and opens another one.
    pub async fn failed(&self) -> Error {
        self.incidents.reported().await
    }

    /// Why it must be reopened, if it must.
    #[must_use]
    pub fn incident(&self) -> Option<Error> {
        self.incidents.first()
    }

    /// Why the default log cannot be written to, permanently or at the moment, if it cannot.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.logs.default_ledger().failure()
    }

    /// Every log that failed, the default log first. The failure of a side log stops only its own topics.
    #[must_use]
    pub fn failures(&self) -> Vec<LogFailure> {
        self.logs.failures()
    }

    /// What an operator should look at although the broker works: one sentence each.
    #[must_use]
    pub fn degradations(&self) -> Vec<String> {
        let mut degradations = self.logs.degradations();
        degradations.extend(self.retention.lines());
        degradations.extend(dispatch::pause_of(&self.logs).as_ref().map(paused_line));
        degradations.extend(self.dispatch.degradations());
        degradations
    }

    /// How often a CEL filter could not be evaluated for an event since the broker was opened.
    #[must_use]
    pub fn filter_failures(&self) -> u64 {
        self.filter_failures.load(Ordering::Relaxed)
    }

    /// Deletes handlers and groups that were unused for as long as the configuration says.
    pub async fn forget_unused(&self) -> Result<()> {
        consumers::forget_unused(&self.logs, consumers::unused_millis(self.policy.config.claims.unused_days)).await
    }

    /// Removes events past the retention of their topics now; returns how many sequences were removed. If a topic fails, the
    /// others are still processed, and the first failure is returned.
    pub async fn expire(&self) -> Result<u64> {
        let tombstones = topics::tombstones(&self.logs.default_ledger().registry());
        let default_age = self.policy.config.storage.retention_millis();
        let expiring = RetentionRun { default_age, tombstones: &tombstones, failures: &self.retention };
        self.retention.try_all();
        let mut removed = Ok(0);
        for (home, ledger) in self.logs.housed_ledgers() {
            // The failure of one log does not prevent removal in the others.
            let here = topics::expire(&ledger, home.as_ref(), &expiring).await;
            removed = removed.and_then(|before| Ok(before + here?));
        }
        removed
    }

    /// Removes a topic's events up to and including `through`; returns how many sequences were removed.
    pub async fn trim(&self, topic: &TopicId, through: Sequence) -> Result<u64> {
        self.refresh().await?;
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

    /// The maximum number of events or rows in a page.
    #[must_use]
    pub const fn limit_max(&self) -> usize {
        self.policy.config.consumer.max_limit
    }

    /// The grammar of identifiers in requests.
    #[must_use]
    pub const fn profile(&self) -> IdentifierProfile {
        self.policy.config.gts.profile
    }

    /// The ledger of the default log, for tests.
    #[cfg(test)]
    pub(crate) fn default_ledger(&self) -> &Arc<Ledger> {
        self.logs.default_ledger()
    }

    /// Reads all records that were in the default log when this was called, whichever broker wrote them.
    pub(crate) async fn refresh(&self) -> Result<()> {
        self.logs.default_ledger().refresh().await
    }

    /// The configuration in force.
    pub(crate) const fn config(&self) -> &Config {
        &self.policy.config
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

    /// Projections.
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
        let (logs, secrets) = (&self.logs, &self.policy.secrets);
        DispatchJobs { logs, reader: self.reader(), vault: &self.vault, secrets, context: &self.dispatch, by }
    }

    /// The context of a request; `caller` publishes, claims or decides.
    fn context<'a>(&'a self, caller: Option<&'a ProducerId>) -> CallerContext<'a> {
        CallerContext { logs: &self.logs, rules: &self.policy, reader: self.reader(), caller }
    }
}

/// The notice to operators while dispatch is paused.
fn paused_line(PauseDetails { since, by, .. }: &PauseDetails) -> String {
    format!(
        "Dispatch is paused since {since} (by {by}): nothing is delivered. Resume it with `POST /v1/server/dispatch:resume` \
        or `event-broker serve --resume-dispatch`."
    )
}
