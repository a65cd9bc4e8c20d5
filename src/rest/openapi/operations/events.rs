//! Publishing.

use crate::rest::openapi::DocumentLimits;
use crate::rest::openapi::examples;
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, timeout};
use crate::rest::openapi::schema_spec::{any_of, any_text, enumeration, schema_ref};
use contract::{Kind, limits};
use serde_json::json;
use utoipa::openapi::HttpMethod::Post;

pub(super) const TAG: &str = "Publish";

const CLOUD_EVENT: &str = "application/cloudevents+json";
const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";

pub(super) fn all(bounds: &DocumentLimits) -> Vec<OperationSpec> {
    vec![publish(bounds), batch(bounds), import()]
}

const PUBLISH: &str = "Stores one event. A response of 201 or 200 means that it is on disk.

A duplicate gets the stored event (200, `Idempotent-Replayed`). Two submissions are duplicates if these are equal:

- with a `deduplicationId`: `deduplicationId`, topic and `tenant`;
- without: `id`, topic, `type`, `tenant`, `subject`, `occurredAt` and `Producer-Id`;
- in a topic with `deduplicateBy: id`: `id`, topic and `tenant`, whatever else is sent.

A topic remembers them for its `idempotentRetention`, 24 hours by default.

An event that seems to contain a secret is stored and flagged (`Secret-Suspected`), or refused with the pointers in `errors`, \
according to `secrets` of its topic.

CloudEvents are accepted in all three modes. In binary mode the attributes are `ce-` headers (`ce-specversion: 1.0`, \
`ce-type`, `ce-source`, …), percent-encoded, and the body is `data`. Several CloudEvents in one body are a batch, with the response of a batch (207).";

const WAIT: &str = "How long to wait for the projections of `waitFor`.";

const ONE_EVENT: &str = "An event, or CloudEvents. `application/json` where no `Content-Type` is given.";

fn publish(bounds: &DocumentLimits) -> OperationSpec {
    let stored = "A duplicate; the response is the stored event.";
    operation(Post, "/v1/events", "publishEvent", "Publish one event")
        .about(PUBLISH)
        .shared_parameters(&["Producer-Id", "waitFor"])
        .parameter(timeout(bounds, bounds.wait_default, WAIT))
        .body(
            BodySpec::about(ONE_EVENT)
                .of(JSON, "EventInput", examples::new_event())
                .of(CLOUD_EVENT, "CloudEvent", examples::cloud_event())
                .of(CLOUD_EVENTS, "CloudEvents", json!([examples::cloud_event()])),
        )
        .response(
            201,
            ResponseSpec::json("Stored.", "Event", examples::event()).with(&[
                "Location",
                "Deprecation",
                "Secret-Suspected",
            ]),
        )
        .response(
            200,
            ResponseSpec::json(stored, "Event", examples::event()).with(&[
                "Location",
                "Idempotent-Replayed",
                "Payload-Mismatch",
                "Deprecation",
                "Secret-Suspected",
            ]),
        )
        .response(207, ResponseSpec::json("The result of each CloudEvent.", "BatchOutcome", examples::batch_outcome()))
        .problems(&[Kind::InvalidType, Kind::InvalidSequence, Kind::BatchTooLarge, Kind::NotAcceptable])
        .problems(&[Kind::SequenceExists, Kind::ExpectedSequence, Kind::EventIdReuse, Kind::Trimmed])
        .problems(&[Kind::PayloadTooLarge, Kind::Validation, Kind::ProjectionTimeout])
}

fn batch(bounds: &DocumentLimits) -> OperationSpec {
    let about = format!(
        "Stores up to {} events, of at most {} bytes together. The events of one topic are stored together or not at \
            all: if one is refused, the others of the topic get 424 and are not stored. With `atomic=all` this applies \
            to the whole request. Duplicates count as succeeded and abort nothing. The response has a result for each \
            event, in the order of the request.",
        bounds.batch_max, bounds.batch_bytes_max
    );
    let atomic = "Store all events or none, across topics.";
    operation(Post, "/v1/events:batch", "publishBatch", "Publish several events")
        .about(about)
        .parameter(optional_query("atomic", enumeration(&["all"], atomic), atomic, "all"))
        .shared_parameters(&["Producer-Id", "waitFor"])
        .parameter(timeout(bounds, bounds.wait_default, WAIT))
        .body(
            BodySpec::about("The events. `application/json` where no `Content-Type` is given.")
                .of(JSON, "BatchInput", examples::new_batch())
                .of(CLOUD_EVENTS, "CloudEvents", json!([examples::cloud_event()])),
        )
        .response(207, ResponseSpec::json("The result of each event.", "BatchOutcome", examples::batch_outcome()))
        .problems(&[Kind::BatchTooLarge, Kind::NotAcceptable, Kind::Validation, Kind::ProjectionTimeout])
}

fn import() -> OperationSpec {
    let about = format!(
        "Loads history: any number of events, one per line, in their order, as they are published or as they were \
        read from a broker (lines with a `position`). `occurredAt` and ids are kept. Events read from a broker remain as many \
        events as they were, even if they share an idempotency key; republished copies stay copies. `renumbered` counts \
        those that get another sequence than they had. Each line is independent: a refused line is reported by its number, and \
        all others are stored. The response begins before the body ends and reports the progress, line by \
        line; its last line has `done` and the totals. A client may send everything before it reads: refusals that \
        find no room by then are counted in `unreported` instead of reported. Repeat an interrupted import as a whole. \
        A line may have at most {} bytes; a longer one is refused.",
        limits::EVENT_BYTES_MAX + 64 * 1024
    );
    let lines = || any_text("Events as JSON, one per line.").example(examples::import_lines());
    let one = any_of([schema_ref("EventInput"), schema_ref("Event")], "A single event.").example(examples::new_event());
    let report = any_text("Lines of JSON: refusals by line number, and the progress of the import.");
    let mut body = BodySpec::about("Events as JSON, one per line; the body may be empty.").or_none().shaped(
        JSON,
        one,
        examples::new_event(),
    );
    for media in ["application/x-ndjson", "application/ndjson", "application/jsonl"] {
        body = body.shaped(media, lines(), examples::import_lines());
    }
    let progress = ResponseSpec::about("The progress, while the import runs.");
    operation(Post, "/v1/events:import", "importEvents", "Load history")
        .about(about)
        .body(body)
        .response(
            200,
            progress.shaped(
                "application/x-ndjson",
                report.example(examples::import_report()),
                examples::import_report(),
            ),
        )
        .problems(&[Kind::Validation])
}
