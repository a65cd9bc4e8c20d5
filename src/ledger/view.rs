//! What the writer publishes to readers: the registry and the tails as of the last durable record, and the log's
//! health.

use super::{IncidentReporter, LedgerState, Registry, StateTables};
use contract::{Error, Position};
use log::TopicNumber;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// The durable state that the writer publishes to readers, and the health of the log.
pub(super) struct LedgerView {
    pub(super) registry: RwLock<Arc<Registry>>,
    pub(super) tables: Arc<StateTables>,
    pub(super) position: watch::Sender<Position>,
    pub(super) failure: watch::Sender<Option<Error>>,
    /// A problem that does not keep the ledger from working.
    pub(super) warning: watch::Sender<Option<String>>,
    pub(super) incidents: Arc<IncidentReporter>,
    pub(super) closing: watch::Sender<bool>,
}

impl LedgerView {
    pub(super) fn new(state: &LedgerState, incidents: Arc<IncidentReporter>) -> Self {
        let shared = Self {
            registry: RwLock::new(Arc::clone(state.registry())),
            tables: Arc::clone(&state.tables),
            position: watch::Sender::new(state.position()),
            failure: watch::Sender::new(None),
            warning: watch::Sender::new(None),
            incidents,
            closing: watch::Sender::new(false),
        };
        shared.show(state, state.registry().topics().map(|topic| topic.number));
        shared
    }

    /// Publishes what became durable: first the registry, then the tails, so that a reader that is woken finds its
    /// topic.
    pub(super) fn show(&self, state: &LedgerState, topics: impl Iterator<Item = TopicNumber>) {
        let registry = state.registry();
        if self.registry.read().unwrap_or_else(PoisonError::into_inner).version() != registry.version() {
            let mut shown = self.registry.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *shown, Arc::clone(registry));
            drop(shown);
            before.topics().filter(|topic| registry.is_deleted(topic.number)).for_each(|topic| topic.show_deleted());
            // A new topic may begin with a tail: sequences assigned in a log that no longer exists.
            registry.topics().for_each(|topic| topic.show_tail(state.tail(topic.number)));
        }
        for number in topics {
            if let Some(topic) = registry.topic_numbered(number) {
                topic.show_tail(state.tail(number));
            }
        }
        self.position.send_replace(state.position());
    }

    pub(super) fn report_failure(&self, error: &Error) {
        self.failure.send_replace(Some(error.clone()));
        self.incidents.report(error);
        tracing::error!(%error, source = cause(error), "the log failed; every command is refused until it is opened again");
    }

    pub(super) fn report_outage(&self, error: &Error) {
        tracing::error!(%error, source = cause(error), "the log's server cannot be reached; commands are refused until it can");
        self.failure.send_replace(Some(error.clone()));
    }

    /// Publishes a problem that does not keep the ledger from working, or that it is over.
    pub(super) fn report_warning(&self, warning: Option<String>) {
        self.warning.send_replace(warning);
    }

    pub(super) fn report_recovered(&self) {
        tracing::info!("the log's server can be reached again");
        self.failure.send_replace(None);
    }
}

fn cause(error: &Error) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}
