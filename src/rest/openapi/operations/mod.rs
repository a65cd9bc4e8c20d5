//! Operations: a file per resource, as beside it in `rest`.

mod claims;
mod consumers;
mod dead_letters;
mod event_types;
mod events;
mod pages;
mod projections;
mod reading;
mod subscriptions;
mod topics;

use super::DocumentLimits;
use super::operation_spec::OperationSpec;

/// The chapters, in order.
pub(super) const TAGS: [(&str, &str); 10] = [
    (events::TAG, "Publish events: one, several, or history."),
    (reading::TAG, "Read events: a topic, an aggregate, one event, the whole log; now, or as soon as there are any."),
    (topics::TAG, "Topics: named append-only streams with their own order and retention."),
    (event_types::TAG, "Event types: what events of a name may look like, version by version."),
    (consumers::TAG, "Consumers and groups: who reads through which filter, and how far a group has come."),
    (claims::TAG, "Claims and handlers: who works on which event, so that its effect happens once."),
    (dead_letters::TAG, "Dead letters: work that was given up, to be redriven or discarded."),
    (subscriptions::TAG, "Subscriptions, jobs and pools: events pushed to URLs, in order, signed, retried."),
    (projections::TAG, "Projections: how far views have come, and waiting for them."),
    (pages::TAG, "Health, this document, and the pages for people."),
];

/// Every operation.
pub(super) fn all(bounds: &DocumentLimits) -> Vec<OperationSpec> {
    let chapters = [
        (events::TAG, events::all(bounds)),
        (reading::TAG, reading::all(bounds)),
        (topics::TAG, topics::all()),
        (event_types::TAG, event_types::all()),
        (consumers::TAG, consumers::all()),
        (claims::TAG, claims::all()),
        (dead_letters::TAG, dead_letters::all()),
        (subscriptions::TAG, subscriptions::all()),
        (projections::TAG, projections::all(bounds)),
        (pages::TAG, pages::all()),
    ];
    chapters.into_iter().flat_map(|(tag, operations)| operations.into_iter().map(move |it| it.tag(tag))).collect()
}
