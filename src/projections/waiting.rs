//! Waiting for views: until a checkpoint has reached an offset, or until published events are applied.
//!
//! - Names are checked before anything is stored, so that a typing error has no effect.
//! - What is stored stays stored: the response to a timeout says so, with the event's sequence.
//! - A projection is waited for only for the events that it reads: those of its topic, or of the default log.

use super::Projections;
use crate::events::destination;
use crate::ledger::Ledger;
use crate::logs::{LocatedTopic, LogRef};
use contract::{Error, Kind, NewEvent, Offset, Result, StoredEvent, TopicId, limits};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A projection to wait for.
pub(crate) struct AwaitedProjection {
    name: String,
    ledger: Arc<Ledger>,
    /// Its topic; `None` if it reads the default log.
    topic: Option<TopicId>,
}

/// Returns when a projection's checkpoint has reached `offset`; fails at the timeout, or if the broker closes.
pub(super) async fn wait_until_reached(ledger: &Ledger, name: &str, offset: Offset, deadline: Instant) -> Result<()> {
    let not_found = || Error::not_found("projection");
    let mut checkpoint = ledger.projections().checkpoint(name).ok_or_else(not_found)?;
    let mut closing = ledger.closing();
    tokio::select! {
        // Checked first, so that a timeout of 0 succeeds if the offset is reached already.
        biased;
        reached = checkpoint.wait_for(|checkpoint| *checkpoint >= offset) => reached.map(drop).map_err(|_| not_found()),
        _ = closing.wait_for(|closing| *closing) => Err(ledger.check_open().err().unwrap_or_else(timed_out)),
        () = tokio::time::sleep_until(deadline) => Err(timed_out()),
    }
}

impl Projections<'_> {
    /// The projections of these names; refused if one is not registered.
    pub(crate) fn awaited<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<AwaitedProjection>> {
        let mut awaited: Vec<AwaitedProjection> = Vec::new();
        for name in names {
            if awaited.iter().any(|known| known.name == name) {
                continue;
            }
            if awaited.len() == limits::WAIT_FOR_MAX {
                return Err(Error::invalid("/waitFor", format!("may name at most {}", limits::WAIT_FOR_MAX)));
            }
            let unknown = |_| Error::invalid("/waitFor", "names a projection that is not registered");
            let known = self.find(name).map_err(unknown)?;
            let topic = known.entry.definition.topic.clone();
            awaited.push(AwaitedProjection { name: name.to_owned(), ledger: known.ledger, topic });
        }
        Ok(awaited)
    }

    /// Refuses projections that do not read the event's topic. If the event has no topic, publishing it reports why.
    pub(crate) fn check_reached(&self, awaited: &[AwaitedProjection], event: &NewEvent) -> Result<()> {
        let Some(LocatedTopic { log: place, topic }) = destination(self.context.rules, self.context.logs, event) else {
            return Ok(());
        };
        let reads = |projection: &AwaitedProjection| match &projection.topic {
            Some(read) => *read == topic.topic.definition.id,
            None => place == LogRef::Default,
        };
        match awaited.iter().all(reads) {
            true => Ok(()),
            false => Err(Error::invalid("/waitFor", "names a projection that does not read the event's topic")),
        }
    }

    /// Returns when every projection has applied those of the events that it reads.
    pub(crate) async fn wait_until_applied(
        &self,
        awaited: &[AwaitedProjection],
        events: &[&StoredEvent],
        timeout: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let events: Vec<_> = events.iter().filter_map(|event| Some((topic_of(event)?, *event))).collect();
        let default = self.context.logs.default_ledger().registry();
        for projection in awaited {
            let concerning = events.iter().filter_map(|(topic, event)| match &projection.topic {
                Some(read) => (read == topic).then_some(event.sequence.into()),
                None => default.topic(topic).map(|_| Offset(event.position.get())),
            });
            let Some(offset) = concerning.max() else { continue };
            let outcome = wait_until_reached(&projection.ledger, &projection.name, offset, deadline).await;
            outcome.map_err(|error| stored_all_the_same(&error, &events))?;
        }
        Ok(())
    }
}

fn timed_out() -> Error {
    Error::new(Kind::ProjectionTimeout, "The projection has not reached the offset yet; wait again, or check its lag.")
}

/// The error of a wait after a publish: the events are stored, whatever the wait came to.
fn stored_all_the_same(error: &Error, events: &[(TopicId, &StoredEvent)]) -> Error {
    let detail = match (error.kind(), events) {
        (Kind::NotFound, _) => "It is stored, but a projection of `waitFor` was deleted; do not publish it again.",
        (_, [_]) => "The event is stored; a projection of `waitFor` has not applied it yet. Do not publish it again.",
        _ => {
            "The events that were not refused are stored; a projection of `waitFor` has not applied them yet. Sending the same \
            batch again continues to wait, and stores no event twice that has an id."
        }
    };
    let error = Error::new(Kind::ProjectionTimeout, detail);
    match events {
        [(_, event)] => error.with_stored(event.id, event.sequence),
        _ => error,
    }
}

fn topic_of(event: &StoredEvent) -> Option<TopicId> {
    #[derive(Deserialize)]
    struct TopicMember {
        topic: TopicId,
    }
    serde_json::from_slice::<TopicMember>(&event.text).ok().map(|event| event.topic)
}
