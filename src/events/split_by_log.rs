//! Batches whose events live in several logs: each log decides its part.
//!
//! - One decision cannot span logs, so an all-or-nothing batch over several logs is refused as a whole.
//! - Results are in the order of the request. A part that one log refuses, or cannot process, does not affect the others.

use super::caller_context::CallerContext;
use super::prepare::{PreparedEvent, PublishRefusal};
use super::publish::SubmittedEvent;
use crate::ledger::ReplyRecorder;
use crate::logs::LogRef;
use contract::{Atomicity, BatchOutcome, Error, Kind, PublishedEvent, Result, Violation};
use futures_util::future::join_all;

/// Which logs a request concerns.
pub(super) enum LogSpread {
    One(LogRef),
    Several,
}

/// Events without a known topic may be assigned to any log.
pub(super) fn log_spread(items: &[Result<PreparedEvent, PublishRefusal>]) -> LogSpread {
    let mut places = items.iter().filter_map(place_of);
    let Some(first) = places.next() else { return LogSpread::One(LogRef::Default) };
    match places.all(|place| place == first) {
        true => LogSpread::One(first.clone()),
        false => LogSpread::Several,
    }
}

/// The refusal of an all-or-nothing batch over several logs.
pub(super) fn spans_logs(items: &[Result<PreparedEvent, PublishRefusal>]) -> Error {
    let first = items.iter().find_map(place_of);
    let elsewhere = items.iter().enumerate().filter(|(_, item)| place_of(item).is_some_and(|it| Some(it) != first));
    let detail = "lives in another log than the first event; one decision cannot span both";
    let violations = elsewhere.map(|(index, _)| Violation::new(format!("/events/{index}"), detail)).collect();
    let detail = "The events live in several logs, so they cannot be stored all or none: split the batch.";
    Error::new(Kind::Validation, detail).with_violations(violations)
}

/// Publishes each part to its log, all at the same time.
pub(super) async fn publish_by_log(
    publisher: CallerContext<'_>,
    events: Vec<SubmittedEvent>,
    items: &[Result<PreparedEvent, PublishRefusal>],
    atomicity: Atomicity,
) -> BatchOutcome {
    let mut parts: Vec<(Option<&LogRef>, Vec<usize>, Vec<SubmittedEvent>)> = Vec::new();
    let total = events.len();
    for (index, (event, item)) in events.into_iter().zip(items).enumerate() {
        let place = place_of(item);
        match parts.iter_mut().find(|(known, ..)| *known == place) {
            Some((_, indexes, part)) => {
                indexes.push(index);
                part.push(event);
            }
            None => parts.push((place, vec![index], vec![event])),
        }
    }
    let answers = parts.into_iter().map(|(_, indexes, part)| async {
        // Boxed because it is recursive: a part may be split again, if routes of its types have just changed.
        let outcome = Box::pin(publisher.publish_units(part, atomicity, ReplyRecorder::disabled())).await;
        (indexes, outcome)
    });
    in_order(total, join_all(answers).await)
}

fn in_order(total: usize, answers: Vec<(Vec<usize>, Result<BatchOutcome>)>) -> BatchOutcome {
    let mut outcomes: Vec<Result<PublishedEvent>> = Vec::new();
    outcomes.resize_with(total, || Err(Error::new(Kind::Unavailable, "The broker returned no result.")));
    for (indexes, answer) in answers {
        let answer = answer.unwrap_or_else(|error| vec![Err(error); indexes.len()]);
        for (index, outcome) in indexes.into_iter().zip(answer) {
            if let Some(place) = outcomes.get_mut(index) {
                *place = outcome;
            }
        }
    }
    outcomes
}

fn place_of(item: &Result<PreparedEvent, PublishRefusal>) -> Option<&LogRef> {
    match item {
        Ok(prepared) => Some(&prepared.place),
        Err(refused) => refused.topic.as_ref().map(|(place, _)| place),
    }
}
