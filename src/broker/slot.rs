//! The broker that a server serves: it can be replaced by one that was opened again while the server goes on.

use super::Broker;
use contract::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Holds the broker that is served now.
pub struct BrokerSlot {
    state: watch::Sender<SlotState>,
    /// Whether a failed broker is opened again.
    supervised: AtomicBool,
}

/// What a server has.
#[derive(Clone)]
pub enum SlotState {
    /// A broker.
    Open(Arc<Broker>),
    /// None at the moment.
    Closed(BrokerOutage),
}

/// Why there is no broker at the moment.
#[derive(Debug, Clone)]
pub struct BrokerOutage {
    /// What everybody is told.
    pub error: Error,
    /// Opening it again has failed so often that a new process may do better.
    pub restart_helps: bool,
}

impl BrokerSlot {
    /// With this broker; one that fails stays as it is until a [`super::Supervisor`] runs.
    #[must_use]
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { state: watch::Sender::new(SlotState::Open(broker)), supervised: AtomicBool::new(false) }
    }

    /// What there is now.
    #[must_use]
    pub fn state(&self) -> SlotState {
        self.state.borrow().clone()
    }

    /// The broker, if there is one.
    #[must_use]
    pub fn broker(&self) -> Option<Arc<Broker>> {
        match self.state() {
            SlotState::Open(broker) => Some(broker),
            SlotState::Closed(_) => None,
        }
    }

    /// Changes with what there is.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<SlotState> {
        self.state.subscribe()
    }

    /// Whether a failed broker is opened again.
    #[must_use]
    pub fn is_supervised(&self) -> bool {
        self.supervised.load(Ordering::Relaxed)
    }

    pub(super) fn supervise(&self) {
        self.supervised.store(true, Ordering::Relaxed);
    }

    pub(super) fn open(&self, broker: Arc<Broker>) {
        self.state.send_replace(SlotState::Open(broker));
    }

    pub(crate) fn close(&self, outage: BrokerOutage) {
        self.state.send_replace(SlotState::Closed(outage));
    }
}
