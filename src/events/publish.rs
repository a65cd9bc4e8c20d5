//! Publishing: one decision per request, one atomic unit per topic (or per request).
//!
//! - A request is prepared on the caller's task ([`prepare`]) and decided by the writer ([`super::publish_decision`]).
//! - A request that was prepared against a definition that has changed since is prepared again. Types belong to the default
//!   log: the decision of a side log reads them as they are durable there. So once a change of a type is visible, no event
//!   is decided against the type as it was before.

use super::caller_context::CallerContext;
use super::outcome::outcomes;
use super::prepare::{
    MissingSchema, PrepareContext, PrepareError, PreparedEvent, PublishRefusal, PublishRules, prepare, refuse_unread,
};
use super::publish_decision::{EventsByPosition, PublishDecision, PublishEvents, TypesSource, aborted, read_stored};
use super::released_data::ReleasedData;
use super::split_by_log::{LogSpread, log_spread, publish_by_log, spans_logs};
use crate::ledger::{ReplyRecorder, decide_until_known};
use crate::secrets::InspectedParts;
use contract::{Atomicity, BatchOutcome, Error, Kind, NewEvent, PublishedEvent, Result, UnreadableEvent};
use std::ops::ControlFlow;

/// An event as the caller submitted it, or why it could not be read.
pub(super) type SubmittedEvent = Result<NewEvent, UnreadableEvent>;

impl CallerContext<'_> {
    /// Publishes one event.
    pub(crate) async fn publish(
        self,
        event: Box<NewEvent>,
        recorder: ReplyRecorder<PublishedEvent>,
    ) -> Result<PublishedEvent> {
        let recorder = recorder.map_answer(|outcomes: &BatchOutcome| outcomes.first().cloned());
        let mut outcomes = self.publish_units(vec![Ok(*event)], Atomicity::PerTopic, recorder).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::new(Kind::Unavailable, "The broker returned no result.")))
    }

    /// Publishes several events, within the limits of a batch; `Err` means that no event was processed. If the events live
    /// in several logs, no reply is recorded.
    pub(crate) async fn publish_batch(
        self,
        events: Vec<SubmittedEvent>,
        atomicity: Atomicity,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        check_size(self.rules, &events)?;
        self.publish_units(events, atomicity, recorder).await
    }

    /// Publishes several events, whatever a batch may hold.
    pub(super) async fn publish_units(
        self,
        events: Vec<SubmittedEvent>,
        atomicity: Atomicity,
        recorder: ReplyRecorder<BatchOutcome>,
    ) -> Result<BatchOutcome> {
        let recorder = &recorder;
        let seen = recorder.is_enabled().then(EventsByPosition::default);
        decide_until_known((events, seen, false), |(mut events, mut seen, is_up_to_date)| async move {
            let items = self.prepare(&events, InspectedParts::All).await?;
            if !is_up_to_date && items.iter().any(Result::is_err) {
                // Another broker may have just registered what is missing here.
                self.logs.default_ledger().refresh().await?;
                if self.logs.default_ledger().log().is_shared() {
                    return Ok(ControlFlow::Continue((events, seen, true)));
                }
            }
            let place = match log_spread(&items) {
                LogSpread::One(place) => place,
                LogSpread::Several if atomicity == Atomicity::All => return Err(spans_logs(&items)),
                LogSpread::Several => {
                    return Ok(ControlFlow::Break(publish_by_log(self, events, &items, atomicity).await));
                }
            };
            if items.iter().all(Result::is_err) {
                return Ok(ControlFlow::Break(items.into_iter().map(refusal).collect()));
            }
            let ledger = self.logs.ledger(&place);
            let types = TypesSource::of(self.logs, &place);
            let released = ReleasedData::release(&mut events, &items);
            let request = PublishEvents::new(items, atomicity, types, seen.clone());
            match ledger.submit_recording(request, recorder.map_answer(PublishDecision::to_answer)).await? {
                PublishDecision::Items(items) => return outcomes(ledger, items).await.map(ControlFlow::Break),
                PublishDecision::NeedsRead(places) => read_stored(ledger, places, &mut seen).await?,
                PublishDecision::Stale => (),
            }
            released.restore(&mut events)?;
            Ok(ControlFlow::Continue((events, seen, true)))
        })
        .await
    }

    /// Prepares events, once the schemas of their types are compiled.
    pub(super) async fn prepare(
        self,
        events: &[SubmittedEvent],
        inspected: InspectedParts,
    ) -> Result<Vec<Result<PreparedEvent, PublishRefusal>>> {
        // Bounded: a cache too small for all schemas of one batch would be filled again and again.
        for _ in 0..=events.len() {
            match self.prepare_compiled(events, inspected) {
                Ok(items) => return Ok(items),
                Err(MissingSchema { event_type, version }) => self.rules.schemas.load(event_type, version).await?,
            };
        }
        Err(Error::new(Kind::Overloaded, "Schemas keep changing under this request; try again.").with_retry_after(1))
    }

    fn prepare_compiled(
        self,
        events: &[SubmittedEvent],
        inspected: InspectedParts,
    ) -> Result<Vec<Result<PreparedEvent, PublishRefusal>>, MissingSchema> {
        let registry = self.logs.default_ledger().registry();
        let now = self.logs.default_ledger().now();
        let context = PrepareContext { policy: self.rules, logs: self.logs, registry: &registry, inspected };
        let mut items = Vec::with_capacity(events.len());
        for event in events {
            let prepared = match event {
                Ok(event) => prepare(context, event, self.caller, now),
                Err(unread) => Err(PrepareError::Refused(refuse_unread(context, unread))),
            };
            items.push(match prepared {
                Ok(prepared) => Ok(prepared),
                Err(PrepareError::Refused(refused)) => Err(refused),
                Err(PrepareError::SchemaMissing(missing)) => return Err(missing),
            });
        }
        Ok(items)
    }
}

fn refusal(item: Result<PreparedEvent, PublishRefusal>) -> Result<PublishedEvent> {
    Err(item.err().map_or_else(aborted, |refused| refused.error))
}

pub(super) fn check_size(policy: &PublishRules, events: &[SubmittedEvent]) -> Result<()> {
    let config = &policy.config;
    if events.is_empty() {
        return Err(Error::invalid("/events", "must hold at least one event"));
    }
    if events.len() > config.batch.max_size {
        let detail = format!("A batch may hold {} events; split it.", config.batch.max_size);
        return Err(Error::new(Kind::BatchTooLarge, detail));
    }
    // A single event is held to the limit of an event, not to that of a batch.
    let bytes: usize = events.iter().flatten().map(|event| event.data.get().len()).sum();
    if events.len() > 1 && bytes > config.batch.max_payload_bytes {
        let detail = format!("A batch may hold {} bytes; split it.", config.batch.max_payload_bytes);
        return Err(Error::new(Kind::BatchTooLarge, detail));
    }
    Ok(())
}
