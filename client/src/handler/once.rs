//! One event, worked on once, however often and by whatever way it is delivered.

use super::event_handler::EventHandler;
use super::lanes::WaitingEvent;
use super::options::HandlerOptions;
use super::work::{WorkEnd, WorkerContext};
use crate::client::Client;
use contract::{Result, StoredEvent};
use std::sync::Arc;
use std::time::Duration;

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkOutcome {
    /// The work was done now.
    Done,
    /// It was done before, or a person has decided that it need not be.
    AlreadyDone,
    /// A later event of the aggregate is finished.
    Stale,
    /// It was given up, and waits for a person.
    DeadLetter,
    /// The event is not there any more.
    Gone,
    /// It failed, or somebody else is at it: it may be asked for again after so long.
    Later(Duration),
}

/// Works on one event that was delivered by any way, if it is to be worked on now. Delivered twice, out of order, or to two
/// programs at a time, the work is done once and in order.
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
        WorkEnd::Settled(worked) => Ok(worked),
        WorkEnd::Again(wait) => Ok(WorkOutcome::Later(wait)),
        WorkEnd::Blocked => Ok(WorkOutcome::Later(options.recheck)),
        WorkEnd::Unavailable(error) | WorkEnd::Refused(error) => Err(error),
    }
}
