//! The broker's logs: the default one, and side logs that topics asked for.
//!
//! - A topic is in exactly one log, with everything that belongs to it. Positions are per log.
//! - The default log holds all topics, their definitions and their logs; a side log numbers its own
//!   topics and keeps a copy of their definitions for its decisions.
//! - Finding a topic of the default log needs no lock and no allocation.
//! - A side log that fails affects only its own topics.
//!
//! Placing a topic in a side log is done by `topics`.

mod chore;
mod data_folder;
mod database;
mod location;
mod salvage;

pub(crate) use chore::{run_periodically, run_reclaiming};
pub(crate) use data_folder::{FolderSettings, open_folder_apart};
pub use data_folder::{STATE_FOLDER, acknowledged_state, open_folder, pending_repair};
pub(crate) use data_folder::{repair_advice, state_of};
pub(crate) use database::{TablesFolder, open_database};
pub(crate) use location::LogRoots;
pub use salvage::{RepairLosses, SalvageReport, salvage};

use crate::clock::{LogClock, TrustedClock};
use crate::ledger::{IncidentReporter, Ledger, LogLocation, PlacedTopic, RegisteredTopic, Registry};
use contract::{Error, Kind, Result, Sequence, StreamingSetting, TopicId, Violation, limits};
use futures_util::future::join_all;
use location::ResolvedLocation;
use log::file::LOG_FOLDER;
use log::{Log, LogError, MemoryLog, TopicNumber};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Mutex, MutexGuard, RwLock as RwNames};

/// The name of the default log.
const DEFAULT: &str = "default";

/// All logs of one broker.
pub(crate) struct Logs {
    default: Arc<Ledger>,
    clock: Arc<TrustedClock>,
    settings: LogSettings,
    sides: RwLock<BTreeMap<LogLocation, Arc<SideLog>>>,
    /// Held while one topic is written to two logs. Rare, and nothing else waits for it.
    placing: Mutex<()>,
    /// Held while a name that is unique over all logs is taken or released. See [`Logs::names`].
    names: RwNames<()>,
}

/// The settings of the logs.
pub(crate) struct LogSettings {
    /// `memory`, `file`, …
    pub(crate) default_type: &'static str,
    pub(crate) roots: LogRoots,
    /// The settings of logs in folders.
    pub(crate) folders: FolderSettings,
    /// Whether a new topic may begin another log outside of the folders that the configuration lists.
    pub(crate) side_logs: bool,
    /// How many logs in folders the limit of open files allows when a new one is begun.
    pub(crate) side_folders_max: usize,
    pub(crate) checkpoint_rows: usize,
    /// How long stored replies are remembered, in milliseconds.
    pub(crate) answers_millis: i64,
    /// Receives failures that only reopening can repair.
    pub(crate) incidents: Arc<IncidentReporter>,
}

/// A log beside the default one.
pub(crate) struct SideLog {
    pub(crate) location: LogLocation,
    pub(crate) ledger: Arc<Ledger>,
    folder: Option<PathBuf>,
}

impl SideLog {
    /// Whether it is in files.
    pub(crate) const fn is_in_files(&self) -> bool {
        self.folder.is_some()
    }
}

/// One of the broker's logs.
#[derive(Clone)]
pub(crate) enum LogRef {
    Default,
    Side(Arc<SideLog>),
}

/// A topic and its log.
#[derive(Clone)]
pub(crate) struct LocatedTopic {
    pub(crate) log: LogRef,
    pub(crate) topic: Arc<RegisteredTopic>,
}

/// A log that has failed, or did not open.
#[derive(Debug, Clone)]
pub struct LogFailure {
    /// The log: `default`, or its location.
    pub log: String,
    /// The failure.
    pub error: Error,
}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log {}: {}", self.log, self.error.detail())?;
        for violation in self.error.violations() {
            write!(f, " {}.", violation.detail)?;
        }
        match std::error::Error::source(&self.error) {
            Some(cause) => write!(f, " ({cause})")?,
            None => return Ok(()),
        }
        match std::error::Error::source(&self.error).and_then(|cause| cause.downcast_ref()) {
            Some(LogError::Damaged(damage)) => write!(f, "\n{}", repair_advice(&damage.file)),
            _ => Ok(()),
        }
    }
}

