//! Subscriptions, dispatch jobs and pools.

use super::ids::{duration, pattern, topic_id, version};
use super::{NUMBER_MAX, credentials, list_page};
use crate::rest::openapi::examples::subscriptions::{self as examples, CODE, JOB_ID, POOL, SUBSCRIPTION_ID};
use crate::rest::openapi::examples::{EVENT_ID, at_pointer, page_of};
use crate::rest::openapi::schema_spec::{
    SchemaSpec, any_of, any_text, any_value, boolean, described_ref, enumeration, list, nullable_ref, number, object,
    patterned, schema_ref, text_up_to, time, uuid,
};
use contract::{JobStatus, limits};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<(&'static str, SchemaSpec)> {
    vec![
        ("SubscriptionInput", new_subscription()),
        ("SubscriptionChange", change()),
        ("Subscription", subscription()),
        ("SubscriptionMade", made()),
        ("Subscriptions", list_page("Subscription", "A page of subscriptions.", page_of(&examples::subscription()))),
        ("TypeBinding", binding()),
        ("Signing", signing()),
        ("DeliveryAuth", credentials::auth()),
        ("StartFrom", start_from()),
        ("Pause", pause()),
        ("PauseOrder", pause_order()),
        ("RotateOrder", rotate_order()),
        ("SecretInput", secret()),
        ("ReplayInput", new_replay()),
        ("Replayed", replayed()),
        ("BlockedGroup", group()),
        ("BlockedGroups", list_page("BlockedGroup", "A page of groups.", page_of(&examples::group()))),
        ("GroupVerbs", group_verbs()),
        ("Replay", replay()),
        ("Replays", replays()),
        ("DispatchJob", job()),
        ("DispatchJobs", list_page("DispatchJob", "A page of jobs.", page_of(&examples::job()))),
        ("JobAttempt", attempt()),
        ("JobDeferral", deferral()),
        ("TargetBreaker", breaker()),
        ("AttemptError", attempt_error()),
        ("TaskInput", new_task()),
        ("DispatchState", dispatch_state()),
    ]
}

fn dispatch_state() -> SchemaSpec {
    object("Whether dispatch delivers.")
        .required("status", enumeration(&["ACTIVE", "PAUSED"], "`PAUSED`: nothing is delivered.").example("ACTIVE"))
        .example(json!({"status": "ACTIVE"}))
}

/// The code of a subscription or a pool.
pub(in crate::rest::openapi) fn code(description: &str, example: &str) -> SchemaSpec {
    patterned("^[A-Za-z0-9._-]{1,128}$", description).example(example)
}

/// The status of a job.
pub(in crate::rest::openapi) fn status(description: &str) -> SchemaSpec {
    enumeration(&JobStatus::ALL.map(JobStatus::as_str), description).example("PENDING")
}

fn for_people(description: &str) -> SchemaSpec {
    let description = format!("{description} At most {} characters.", limits::DESCRIPTION_CHARS_MAX);
    any_text(&description).max_length(limits::DESCRIPTION_CHARS_MAX).example("Mails about orders")
}

fn texts(description: &str, example: Value) -> SchemaSpec {
    object(description).additional(any_text("A value.").example("orders")).example(example)
}

fn mode() -> SchemaSpec {
    let description = "The order of the jobs of one message group. `IMMEDIATE`: none. `NEXT_ON_ERROR`: one at a time; \
        after a failure the next job is sent. `BLOCK_ON_ERROR`: one at a time; a job that failed or waits blocks the \
        group.";
    enumeration(&["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"], description).example("BLOCK_ON_ERROR")
}

fn format() -> SchemaSpec {
    enumeration(&["event", "cloudevents-structured", "cloudevents-binary"], "The format of events.").example("event")
}

