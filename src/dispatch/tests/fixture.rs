//! The fixture of the tables: a broker in memory, its worker, a scripted receiver, and a clock.

use super::receiver::ScriptedReceiver;
use crate::broker::Broker;
use crate::clock::{Clock, ManualClock};
use crate::config::{Config, UnregisteredPolicy};
use crate::delivery::Deliver;
use crate::dispatch::{DispatchContext, DispatchWorker};
use crate::subscriptions::SecretVault;
use contract::limits;
use log::Log;
use std::sync::Arc;

pub(super) struct DispatchFixture {
    pub(super) log: Arc<dyn Log>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) receiver: Arc<ScriptedReceiver>,
    pub(super) broker: Arc<Broker>,
    pub(super) worker: DispatchWorker,
    pub(super) settings: FixtureSettings,
}

/// What a table can change about its broker.
#[derive(Clone)]
pub(super) struct FixtureSettings {
    pub(super) max_open_jobs: u32,
    pub(super) secret_key: String,
    pub(super) allow_private: bool,
}

impl Default for FixtureSettings {
    fn default() -> Self {
        Self { max_open_jobs: limits::OPEN_JOBS_MAX, secret_key: "k".to_owned(), allow_private: true }
    }
}

fn config(settings: &FixtureSettings) -> Config {
    let mut config = Config::default();
    config.dispatch.max_open_jobs = settings.max_open_jobs;
    config.types.unregistered = UnregisteredPolicy::Accept;
    config.tenant.required = false;
    config.dispatch.enabled = false;
    config.dispatch.allow_private_targets = settings.allow_private;
    config.dispatch.secret_key = Some(crate::config::SecretKey(settings.secret_key.clone()));
    config
}

/// A worker of `broker` with the scripted receiver.
pub(super) fn worker(broker: &Broker, receiver: &Arc<ScriptedReceiver>, clock: &Arc<ManualClock>) -> DispatchWorker {
    DispatchWorker::new(broker.default_ledger(), Arc::new(context(broker, receiver, clock)))
}

pub(super) fn context(broker: &Broker, receiver: &Arc<ScriptedReceiver>, clock: &Arc<ManualClock>) -> DispatchContext {
    let ledger = broker.default_ledger();
    let (clock, vault) = (Arc::clone(clock) as Arc<dyn Clock>, Arc::new(SecretVault::of(broker.config())));
    let deliver = Arc::clone(receiver) as Arc<dyn Deliver>;
    let mut context = DispatchContext::new(deliver, clock, vault, broker.config().dispatch.clone(), ledger);
    context.jitters = false;
    context
}

impl DispatchFixture {
    pub(super) async fn new(log: Arc<dyn Log>) -> Self {
        let clock = Arc::new(ManualClock::at(1_764_763_200_000));
        Self::beside(log, clock, Arc::default()).await
    }

    /// Another broker on the same log.
    pub(super) async fn beside(log: Arc<dyn Log>, clock: Arc<ManualClock>, receiver: Arc<ScriptedReceiver>) -> Self {
        Self::with_settings(log, clock, receiver, FixtureSettings::default()).await
    }

    pub(super) async fn with_settings(
        log: Arc<dyn Log>,
        clock: Arc<ManualClock>,
        receiver: Arc<ScriptedReceiver>,
        settings: FixtureSettings,
    ) -> Self {
        let config = config(&settings);
        let opened = Broker::on_log(config, Arc::clone(&log), None, Arc::clone(&clock) as Arc<dyn Clock>);
        let broker = Arc::new(opened.await.unwrap());
        let mut context = context(&broker, &receiver, &clock);
        // What the broker shows of its own deliveries are this worker's.
        let subscriptions = broker.subscriptions(None);
        (context.owner, context.breakers) = (subscriptions.owner, subscriptions.breakers.clone());
        let worker = DispatchWorker::new(broker.default_ledger(), Arc::new(context));
        Self { log, clock, receiver, broker, worker, settings }
    }
}
