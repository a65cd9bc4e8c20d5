//! Operations: a file per resource, as in `rest`.

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

/// The tags, in their order.
pub(super) const TAGS: [(&str, &str); 10] = [
    (events::TAG, "Publish events: one, several, or history."),
    (
        reading::TAG,
        "Read events: of a topic, of an aggregate, one event, or the whole log; at once, or waiting for new \
        ones.",
    ),
    (topics::TAG, "Topics: named append-only streams with their own order and retention."),
    (event_types::TAG, "Event types: named kinds of events, with versions of their schemas."),
    (consumers::TAG, "Consumers and groups: readers with filters, and the offsets of groups."),
    (claims::TAG, "Claims and handlers: work on events that is done once per event."),
    (dead_letters::TAG, "Dead letters: failed work, to be redriven or discarded."),
    (subscriptions::TAG, "Subscriptions, jobs and pools: signed deliveries of events to URLs, in order, with retries."),
    (projections::TAG, "Projections: checkpoints of views, and waiting for them."),
    (pages::TAG, "Health, this document, and its web page."),
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
