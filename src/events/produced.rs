//! Produced events: they are stored together with something else, such as a completed claim, or not at all.
//!
//! - They are prepared like any event, on the caller's task, and stored by the decision of another module.
//! - The first refused event refuses the whole request, with its own problem and its pointer in the request.
//! - One decision cannot span logs: an event of another log is refused.

use super::caller_context::CallerContext;
use super::prepare::PreparedEvent;
use super::publish::{SubmittedEvent, check_size};
use super::publish_decision::{TypesSource, are_current, decide_event};
use crate::ledger::Decision;
use crate::logs::LogRef;
use crate::secrets::InspectedParts;
use contract::{Error, Kind, NewEvent, Result, Violation};

/// Events that are prepared to be stored with something else.
pub(crate) struct ProducedEvents {
    items: Vec<PreparedEvent>,
    /// The pointer to each event in the request.
    pointers: Vec<String>,
    types: TypesSource,
}

/// The outcome, if no event was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProducedOutcome {
    /// Its events are part of the decision.
    Stored,
    /// A definition changed since they were prepared: prepare them again.
    Stale,
}

impl CallerContext<'_> {
    /// Prepares events that are to be stored in `place`; `pointer` returns the pointer to the event with an index.
    pub(crate) async fn prepare_produced(
        self,
        events: Vec<NewEvent>,
        place: &LogRef,
        pointer: impl Fn(usize) -> String,
        inspected: InspectedParts,
    ) -> Result<ProducedEvents> {
        let pointers = (0..events.len()).map(pointer).collect();
        let types = TypesSource::of(self.logs, place);
        let mut produced = ProducedEvents { items: Vec::with_capacity(events.len()), pointers, types };
        if events.is_empty() {
            return Ok(produced);
        }
        let events: Vec<SubmittedEvent> = events.into_iter().map(Ok).collect();
        check_size(self.rules, &events)?;
        let mut items = self.prepare(&events, inspected).await?;
        if items.iter().any(Result::is_err) {
            // Another broker may have just registered what is missing here.
            self.logs.default_ledger().refresh().await?;
            items = self.prepare(&events, inspected).await?;
        }
        for (index, item) in items.into_iter().enumerate() {
            let prepared = item.map_err(|refused| produced.at(index, &refused.error))?;
            if prepared.place != *place {
                let detail = "lives in another log than the claim; one decision cannot span both";
                return Err(produced.at(index, &Error::invalid("", detail)));
            }
            produced.items.push(prepared);
        }
        Ok(produced)
    }
}

impl ProducedEvents {
    /// Adds the events to a decision. If it refuses, some may have been added: undo them.
    pub(crate) fn decide(&self, decision: &mut Decision<'_>) -> Result<ProducedOutcome> {
        if !are_current(self.items.iter(), &self.types, decision) {
            return Ok(ProducedOutcome::Stale);
        }
        for (index, item) in self.items.iter().enumerate() {
            decide_event(item, decision).map_err(|error| self.at(index, &error))?;
        }
        Ok(ProducedOutcome::Stored)
    }

    /// Their approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.items.iter().map(|prepared| prepared.draft.text.len() + size_of::<PreparedEvent>()).sum()
    }

    /// Moves a refusal to the event's place in the request.
    fn at(&self, index: usize, error: &Error) -> Error {
        let pointer = self.pointers.get(index).map_or("", String::as_str);
        let mut violations: Vec<_> = error.violations().to_vec();
        if violations.is_empty() {
            violations.push(Violation::new("", error.detail()));
        }
        let moved = violations.into_iter().map(|Violation { pointer: inner, detail }| {
            // A pointer to the whole event is the pointer to its place.
            Violation { pointer: format!("{pointer}{inner}"), detail }
        });
        let moved = moved.collect();
        match error.kind() {
            Kind::Validation => Error::new(Kind::Validation, "An event of the request breaks the rules; see `errors`.")
                .with_violations(moved),
            _ => error.clone().with_violations(moved),
        }
    }
}