impl PartialEq for LogRef {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Default, Self::Default) => true,
            (Self::Side(one), Self::Side(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Logs {
    /// A broker's logs, with the default one open and no other.
    pub(crate) fn new(default: Ledger, clock: Arc<TrustedClock>, settings: LogSettings) -> Self {
        Self {
            default: Arc::new(default),
            clock,
            settings,
            sides: RwLock::default(),
            placing: Mutex::default(),
            names: RwNames::default(),
        }
    }

    /// The default log's ledger: it holds all topics and all types.
    pub(crate) fn default_ledger(&self) -> &Arc<Ledger> {
        &self.default
    }

    /// The ledger of a log.
    pub(crate) fn ledger<'a>(&'a self, place: &'a LogRef) -> &'a Arc<Ledger> {
        match place {
            LogRef::Default => &self.default,
            LogRef::Side(side) => &side.ledger,
        }
    }

    /// Every ledger, the default one first.
    pub(crate) fn ledgers(&self) -> Vec<Arc<Ledger>> {
        let sides = self.side_logs().into_iter().map(|side_log| Arc::clone(&side_log.ledger));
        [Arc::clone(&self.default)].into_iter().chain(sides).collect()
    }

    /// Every ledger with its location; the default one is first and has none.
    pub(crate) fn housed_ledgers(&self) -> Vec<(Option<LogLocation>, Arc<Ledger>)> {
        let sides = self
            .side_logs()
            .into_iter()
            .map(|side_log| (Some(side_log.location.clone()), Arc::clone(&side_log.ledger)));
        [(None, Arc::clone(&self.default))].into_iter().chain(sides).collect()
    }

    /// Whether topics are placed in the side log at this location.
    pub(crate) fn is_used(&self, location: &LogLocation) -> bool {
        self.default.registry().is_placed_in(location)
    }

    /// Every log but the default one.
    pub(crate) fn side_logs(&self) -> Vec<Arc<SideLog>> {
        self.sides.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The side log at this location.
    pub(crate) fn side_log(&self, location: &LogLocation) -> Result<Arc<SideLog>> {
        self.sides.read().unwrap_or_else(PoisonError::into_inner).get(location).cloned().ok_or_else(not_ready)
    }

    /// The log of a topic; `registry` is the default log's. `None` if there is no such topic.
    pub(crate) fn locate(&self, registry: &Registry, id: &TopicId) -> Result<Option<LocatedTopic>> {
        if let Some(topic) = registry.topic(id) {
            return Ok(Some(LocatedTopic { log: LogRef::Default, topic: Arc::clone(topic) }));
        }
        registry.placed(id).map(|located| self.locate_placed(located)).transpose()
    }

    /// The current log of a topic.
    pub(crate) fn find(&self, id: &TopicId) -> Result<LocatedTopic> {
        self.locate(&self.default.registry(), id)?.ok_or_else(|| Error::not_found("topic"))
    }

    fn locate_placed(&self, known: &PlacedTopic) -> Result<LocatedTopic> {
        if known.placed.deleting {
            return Err(Error::not_found("topic"));
        }
        let side_log = self.side_log(&known.placed.location)?;
        let topic = side_log.ledger.registry().topic(&known.placed.topic.definition.id).cloned();
        let topic = topic.ok_or_else(|| side_log.ledger.failure().unwrap_or_else(not_ready))?;
        Ok(LocatedTopic { log: LogRef::Side(side_log), topic })
    }

    /// The log that `streaming` asks for; `None` is the default one.
    pub(crate) fn location_of(&self, streaming: &StreamingSetting) -> Result<Option<LogLocation>, Violation> {
        location::location_of(streaming, self.settings.default_type)
    }

    /// The lock for writing a topic to two logs.
    pub(crate) async fn lock_placement(&self) -> MutexGuard<'_, ()> {
        self.placing.lock().await
    }

    /// The lock for the codes of subscriptions and the use of pools, which are unique over all logs. Within the default
    /// log decisions check them. One append cannot span two logs, but no other process writes to side logs: an
    /// operation that changes names in the default log alone takes this lock shared, and one that needs both logs to
    /// agree takes it exclusively.
    pub(crate) const fn names(&self) -> &RwNames<()> {
        &self.names
    }

    /// The log at the location of a new topic, opened if it is not open. The caller holds [`Logs::lock_placement`].
    pub(crate) async fn open(&self, location: &LogLocation) -> Result<LogRef> {
        let place = self.settings.roots.resolve(location).map_err(refused)?;
        let Some(location) = place.location() else { return Ok(LogRef::Default) };
        if let Ok(side_log) = self.side_log(location) {
            return Ok(LogRef::Side(side_log));
        }
        self.check_side_log(location)?;
        if self.side_logs().len() >= limits::LOGS_MAX {
            return Err(Error::new(Kind::Overloaded, "This broker holds as many logs as it may; share one."));
        }
        if matches!(place, ResolvedLocation::In(..)) {
            self.check_open_files()?;
        }
        self.start(location.clone(), &place, Vec::new()).await.map(LogRef::Side)
    }

    /// Refuses a location in which the configuration allows no log, without opening one.
    pub(crate) fn check_location(&self, location: &LogLocation) -> Result<()> {
        let place = self.settings.roots.resolve(location).map_err(refused)?;
        place.location().map_or(Ok(()), |location| self.check_side_log(location))
    }

    fn check_side_log(&self, location: &LogLocation) -> Result<()> {
        if !self.settings.side_logs && !matches!(location, LogLocation::Folder(_)) {
            let detail = "asks for a log of its own, which `storage.side_logs: false` allows only in a folder of \
                `storage.locations`; leave `type` and `location` out";
            return Err(refused(Violation::new("/streaming", detail)));
        }
        Ok(())
    }

    /// Refuses another log in a folder beyond what the limit of open files allows.
    fn check_open_files(&self) -> Result<()> {
        let (max, sides) = (self.settings.side_folders_max, self.side_logs());
        if sides.iter().filter(|side_log| side_log.folder.is_some()).count() < max {
            return Ok(());
        }
        let detail = format!(
            "This broker may keep {max} logs in files beside its default one, and has as many: each holds files open, and \
             the limit of open files (`ulimit -n`) allows no more. Share a log that is there, or raise the limit."
        );
        Err(Error::new(Kind::Overloaded, detail))
    }

    /// Opens the log at a location that topics were in before. In memory each topic begins after its sequence in
    /// `removed`, the first topic having number 1.
    pub(crate) async fn reopen(&self, location: &LogLocation, removed: Vec<Sequence>) -> Result<Arc<SideLog>> {
        match self.settings.roots.resolve_stored(location).map_err(refused)? {
            ResolvedLocation::WithDefault => {
                Err(Error::new(Kind::Unavailable, "Its folder is now the default log's own."))
            }
            place => self.start(location.clone(), &place, removed).await,
        }
    }

    /// Opens the log in files at a location that no topic is placed in any more; `None` if nothing is left of it.
    pub(crate) async fn reopen_unused(&self, location: &LogLocation) -> Result<Option<Arc<SideLog>>> {
        if let Ok(side_log) = self.side_log(location) {
            return Ok(Some(side_log));
        }
        match self.settings.roots.resolve_stored(location).map_err(refused)? {
            place @ ResolvedLocation::In(..) if holds_log(&place)? => {
                self.start(location.clone(), &place, Vec::new()).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Closes a side log that no topic is placed in: its place, its files and its folder are free again. The caller
    /// holds [`Logs::lock_placement`].
    pub(crate) async fn close_unused(&self, side_log: &SideLog) {
        self.sides.write().unwrap_or_else(PoisonError::into_inner).remove(&side_log.location);
        // A reader that found the log before is refused, and finds no topic when it tries again.
        let closed = Error::new(Kind::Unavailable, "The topic was deleted, and its log is closed.").with_retry_after(1);
        side_log.ledger.abandon(&closed).await;
    }

    async fn start(
        &self,
        location: LogLocation,
        place: &ResolvedLocation,
        removed: Vec<Sequence>,
    ) -> Result<Arc<SideLog>> {
        let folder = match place {
            ResolvedLocation::In(_, folder) => Some(folder.clone()),
            _ => None,
        };
        let log: Arc<dyn Log> = match &folder {
            Some(folder) => {
                let sides = self.side_logs();
                let others = sides.iter().filter_map(|side_log| side_log.folder.as_deref());
                location::check_apart(folder, others).map_err(refused)?;
                let opened = open_folder_apart(folder.clone(), self.settings.folders.clone()).await;
                Arc::new(opened.map_err(not_opened)?)
            }
            None => Arc::new(MemoryLog::behind((1..).map(TopicNumber).zip(removed))),
        };
        let state = folder.as_deref().map(state_of);
        let LogSettings { checkpoint_rows, answers_millis, .. } = self.settings;
        let (clock, incidents) = (LogClock::new(Arc::clone(&self.clock)), Arc::clone(&self.settings.incidents));
        let ledger = Ledger::open(log, clock, state, checkpoint_rows, answers_millis, incidents).await;
        let side_log =
            Arc::new(SideLog { location: location.clone(), ledger: Arc::new(ledger.map_err(not_opened)?), folder });
        self.sides.write().unwrap_or_else(PoisonError::into_inner).insert(location, Arc::clone(&side_log));
        Ok(side_log)
    }

    /// Every log that has failed.
    pub(crate) fn failures(&self) -> Vec<LogFailure> {
        let default = self.default.failure().map(|error| LogFailure { log: DEFAULT.to_owned(), error });
        let failed = |side_log: Arc<SideLog>| {
            Some(LogFailure { log: side_log.location.public_name(), error: side_log.ledger.failure()? })
        };
        default.into_iter().chain(self.side_logs().into_iter().filter_map(failed)).collect()
    }

    /// Problems for an operator to look at although every log works.
    pub(crate) fn degradations(&self) -> Vec<String> {
        // All logs of a broker read the same clocks.
        let jump = self.default.clock().doubted_jump();
        let jump = jump.map(|millis| {
            let seconds = millis / 1000;
            format!("The wall clock has jumped {seconds} s ahead and is not trusted unless the jump lasts.")
        });
        let held = |(name, ledger): (Option<LogLocation>, Arc<Ledger>)| {
            let seconds = ledger.clock().hold().jump / 1000;
            let name = name.map_or_else(|| DEFAULT.to_owned(), |location| location.public_name());
            let text = format!(
                "The clock is {seconds} s ahead of the log's last record at the start: nothing that was stored before is removed \
                 for its age, forgotten or expired until the clock has lasted. Is the clock right?"
            );
            (seconds > 0).then_some((name, text))
        };
        let held: Vec<_> = self.housed_ledgers().into_iter().filter_map(held).collect();
        let of_log = |(log, warning): (String, String)| format!("The log {log}: {warning}");
        jump.into_iter().chain(self.warnings().into_iter().chain(held).map(of_log)).collect()
    }

    /// The problems of logs that work nevertheless.
    fn warnings(&self) -> Vec<(String, String)> {
        let sides = self.side_logs();
        let sides = sides.iter().map(|side_log| (side_log.location.public_name(), &side_log.ledger));
        let ledgers = std::iter::once((DEFAULT.to_owned(), &self.default)).chain(sides);
        let of_ledger = |(name, ledger): (String, &Arc<Ledger>)| {
            let warnings =
                ledger.warning().into_iter().chain(ledger.reclaim_warning()).chain(ledger.log().storage_warning());
            warnings.map(|warning| (name.clone(), warning)).collect::<Vec<_>>()
        };
        ledgers.flat_map(of_ledger).collect()
    }

    /// Ends all ledgers of a broker that failed because of `cause`, and releases their logs.
    pub(crate) async fn abandon(&self, cause: &Error) {
        let ledgers = self.ledgers();
        join_all(ledgers.iter().map(|ledger| ledger.abandon(cause))).await;
    }

    /// Answers accepted commands in every log, and writes checkpoints.
    pub(crate) async fn close(&self) {
        let ledgers = self.ledgers();
        join_all(ledgers.iter().map(|ledger| ledger.close())).await;
    }
}

/// Whether the folder of a log holds one.
fn holds_log(place: &ResolvedLocation) -> Result<bool> {
    let ResolvedLocation::In(_, folder) = place else { return Ok(false) };
    folder.join(LOG_FOLDER).try_exists().map_err(|cause| not_opened(cause.into()))
}

fn refused(violation: Violation) -> Error {
    Error::new(Kind::Validation, "The topic's log cannot be there; see `errors`.").with_violations(vec![violation])
}

fn not_opened(cause: LogError) -> Error {
    let detail = "The log at the topic's `streaming.location` did not open; the broker's operator can see why.";
    Error::new(Kind::Unavailable, detail).with_source(cause).with_retry_after(5)
}

/// The refusal between the append that names a topic and the one that numbers it.
fn not_ready() -> Error {
    Error::new(Kind::Unavailable, "The topic's log is not ready yet; try again.").with_retry_after(1)
}
