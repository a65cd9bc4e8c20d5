//! One event, worked on once, however often and by whatever way it is delivered.

use super::effect::Handle;
use super::lanes::Waiting;
use super::options::Options;
use super::work::{Desk, Ended};
use crate::client::Client;
use contract::{Result, StoredEvent};
use std::sync::Arc;
use std::time::Duration;

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worked {
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
    options: &Options,
    effect: impl Handle,
) -> Result<Worked> {
    let topic = event.event()?.topic;
    let desk = Desk::new(client.clone(), handler.to_owned(), topic, options.clone(), Arc::new(effect));
    match desk.work(&mut Waiting::new(event, None)).await {
        Ended::Settled(worked) => Ok(worked),
        Ended::Again(wait) => Ok(Worked::Later(wait)),
        Ended::Blocked => Ok(Worked::Later(options.recheck)),
        Ended::Away(error) | Ended::Refused(error) => Err(error),
    }
}
