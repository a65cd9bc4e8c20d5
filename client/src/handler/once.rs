//! Work on a single event, done once however often and by whatever means the event is delivered.

use super::event_handler::EventHandler;
use super::lanes::WaitingEvent;
use super::options::HandlerOptions;
use super::work::{WorkEnd, WorkerContext};
use crate::client::Client;
use contract::{Result, StoredEvent};
use std::sync::Arc;
use std::time::Duration;

/// The outcome for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The work was done now.
    Done,
    /// It was done before, or an operator has discarded it.
    AlreadyDone,
    /// A later event of the aggregate is finished.
    Stale,
    /// It was given up, and waits for an operator.
    DeadLetter,
    /// The event is no longer stored.
    Gone,
    /// It failed, or another worker holds it: retry after this time.
    Later(Duration),
}

/// Works on one event that was delivered by any means, if it may be claimed now. If it is delivered twice, out of order, or to
/// two programs at the same time, the work is done once and in order.
pub async fn once(
    client: &Client,
    handler: &str,
    event: StoredEvent,
    options: &HandlerOptions,
    effect: impl EventHandler,
) -> Result<WorkOutcome> {
    let topic = event.event()?.topic;
    let context = WorkerContext::new(client.clone(), handler.to_owned(), topic, options.clone(), Arc::new(effect));
    match context.work(&mut WaitingEvent::new(event, None)).await {
        WorkEnd::Settled(outcome) => Ok(outcome),
        WorkEnd::Again(wait) => Ok(WorkOutcome::Later(wait)),
        WorkEnd::Blocked => Ok(WorkOutcome::Later(options.recheck)),
        WorkEnd::Unavailable(error) | WorkEnd::Refused(error) => Err(error),
    }
}