/// The members that a definition and a change have in common.
fn with_terms(shape: SchemaSpec) -> SchemaSpec {
    let seconds = |min: u32, max: u32, description: &str, example: u32| {
        number(min.into()..=max.into(), description).example(example)
    };
    let schedule = list(
        duration("A duration."),
        "The waits between attempts; the last one is repeated. Each varies randomly by a \
            fifth.",
    );
    let attempts =
        number(1..=limits::ATTEMPTS_MAX.into(), "Most attempts of a job. Default: one more than the number of waits.");
    shape
        .optional_nullable("name", for_people("For information."))
        .optional_nullable("description", for_people("For information."))
        .optional(
            "eventTypes",
            list(schema_ref("TypeBinding"), "The event types. Default: all.").example(json!([examples::binding()])),
        )
        .optional_nullable("filter", any_text("A CEL expression over the event's members.").example("has(data)"))
        .optional_nullable(
            "tenant",
            uuid("Only events of this tenant.").example("550e8400-e29b-41d4-a716-446655440000"),
        )
        .optional("mode", mode())
        .optional_nullable("pool", code("The pool whose concurrency and rate it uses. Default: `default`.", POOL))
        .optional("timeoutSeconds", seconds(1, limits::DELIVERY_SECONDS_MAX, "The time-out of one attempt.", 30))
        .optional(
            "maxAgeSeconds",
            seconds(
                1,
                limits::JOB_SECONDS_MAX,
                "Older jobs expire and become dead letters. The age is counted from arrival, or from the creation of the \
                    subscription if that is later, and again from a redrive or `:retry`.",
                86_400,
            ),
        )
        .optional("delaySeconds", seconds(0, limits::JOB_SECONDS_MAX, "The wait before the first attempt; less than `maxAgeSeconds`.", 0))
        .optional("sequence", seconds(0, 1_000_000, "The priority in the pool: lower numbers first. It rises while jobs \
            wait.", 99))
        .optional_nullable("maxAttempts", attempts.example(8))
        .optional_nullable("retrySchedule", schedule.items(1, limits::SCHEDULE_MAX).example(json!(["PT5S", "PT30S"])))
        .optional("dataOnly", boolean("Whether only `data` is sent.").example(false))
        .optional("format", format())
        .optional("headers", texts("Additional headers.", json!({"x-team": "orders"})))
        .optional("handshake", boolean("Whether the receiver must give its consent first.").example(false))
        .optional("customConfig", texts("Any labels, for information.", json!({"owner": "orders"})))
}

fn target() -> SchemaSpec {
    let description = "The URL to which events are posted. Private and local addresses are refused unless \
            `dispatch.allow_private_targets` is set.";
    text_up_to(limits::TARGET_BYTES_MAX, description).example("https://hooks.invalid/orders")
}

fn new_subscription() -> SchemaSpec {
    let shape = object("The definition of a subscription.")
        .required("code", code("The code of the subscription; not a UUID.", CODE))
        .required("topic", topic_id("The topic whose events are delivered."))
        .required("target", target());
    with_terms(shape)
        .optional(
            "signing",
            nullable_ref("Signing", "How deliveries are signed. Default: with a new secret.").example(Value::Null),
        )
        .optional("auth", nullable_ref("DeliveryAuth", "The credentials of deliveries.").example(Value::Null))
        .optional("startFrom", described_ref("StartFrom", "The start. Default: `latest`."))
        .closed()
        .example(examples::new_subscription())
}

fn change() -> SchemaSpec {
    with_terms(object("A change of a subscription. `null` removes an optional member."))
        .optional("target", target())
        .optional("signing", described_ref("Signing", "The secrets, which replace all previous ones."))
        .optional(
            "auth",
            nullable_ref("DeliveryAuth", "The credentials of deliveries; `null` removes them.").example(Value::Null),
        )
        .closed()
        .example(examples::change())
}

