//! What the writer shows to everyone: the registry and the tails as of the last durable record, and what is wrong.

use super::{IncidentReporter, LedgerState, Registry, StateTables};
use contract::{Error, Position};
use log::TopicNumber;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// What the writer shows to everyone.
pub(super) struct LedgerView {
    pub(super) registry: RwLock<Arc<Registry>>,
    pub(super) tables: Arc<StateTables>,
    pub(super) position: watch::Sender<Position>,
    pub(super) failure: watch::Sender<Option<Error>>,
    /// What is wrong though everything goes on.
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

    /// Shows what became durable: first the registry, then the tails, so that whoever is woken finds its topic.
    pub(super) fn show(&self, state: &LedgerState, topics: impl Iterator<Item = TopicNumber>) {
        let registry = state.registry();
        if self.registry.read().unwrap_or_else(PoisonError::into_inner).version() != registry.version() {
            let mut shown = self.registry.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *shown, Arc::clone(registry));
            drop(shown);
            before.topics().filter(|topic| registry.is_deleted(topic.number)).for_each(|topic| topic.show_deleted());
            // A new topic may come with a past: numbers given in a log that is gone.
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
        tracing::error!(%error, source = cause(error), "the log failed; nothing is promised until it is opened again");
    }

    pub(super) fn report_outage(&self, error: &Error) {
        tracing::error!(%error, source = cause(error), "the log's server is away; commands are refused until it is back");
        self.failure.send_replace(Some(error.clone()));
    }

    /// Something is wrong, or is not any more, though everything goes on.
    pub(super) fn report_warning(&self, warning: Option<String>) {
        self.warning.send_replace(warning);
    }

    pub(super) fn report_recovered(&self) {
        tracing::info!("the log's server is back");
        self.failure.send_replace(None);
    }
}

fn cause(error: &Error) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}
