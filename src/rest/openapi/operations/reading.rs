//! Reading.

use crate::rest::openapi::DocumentLimits;
use crate::rest::openapi::examples::{self, EVENT_ID, SUBJECT, SUBJECT_TYPE, TOPIC};
use crate::rest::openapi::operation_spec::{JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{FILTERS, header, optional_query, path, read_start, required_query, timeout};
use crate::rest::openapi::schema_spec::{SchemaSpec, any_of, any_text, enumeration, number, object, patterned, uuid};
use crate::rest::openapi::schemas::{NUMBER_MAX, ids};
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::Get;
use utoipa::openapi::Required;

pub(super) const TAG: &str = "Read";

const CLOUD_EVENT: &str = "application/cloudevents+json";
const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";

pub(super) fn all(bounds: &DocumentLimits) -> Vec<OperationSpec> {
    vec![list(), poll(bounds), stream(), show(), log(bounds), aggregate(), aggregate_events()]
}

/// The refusals of reading a topic.
const REFUSED: [Kind; 7] = [
    // A read with `consumer_id` extends a session and may take claims, so pages of other origins must not send it.
    Kind::Forbidden,
    Kind::InvalidOffset,
    Kind::InvalidType,
    Kind::NotFound,
    Kind::NotAcceptable,
    Kind::Trimmed,
    Kind::Validation,
];

const FILTERED: &str = "Values of one filter are alternatives; different filters must all match. With `consumer_id` the \
    consumer's topic and filters are used, and those of the query are ignored.";

fn page() -> ResponseSpec {
    ResponseSpec::json("Events, in order.", "EventPage", examples::event_page())
        .of(CLOUD_EVENTS, "StoredCloudEvents", json!([examples::stored_cloud_event()]))
        .with(&["Next-Offset", "Tail"])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/events", "listEvents", "Read a topic")
        .about(format!(
            "The stored events after `offset`, in the order of the topic. Continue with `nextOffset`, which also moves \
                past events that do not match. {FILTERED} As CloudEvents the body is a plain list, and the headers tell \
                the next offset."
        ))
        .shared_parameters(&["Accept", "read.topic", "consumer_id", "offset", "limit"])
        .shared_parameters(&FILTERS)
        .response(200, page())
        .problems(&REFUSED)
}

fn poll(bounds: &DocumentLimits) -> OperationSpec {
    operation(Get, "/v1/events:poll", "pollEvents", "Wait for events of a topic")
        .about(format!(
            "The events after `offset`. If there are none, the request waits for the next one, and returns an empty list \
                after `timeout` (at most {} seconds). A new event ends the wait at once. A poll of a consumer extends \
                its session. {FILTERED}",
            bounds.wait_max
        ))
        .shared_parameters(&["Accept", "read.topic", "consumer_id", "offset", "limit"])
        .parameter(timeout(bounds, bounds.wait_default, "How long to wait for events."))
        .shared_parameters(&FILTERS)
        .response(200, page())
        .problems(&REFUSED)
}

/// One parsed event of a stream.
fn server_sent_event() -> SchemaSpec {
    let event = examples::event().to_string();
    object("One event of the stream.")
        .optional("id", patterned("^[1-9][0-9]*$", "The sequence; a `problem` has none.").example("12345"))
        .optional(
            "event",
            enumeration(&["message", "problem"], "`problem`: the stream cannot continue.").example("message"),
        )
        .required("data", any_text("The event as JSON, or the problem.").example(event.clone()))
        .example(json!({"id": "12345", "event": "message", "data": event}))
}

fn stream() -> OperationSpec {
    let last = "The `id` of the last event received: the stream continues after it. Takes precedence over `offset`.";
    let form = "The accepted media type.";
    let start = "The start of the stream: after this sequence, or at `earliest` or `latest`. Without it and without \
        `Last-Event-ID`, the stream starts at the tail.";
    let sequence = || number(0..=NUMBER_MAX, "A sequence, or 0.");
    let whole = any_text("The stream as text.").example(examples::event_stream());
    let shape = "Server-Sent Events, as text or, for tools that parse them, as objects.";
    let text = any_of([whole, server_sent_event()], shape).example(examples::event_stream());
    operation(Get, "/v1/events:stream", "streamEvents", "Follow a topic")
        .about(format!(
            "An endless stream of Server-Sent Events: `id` is the sequence, `data` the event. While there are no events, \
                a comment is sent every 15 seconds. The stream ends when the server shuts down, and with an event \
                `problem` if it cannot continue. {FILTERED}"
        ))
        .parameter(header("Accept", enumeration(&["text/event-stream"], form), form, "text/event-stream"))
        .parameter(header("Last-Event-ID", sequence(), last, 12_345))
        .parameter(read_start("offset", Required::False, start, "earliest"))
        .shared_parameters(&["read.topic", "consumer_id", "limit"])
        .shared_parameters(&FILTERS)
        .response(
            200,
            ResponseSpec::about("The events, as they are stored.")
                .shaped("text/event-stream", text, examples::event_stream())
                .with(&["Cache-Control"]),
        )
        .problems(&REFUSED)
}

fn show() -> OperationSpec {
    operation(Get, "/v1/events/{id}", "getEvent", "Read one event")
        .about("The event first stored under this id. An invalid UUID is not found.")
        .parameter(path("id", uuid("The event's id."), "The event's id.", EVENT_ID))
        .shared_parameters(&["Accept"])
        .response(
            200,
            ResponseSpec::json("The event.", "Event", examples::event()).of(
                CLOUD_EVENT,
                "StoredCloudEvent",
                examples::stored_cloud_event(),
            ),
        )
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn log(bounds: &DocumentLimits) -> OperationSpec {
    let after = "The last position received; the response starts after it. `earliest`, 0 or absent: from the beginning. \
        `latest`: only events stored from now on.";
    operation(Get, "/v1/log", "readLog", "Read all topics in one order")
        .about(
            "The events of all topics of the default log, in order of `position`. Positions have gaps, because the \
                broker's own entries have positions, too.",
        )
        .parameter(read_start("after", Required::False, after, 20_000))
        .shared_parameters(&["Accept", "limit"])
        .parameter(timeout(bounds, 0, "How long to wait for events."))
        .shared_parameters(&FILTERS)
        .response(
            200,
            ResponseSpec::about("Events, in order.")
                .of(JSON, "LogPage", examples::log_page())
                .of(CLOUD_EVENTS, "StoredCloudEvents", json!([examples::stored_cloud_event()]))
                .with(&["Next-Offset", "Tail"]),
        )
        .problems(&[Kind::InvalidType, Kind::NotAcceptable, Kind::Trimmed, Kind::Validation])
}

const KIND: &str = "The subject type; `-` for events without one.";

fn about_aggregate(operation: OperationSpec) -> OperationSpec {
    let subject = "The subject, percent-encoded if necessary.";
    operation
        .parameter(path("subject_type", ids::subject_type_or_none("A type."), KIND, SUBJECT_TYPE))
        .parameter(path("subject", any_text(subject).not_empty(), subject, SUBJECT))
        .parameter(required_query(
            "topic",
            ids::topic_id("The topic."),
            "The topic. Aggregates are counted per topic.",
            TOPIC,
        ))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn aggregate() -> OperationSpec {
    let operation =
        operation(Get, "/v1/aggregates/{subject_type}/{subject}", "getAggregate", "Read an aggregate's last sequence")
            .about(
                "The aggregate's last sequence, which is the value for `expectedAggregateSequence`, and its last \
                event.",
            );
    let answer = ResponseSpec::json("The aggregate.", "Aggregate", examples::aggregate());
    about_aggregate(operation).response(200, answer)
}

fn aggregate_events() -> OperationSpec {
    let after = "The last `aggregateSequence` received; the response starts after it.";
    let operation =
        operation(Get, "/v1/aggregates/{subject_type}/{subject}/events", "listAggregateEvents", "Read one aggregate")
            .about("The events of one aggregate, in their order. An unknown aggregate has none.")
            .parameter(optional_query("after", number(0..=NUMBER_MAX, after).default_value(0), after, 0))
            .shared_parameters(&["limit"]);
    let answer = ResponseSpec::json("Events, in order.", "AggregateEvents", examples::aggregate_events());
    about_aggregate(operation).response(200, answer)
}