fn standing(shape: SchemaSpec) -> SchemaSpec {
    let shape = shape
        .required("id", uuid("Assigned by the broker.").example(SUBSCRIPTION_ID))
        .required("code", code("The code of the subscription.", CODE))
        .required("topic", topic_id("The topic whose events are delivered."))
        .required("target", target());
    with_terms(shape)
        .optional(
            "authType",
            enumeration(&["bearer", "basic", "apikey", "oauth2", "mtls"], "The type of its credentials.")
                .example("bearer"),
        )
        .required("startFrom", described_ref("StartFrom", "The start."))
        .required("status", enumeration(&["ACTIVE", "PAUSED"], "Whether it delivers events.").example("ACTIVE"))
        .optional("pause", described_ref("Pause", "The pause."))
        .required(
            "settledThrough",
            number(0..=NUMBER_MAX, "All jobs up to this sequence are finished, except open jobs.").example(12_344),
        )
        .required("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or are dead letters.").example(1))
        .optional("held", any_text("Why new jobs wait although it is active.").example("No more jobs may be open."))
        .required("replays", number(0..=NUMBER_MAX, "The number of running replays.").example(0))
        .optional(
            "breaker",
            described_ref(
                "TargetBreaker",
                "The circuit breaker of its target; absent if another broker delivers, or none.",
            ),
        )
        .required("createdAt", time("When it was created.").example("2025-12-03T12:00:00.000Z"))
        .required("updatedAt", time("When it was last changed.").example("2025-12-03T12:00:00.000Z"))
}

fn subscription() -> SchemaSpec {
    standing(object("A subscription. Secrets are never shown.")).example(examples::subscription())
}

