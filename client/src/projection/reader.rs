//! The broker's side of a projection: reading the next events, and reporting the checkpoint.
//!
//! - While the broker is unavailable the reader waits; only a refusal for good is returned.
//! - A projection of the log does not report positions without events: a report takes a position itself.

use super::runner::ProjectionOptions;
use super::{Checkpoint, ProjectionError};
use crate::client::Client;
use crate::retry::jitter;
use crate::stop::{StopSignal, UntilStopped};
use contract::api::*;
use contract::{
    Error, EventFilter, Kind, LogRead, NewCheckpoint, NewProjection, Offset, Position, Projection, ReadOffset,
    RegisterOutcome, Result as Answered, StoredEvent, TopicRead,
};
use std::time::Duration;
use tokio::time::Instant;

/// One projection at the broker.
#[derive(Debug)]
pub(super) struct ProjectionReader {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) definition: NewProjection,
    pub(super) options: ProjectionOptions,
}

/// Why following the events ended.
pub(super) enum FollowEnd {
    Stopped,
    /// Another generation has started.
    Reset(Projection),
}

/// The checkpoint that was reported last, and when.
pub(super) struct ReportedOffset {
    pub(super) offset: Offset,
    pub(super) at: Instant,
}

/// Events of a topic or of the log.
pub(super) struct ProjectionPage {
    pub(super) items: Vec<StoredEvent>,
    pub(super) next: Offset,
}

impl ProjectionReader {
    /// Registers the projection.
    pub(super) async fn register(&self) -> Answered<Projection> {
        self.client.put_projection(&self.name, self.definition.clone()).await.map(RegisterOutcome::into_inner)
    }

    /// The events after `offset`; waits if there are none yet. Offset 0 is the first stored event, whatever retention has
    /// removed before it.
    pub(super) async fn next_page(&self, offset: Offset) -> Answered<ProjectionPage> {
        let filter = EventFilter { cel: self.definition.filter.clone(), ..EventFilter::default() };
        let (limit, wait) = (self.options.page_events, self.options.idle.max(Duration::from_secs(1)));
        match self.definition.topic.clone() {
            Some(topic) => {
                let offset = if offset == Offset::ZERO { ReadOffset::Earliest } else { offset.into() };
                let page = self.client.wait(TopicRead { topic, offset, limit, filter }, wait).await?;
                Ok(ProjectionPage { items: page.items, next: page.next_offset })
            }
            None => {
                let read = LogRead { after: Position(offset.get()), limit, filter };
                let page = self.client.wait_log(read, wait).await?;
                // A report of positions after the last event would itself be a position to report.
                let last = page.items.last().map(|event| Offset(event.position.get()));
                Ok(ProjectionPage { next: last.unwrap_or(Offset(page.next_position.get())), items: page.items })
            }
        }
    }

    /// The offset of an event.
    pub(super) fn number_of(&self, event: &StoredEvent) -> Offset {
        match self.definition.topic {
            Some(_) => event.sequence.into(),
            None => Offset(event.position.get()),
        }
    }

    /// No event arrived: checks for a reset, and reports the checkpoint if events that the filter excludes are left.
    pub(super) async fn idle(
        &self,
        at: &mut Checkpoint,
        next: Offset,
        reported: &mut ReportedOffset,
        stop: &mut StopSignal<'_>,
    ) -> Result<Option<FollowEnd>, ProjectionError> {
        at.offset = next;
        let look = self.retry_until_response(stop, || self.client.projection(&self.name));
        let Some(now) = look.await? else { return Ok(Some(FollowEnd::Stopped)) };
        if now.generation != at.generation {
            return Ok(Some(FollowEnd::Reset(now)));
        }
        match now.lag.events {
            0 => Ok(None),
            _ => Ok(self.report_checkpoint(*at, reported).await?.map(FollowEnd::Reset)),
        }
    }

    /// Reports the checkpoint; returns the projection if another generation has started.
    pub(super) async fn report_checkpoint(
        &self,
        at: Checkpoint,
        reported: &mut ReportedOffset,
    ) -> Result<Option<Projection>, ProjectionError> {
        if at.offset <= reported.offset {
            return Ok(None);
        }
        let Checkpoint { generation, offset } = at;
        let to = NewCheckpoint { offset, expected: None, generation: Some(generation) };
        reported.at = Instant::now();
        let answer = match self.client.move_checkpoint(&self.name, to).await {
            Err(error) if error.kind() == Kind::InvalidState => self.client.projection(&self.name).await,
            answer => answer,
        };
        match answer {
            Ok(now) if now.generation != generation => Ok(Some(now)),
            Ok(now) => {
                reported.offset = now.checkpoint;
                Ok(None)
            }
            // The next report includes this one.
            Err(error) if error.kind().is_retryable() => Ok(None),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// The last report before the end.
    pub(super) async fn report_last(
        &self,
        at: Checkpoint,
        reported: &mut ReportedOffset,
    ) -> Result<FollowEnd, ProjectionError> {
        self.report_checkpoint(at, reported).await?;
        Ok(FollowEnd::Stopped)
    }

    /// Repeats a request until the broker responds; `None` if the stop signal comes first.
    pub(super) async fn retry_until_response<T, F>(
        &self,
        stop: &mut StopSignal<'_>,
        send: impl Fn() -> F,
    ) -> Result<Option<T>, ProjectionError>
    where
        F: Future<Output = Answered<T>> + Send,
    {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match stop.unless_stopped(send()).await {
                UntilStopped::Stopped => return Ok(None),
                UntilStopped::Done(Ok(answer)) => return Ok(Some(answer)),
                UntilStopped::Done(Err(error)) if error.kind().is_retryable() => error,
                UntilStopped::Done(Err(error)) => return Err(self.refused(error)),
            };
            tracing::warn!(projection = self.name, %error, tries, "the broker is unavailable; retrying");
            if stop.stopped_within(self.options.apply.wait(tries, None, jitter())).await {
                return Ok(None);
            }
        }
    }

    fn refused(&self, error: Error) -> ProjectionError {
        ProjectionError::Broker { projection: self.name.clone(), error }
    }
}
