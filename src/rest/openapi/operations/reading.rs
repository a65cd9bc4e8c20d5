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

/// What reading a topic can be refused with.
const REFUSED: [Kind; 7] = [
    // A read by `consumer_id` extends a session and may take claims, so pages of other origins may not ask for it.
    Kind::Forbidden,
    Kind::InvalidOffset,
    Kind::InvalidType,
    Kind::NotFound,
    Kind::NotAcceptable,
    Kind::Trimmed,
    Kind::Validation,
];

const FILTERED: &str = "Filters narrow it: a repeated one widens, different ones narrow. With `consumer_id` the consumer's \
    topic and filters take the place of those of the query, which are then passed over.";

fn page() -> ResponseSpec {
    ResponseSpec::json("Events, in order.", "EventPage", examples::event_page())
        .of(CLOUD_EVENTS, "StoredCloudEvents", json!([examples::stored_cloud_event()]))
        .with(&["Next-Offset", "Tail"])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/events", "listEvents", "Read a topic")
        .about(format!(
            "What is there now behind `offset`, in the topic's order. Go on at `nextOffset`, which moves also where nothing \
            matched. {FILTERED} As CloudEvents the body is a bare list, and the headers say where to go on."
        ))
        .shared_parameters(&["Accept", "read.topic", "consumer_id", "offset", "limit"])
        .shared_parameters(&FILTERS)
        .response(200, page())
        .problems(&REFUSED)
}

fn poll(bounds: &DocumentLimits) -> OperationSpec {
    operation(Get, "/v1/events:poll", "pollEvents", "Wait for events of a topic")
        .about(format!(
            "What is there behind `offset`, or as soon as there is something, or an empty list when `timeout` ({} seconds at \
            most) is up. The append wakes it, not a timer. Polling as a consumer begins its session anew. {FILTERED}",
            bounds.wait_max
        ))
        .shared_parameters(&["Accept", "read.topic", "consumer_id", "offset", "limit"])
        .parameter(timeout(bounds, bounds.wait_default, "How long to wait for events."))
        .shared_parameters(&FILTERS)
        .response(200, page())
        .problems(&REFUSED)
}

/// One event of a stream, taken apart.
fn server_sent_event() -> SchemaSpec {
    let event = examples::event().to_string();
    object("One of the events.")
        .optional("id", patterned("^[1-9][0-9]*$", "The sequence; a `problem` has none.").example("12345"))
        .optional(
            "event",
            enumeration(&["message", "problem"], "`problem` where the stream cannot go on.").example("message"),
        )
        .required("data", any_text("The event as JSON, or the problem.").example(event.clone()))
        .example(json!({"id": "12345", "event": "message", "data": event}))
}

fn stream() -> OperationSpec {
    let last = "The `id` of the last event seen: the stream goes on behind it. Beats `offset`.";
    let form = "Which form of answer the caller takes.";
    let start = "Where the stream begins: behind the last sequence seen, or at `earliest` or `latest`. With neither it nor \
        `Last-Event-ID` it begins at the tail.";
    let sequence = || number(0..=NUMBER_MAX, "A sequence, or 0.");
    let whole = any_text("The stream as it comes.").example(examples::event_stream());
    let shape = "Server-Sent Events: text, or, for tools that take the text apart, these.";
    let text = any_of([whole, server_sent_event()], shape).example(examples::event_stream());
    operation(Get, "/v1/events:stream", "streamEvents", "Follow a topic")
        .about(format!(
            "Server-Sent Events without end: `id` is the sequence, `data` the event. A comment comes every 15 seconds while \
            nothing happens. The stream ends when the server shuts down, and with an event `problem` where it cannot go on. \
            {FILTERED}"
        ))
        .parameter(header("Accept", enumeration(&["text/event-stream"], form), form, "text/event-stream"))
        .parameter(header("Last-Event-ID", sequence(), last, 12_345))
        .parameter(read_start("offset", Required::False, start, "earliest"))
        .shared_parameters(&["read.topic", "consumer_id", "limit"])
        .shared_parameters(&FILTERS)
        .response(
            200,
            ResponseSpec::about("Events, as they come.")
                .shaped("text/event-stream", text, examples::event_stream())
                .with(&["Cache-Control"]),
        )
        .problems(&REFUSED)
}

fn show() -> OperationSpec {
    operation(Get, "/v1/events/{id}", "getEvent", "Read one event")
        .about("The event first stored under this id. An id that is no UUID is not found.")
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
    let after = "The last position seen; the answer starts behind it. `earliest`, 0 or nothing: from the beginning; \
        `latest`: only what is stored from now on.";
    operation(Get, "/v1/log", "readLog", "Read all topics in one order")
        .about(
            "The events of all topics of the default log, in order of `position`. Positions may have holes: the broker's own \
            entries have numbers too."
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

const KIND: &str = "What kind of thing it is; `-` for events that name no subject type.";

fn about_aggregate(operation: OperationSpec) -> OperationSpec {
    let subject = "What it is about; percent-encoded where it must be.";
    operation
        .parameter(path("subject_type", ids::subject_type_or_none("A type."), KIND, SUBJECT_TYPE))
        .parameter(path("subject", any_text(subject).not_empty(), subject, SUBJECT))
        .parameter(required_query(
            "topic",
            ids::topic_id("The topic."),
            "The topic: aggregates count per topic.",
            TOPIC,
        ))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn aggregate() -> OperationSpec {
    let operation =
        operation(Get, "/v1/aggregates/{subject_type}/{subject}", "getAggregate", "Read an aggregate's last sequence")
            .about("The aggregate's last number, and its last event. What to give as `expectedAggregateSequence`.");
    let answer = ResponseSpec::json("Where it stands.", "Aggregate", examples::aggregate());
    about_aggregate(operation).response(200, answer)
}

fn aggregate_events() -> OperationSpec {
    let after = "The last `aggregateSequence` seen; the answer starts behind it.";
    let operation =
        operation(Get, "/v1/aggregates/{subject_type}/{subject}/events", "listAggregateEvents", "Read one aggregate")
            .about("The events about one thing, in its own order. A thing nobody spoke of has none.")
            .parameter(optional_query("after", number(0..=NUMBER_MAX, after).default_value(0), after, 0))
            .shared_parameters(&["limit"]);
    let answer = ResponseSpec::json("Events, in order.", "AggregateEvents", examples::aggregate_events());
    about_aggregate(operation).response(200, answer)
}