fn with_secret(shape: SchemaSpec) -> SchemaSpec {
    let until = "Until when the previous secrets sign, too.";
    shape
        .optional(
            "secret",
            any_text("The secret. It is shown only once.").example("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        )
        .optional(
            "publicKey",
            any_text("The public key with which a receiver verifies v1a.")
                .example("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
        )
        .optional("previousUntil", time(until).example("2025-12-04T12:00:00.000Z"))
}

fn made() -> SchemaSpec {
    with_secret(standing(object("A subscription that was created, with its secret if the broker generated one.")))
        .example(examples::made())
}

fn secret() -> SchemaSpec {
    with_secret(object("A new secret.")).example(examples::secret())
}

fn binding() -> SchemaSpec {
    object("Event types of a subscription.")
        .required("type", pattern("A type, or a pattern of types."))
        .optional_nullable("dataVersion", version("Only events of this schema version."))
        .closed()
        .example(examples::binding())
}

fn signing() -> SchemaSpec {
    let secret = any_text("`whsec_…` signs v1, `whsk_…` signs v1a.").example("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    object("How deliveries are signed.")
        .optional("type", enumeration(&["standard-webhooks"], "The standard.").example("standard-webhooks"))
        .optional(
            "secrets",
            list(secret, "Every secret signs. Default: the broker generates one.")
                .items(0, limits::SIGNING_SECRETS_MAX),
        )
        .closed()
        .example(json!({"type": "standard-webhooks", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}))
}

fn start_from() -> SchemaSpec {
    let word = enumeration(
        &["latest", "earliest"],
        "`latest`: with the next event. `earliest`: with the first stored \
        event.",
    )
    .example("latest");
    let offset = object("After this sequence.")
        .required("offset", number(0..=u64::MAX, "The sequence.").example(12_000))
        .closed()
        .example(json!({"offset": 12_000}));
    let at = object("With the first event stored at this time or later.")
        .required("time", time("The time.").example("2025-12-03T12:00:00Z"))
        .closed()
        .example(json!({"time": "2025-12-03T12:00:00Z"}));
    any_of([word, offset, at], "The start of a subscription.").example("latest")
}

fn pause() -> SchemaSpec {
    object("Why a subscription is paused.")
        .required("since", time("The start of the pause.").example("2025-12-03T12:00:00.000Z"))
        .required("by", any_text("Who paused it; `broker` after a 410 response.").example("broker"))
        .optional("reason", any_text("The reason.").example("The receiver responded with 410 Gone."))
        .example(examples::pause())
}

fn pause_order() -> SchemaSpec {
    object("A pause.")
        .optional_nullable("reason", text_up_to(limits::REASON_BYTES_MAX, "The reason.").example("maintenance"))
        .closed()
        .example(json!({"reason": "maintenance"}))
}

fn rotate_order() -> SchemaSpec {
    let grace = number(0..=limits::GRACE_SECONDS_MAX.into(), "How long the old secrets sign, too. Default: a day.");
    let kind = enumeration(&["symmetric", "asymmetric"], "`whsec_…`, or `whsk_…` with a public key.");
    object("The new secret.")
        .optional_nullable("graceSeconds", grace.example(3600))
        .optional_nullable("kind", kind.example("symmetric"))
        .closed()
        .example(json!({"graceSeconds": 3600}))
}

fn edge(description: &str) -> SchemaSpec {
    let sequence = number(0..=u64::MAX, "A sequence.").example(1);
    any_of([sequence, time("A time.").example("2025-12-03T12:00:00Z")], description).example(1)
}

fn new_replay() -> SchemaSpec {
    object("The range of events to deliver again, both ends included.")
        .required("from", edge("The first event."))
        .optional_nullable("to", edge("The last event. Default: the tail."))
        .optional("dryRun", boolean("Only count the events.").example(true))
        .closed()
        .example(json!({"from": 1, "to": 100, "dryRun": true}))
}

fn replayed() -> SchemaSpec {
    object("The number of events that are delivered again, or would be.")
        .required("count", number(0..=NUMBER_MAX, "The number.").example(42))
        .optional(
            "countIsLowerBound",
            boolean("Whether there may be more: only the first million events are counted.").example(true),
        )
        .optional("replay", uuid("The replay.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .optional(
            "damaged",
            list(
                number(1..=NUMBER_MAX, "A sequence.").example(42),
                "Events of the range that are damaged on disk, the first hundred at most. They are not counted; their \
                deliveries fail.",
            )
            .example(json!([42])),
        )
        .example(json!({"count": 42}))
}

fn group() -> SchemaSpec {
    object("A blocked message group.")
        .required("messageGroup", any_text("`{subscription code}:{group}`."))
        .required("blockedBy", any_text("The job that blocks the group: retry, cancel or complete it.").example(JOB_ID))
        .required("since", time("The start of the pause.").example("2025-12-03T12:00:00.000Z"))
        .required("waiting", number(0..=NUMBER_MAX, "The number of jobs that wait for it.").example(3))
        .optional("waitingIsLowerBound", boolean("Whether more jobs may wait than were counted.").example(true))
        .required("verbs", schema_ref("GroupVerbs"))
        .example(examples::group())
}

fn group_verbs() -> SchemaSpec {
    object("The effect of each action on the blocking job. An absent action would be refused now.")
        .optional("retry", any_text("What `:retry` would do."))
        .optional("cancel", any_text("What `:cancel` would do."))
        .optional("complete", any_text("What `:complete` would do."))
        .example(at_pointer(&examples::group(), "/verbs"))
}

fn replay() -> SchemaSpec {
    object("A running replay.")
        .required("id", uuid("Assigned by the broker."))
        .required("from", number(1..=NUMBER_MAX, "The first sequence."))
        .required("to", number(0..=NUMBER_MAX, "The last sequence."))
        .required(
            "settledThrough",
            number(0..=NUMBER_MAX, "All jobs up to this sequence are finished, except open jobs.").example(12),
        )
        .required("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or are dead letters.").example(0))
        .required("deadJobs", number(0..=NUMBER_MAX, "Those of them that are dead letters.").example(0))
        .required("orderedAt", time("When it was requested."))
        .example(examples::replay())
}

fn replays() -> SchemaSpec {
    object("The running replays of a subscription, oldest first.")
        .required("items", list(schema_ref("Replay"), "One row per replay.").example(json!([examples::replay()])))
        .example(json!({"items": [examples::replay()]}))
}

fn job() -> SchemaSpec {
    object("The duty to deliver one event to one subscription, or one task to a URL.")
        .required("id", any_text("Assigned by the broker.").example(JOB_ID))
        .required("kind", enumeration(&["EVENT", "TASK"], "What it delivers.").example("EVENT"))
        .required("code", any_text("The event's type, or the task's code."))
        .optional("subscription", code("The subscription's code.", CODE))
        .optional("replay", uuid("The replay it belongs to.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .optional("event", uuid("The event.").example(EVENT_ID))
        .optional("topic", topic_id("The event's topic."))
        .optional("sequence", number(1..=NUMBER_MAX, "The event's sequence.").example(12_345))
        .optional("subject", any_text("What the event is about.").example("7"))
        .required("target", target())
        .required("status", status("The status."))
        .optional("messageGroup", any_text("`{subscription code}:{group}`."))
        .required("attempts", list(schema_ref("JobAttempt"), "The last attempts."))
        .optional("scheduledFor", time("The time of the next attempt."))
        .optional("expiresAt", time("When it expires."))
        .optional("deferred", described_ref("JobDeferral", "The deferral by the receiver, while the job waits for it."))
        .optional("deadLetter", uuid("The dead letter of the job.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .optional("eventError", super::dead_letters::event_error())
        .required("createdAt", time("When its event arrived, or the task was created."))
        .example(examples::job())
}

fn attempt() -> SchemaSpec {
    object("An attempt.")
        .required("number", number(1..=NUMBER_MAX, "The number of the attempt.").example(1))
        .required("at", time("When it started.").example("2025-12-03T12:00:00.000Z"))
        .required("durationMs", number(0..=NUMBER_MAX, "The duration in milliseconds.").example(31))
        .optional("status", number(0..=999, "The HTTP status of the response.").example(500))
        .optional("error", described_ref("AttemptError", "The error."))
        .optional("response", any_text("The beginning of the response.").example("oops"))
        .optional("token", number(0..=NUMBER_MAX, "The fencing token.").example(20_072))
        .example(examples::attempt())
}

fn deferral() -> SchemaSpec {
    object("A deferral of a job by its receiver, which does not count as an attempt.")
        .required(
            "count",
            number(1..=NUMBER_MAX, "The number of consecutive deferrals since the last attempt.").example(1),
        )
        .required("reason", any_text("The reason that the receiver gave."))
        .required("at", time("The time of the last deferral."))
        .required("until", time("When the job is sent again."))
        .example(examples::deferral())
}

fn breaker() -> SchemaSpec {
    let state = "CLOSED: the target is called. OPEN: it failed ten times in a row and is not called for a while. \
        HALF_OPEN: one delivery probes it.";
    object("The circuit breaker of a subscription's target, in the broker that delivers.")
        .required("state", enumeration(&["CLOSED", "OPEN", "HALF_OPEN"], state).example("OPEN"))
        .required("failures", number(0..=NUMBER_MAX, "Consecutive failures.").example(10))
        .optional("since", time("When it was opened."))
        .optional("nextTryAt", time("When the next probe is sent."))
        .example(examples::breaker())
}

fn attempt_error() -> SchemaSpec {
    object("The error of an attempt.")
        .required("class", any_text("The class: `timeout`, `http_5xx`, …").example("http_5xx"))
        .required("message", any_text("The message."))
        .example(at_pointer(&examples::attempt(), "/error"))
}

fn new_task() -> SchemaSpec {
    let group = "Tasks of one group keep the order of `mode`.";
    object("A task: a payload to post to a URL.")
        .required(
            "code",
            text_up_to(limits::LABEL_BYTES_MAX, "The code of the task.").not_empty().example("nightly-report"),
        )
        .required("target", target())
        .required("payload", any_value("Any JSON. It is posted as it was sent.").example(json!({"day": 3})))
        .optional_nullable("messageGroup", text_up_to(limits::LABEL_BYTES_MAX, group).not_empty().example("reports"))
        .optional("mode", mode())
        .optional_nullable("pool", code("The pool.", POOL))
        .optional_nullable(
            "scheduledFor",
            time("The earliest time of the first attempt.").example("2099-12-03T12:00:00Z"),
        )
        .closed()
        .example(examples::new_task())
}
