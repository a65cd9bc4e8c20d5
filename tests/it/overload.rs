//! Overload: a slow disk fills the queue, and the queue is bounded.

use crate::scenario::{subject_type_id, type_id};
use contract::api::*;
use contract::{BoxFuture, Kind, NewEvent, NewEventType, Position};
use event_broker::{Broker, Config, SystemClock};
use log::{Log, LogError, MemoryLog, Record};
use serde_json::value::RawValue;
use std::sync::{Arc, Condvar, Mutex};
use uuid::Uuid;

/// A log whose appends wait while the gate is closed.
pub(crate) struct GatedLog {
    pub(crate) log: Arc<MemoryLog>,
    open: Mutex<bool>,
    changed: Condvar,
}

impl GatedLog {
    /// With the gate open.
    pub(crate) fn new() -> Self {
        Self { log: Arc::new(MemoryLog::new()), open: Mutex::new(true), changed: Condvar::new() }
    }

    pub(crate) fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.changed.notify_all();
    }
}

impl Log for GatedLog {
    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            drop(self.changed.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
            self.log.append(after, batch).await
        })
    }

    log::forward_read!();
    log::forward_rest!();
}

fn event(filling: &str) -> NewEvent {
    let data = RawValue::from_string(format!(r#"{{"x":"{filling}"}}"#)).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.tenant = Some(Uuid::from_u128(1));
    event.about(subject_type_id("order"), "a")
}

/// The clock is paused: it advances whenever every task waits, so the test takes no real time.
#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_recovers_by_itself() {
    let log = Arc::new(GatedLog::new());
    let broker = Broker::on_log(Config::default(), log.clone(), None, Arc::new(SystemClock)).await.unwrap();
    let broker = Arc::new(broker);
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    log.set(false);
    let filling = "x".repeat(1_000_000);
    let mut callers: Vec<_> = (0..80)
        .map(|_| {
            let (broker, event) = (broker.clone(), event(&filling));
            tokio::spawn(async move { broker.publish(event, None).await })
        })
        .collect();
    // Room is granted in the order of the requests, so the last one is refused.
    let error = callers.pop().unwrap().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry_after_seconds()), (Kind::Overloaded, Some(1)));
    log.set(true);
    let mut stored = 0;
    for caller in callers {
        match caller.await.unwrap() {
            Ok(_) => stored += 1,
            Err(error) => assert_eq!(error.kind(), Kind::Overloaded),
        }
    }
    assert!((60..=68).contains(&stored), "{stored} events found room");
    broker.publish(event("after"), None).await.unwrap();
}
