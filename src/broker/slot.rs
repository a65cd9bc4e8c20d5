//! The broker that a server serves: after a failure it is replaced by a reopened one while the server continues.

use super::Broker;
use contract::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Holds the broker that is served.
pub struct BrokerSlot {
    state: watch::Sender<SlotState>,
    /// Whether a failed broker is reopened.
    supervised: AtomicBool,
}

/// The state of a slot.
#[derive(Clone)]
pub enum SlotState {
    /// A broker.
    Open(Arc<Broker>),
    /// There is no broker at the moment.
    Closed(BrokerOutage),
}

/// Why there is no broker at the moment.
#[derive(Debug, Clone)]
pub struct BrokerOutage {
    /// The error of every request meanwhile.
    pub error: Error,
    /// Reopening has failed so often that a restart of the process may be needed.
    pub restart_helps: bool,
}

impl BrokerSlot {
    /// A slot with this broker. If it fails, it is not reopened unless a [`super::Supervisor`] runs.
    #[must_use]
    pub fn new(broker: Arc<Broker>) -> Self {
        Self { state: watch::Sender::new(SlotState::Open(broker)), supervised: AtomicBool::new(false) }
    }

    /// The current state.
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

    /// Changes with the state.
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
