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
    object("Whether anything is delivered.")
        .required("status", enumeration(&["ACTIVE", "PAUSED"], "`PAUSED`: nothing is delivered.").example("ACTIVE"))
        .example(json!({"status": "ACTIVE"}))
}

/// The code of a subscription or a pool.
pub(in crate::rest::openapi) fn code(description: &str, example: &str) -> SchemaSpec {
    patterned("^[A-Za-z0-9._-]{1,128}$", description).example(example)
}

/// How a job stands.
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
    let description = "What order the jobs of one message group keep: none; one at a time, later ones passing one that \
        failed; one at a time, nothing passing one that failed or waits.";
    enumeration(&["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"], description).example("BLOCK_ON_ERROR")
}

fn format() -> SchemaSpec {
    enumeration(&["event", "cloudevents-structured", "cloudevents-binary"], "What an event is sent as.")
        .example("event")
}

/// The members that a definition and a change of it share.
fn with_terms(shape: SchemaSpec) -> SchemaSpec {
    let seconds = |min: u32, max: u32, description: &str, example: u32| {
        number(min.into()..=max.into(), description).example(example)
    };
    let schedule =
        list(duration("A wait."), "The waits between tries; the last one repeats. Differs by a fifth by chance.");
    let attempts =
        number(1..=limits::ATTEMPTS_MAX.into(), "All tries of a job; one more than there are waits when absent.");
    shape
        .optional_nullable("name", for_people("For people."))
        .optional_nullable("description", for_people("For people."))
        .optional(
            "eventTypes",
            list(schema_ref("TypeBinding"), "Which types; all when absent.").example(json!([examples::binding()])),
        )
        .optional_nullable("filter", any_text("A CEL expression over the event's members.").example("has(data)"))
        .optional_nullable(
            "tenant",
            uuid("Only events of this tenant.").example("550e8400-e29b-41d4-a716-446655440000"),
        )
        .optional("mode", mode())
        .optional_nullable("pool", code("Whose concurrency and rate are shared; `default` when absent.", POOL))
        .optional("timeoutSeconds", seconds(1, limits::DELIVERY_SECONDS_MAX, "For one attempt as a whole.", 30))
        .optional(
            "maxAgeSeconds",
            seconds(
                1,
                limits::JOB_SECONDS_MAX,
                "Older jobs expire and are dead letters; counted from arrival, and anew from a redrive or `:retry`.",
                86_400,
            ),
        )
        .optional("delaySeconds", seconds(0, limits::JOB_SECONDS_MAX, "How long an event waits at first.", 0))
        .optional("sequence", seconds(0, 1_000_000, "Who goes first in a pool: the lower. Waiting counts.", 99))
        .optional_nullable("maxAttempts", attempts.example(8))
        .optional_nullable("retrySchedule", schedule.items(1, limits::SCHEDULE_MAX).example(json!(["PT5S", "PT30S"])))
        .optional("dataOnly", boolean("Whether `data` alone is sent.").example(false))
        .optional("format", format())
        .optional("headers", texts("Headers of its own.", json!({"x-team": "orders"})))
        .optional("handshake", boolean("Whether the receiver is asked for its consent first.").example(false))
        .optional("customConfig", texts("For whoever reads it.", json!({"owner": "orders"})))
}

fn target() -> SchemaSpec {
    let description =
        "The URL events are posted to. Private and local ones are refused unless the operator allows them.";
    text_up_to(limits::TARGET_BYTES_MAX, description).example("https://hooks.invalid/orders")
}

fn new_subscription() -> SchemaSpec {
    let shape = object("A subscription as one asks for it.")
        .required("code", code("Its name for programs.", CODE))
        .required("topic", topic_id("The topic whose events are pushed."))
        .required("target", target());
    with_terms(shape)
        .optional(
            "signing",
            nullable_ref("Signing", "How deliveries are signed; with a new secret when absent.").example(Value::Null),
        )
        .optional("auth", nullable_ref("DeliveryAuth", "How deliveries are authorised besides.").example(Value::Null))
        .optional("startFrom", described_ref("StartFrom", "Where it begins; `latest` when absent."))
        .closed()
        .example(examples::new_subscription())
}

fn change() -> SchemaSpec {
    with_terms(object("What is to be different about a subscription; null takes away what may be absent."))
        .optional("target", target())
        .optional("signing", described_ref("Signing", "The secrets, all of them anew."))
        .optional(
            "auth",
            nullable_ref("DeliveryAuth", "How deliveries are authorised; null: not at all.").example(Value::Null),
        )
        .closed()
        .example(examples::change())
}

fn standing(shape: SchemaSpec) -> SchemaSpec {
    let shape = shape
        .required("id", uuid("Made by the broker.").example(SUBSCRIPTION_ID))
        .required("code", code("Its name for programs.", CODE))
        .required("topic", topic_id("The topic whose events are pushed."))
        .required("target", target());
    with_terms(shape)
        .optional(
            "authType",
            enumeration(&["bearer", "basic", "apikey", "oauth2", "mtls"], "How it is authorised.").example("bearer"),
        )
        .required("startFrom", described_ref("StartFrom", "Where it began."))
        .required("status", enumeration(&["ACTIVE", "PAUSED"], "Whether it delivers.").example("ACTIVE"))
        .optional("pause", described_ref("Pause", "Why it does not."))
        .required("settledThrough", number(0..=NUMBER_MAX, "All is settled so far, but for open jobs.").example(12_344))
        .required("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or were given up.").example(1))
        .optional(
            "held",
            any_text("Why jobs that were not tried yet wait, though it is active.")
                .example("No more jobs may be open."),
        )
        .required("replays", number(0..=NUMBER_MAX, "Replays that are running.").example(0))
        .optional(
            "breaker",
            described_ref(
                "TargetBreaker",
                "Whether its target is called; absent where another broker delivers, or none.",
            ),
        )
        .required("createdAt", time("When it was made.").example("2025-12-03T12:00:00.000Z"))
        .required("updatedAt", time("When it was last changed.").example("2025-12-03T12:00:00.000Z"))
}

fn subscription() -> SchemaSpec {
    standing(object("A subscription as it stands. No secret is ever shown.")).example(examples::subscription())
}

fn with_secret(shape: SchemaSpec) -> SchemaSpec {
    let until = "Until when the secrets before it sign too.";
    shape
        .optional("secret", any_text("The secret; shown once.").example("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
        .optional(
            "publicKey",
            any_text("What a receiver verifies v1a with.").example("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
        )
        .optional("previousUntil", time(until).example("2025-12-04T12:00:00.000Z"))
}

fn made() -> SchemaSpec {
    with_secret(standing(object("A subscription that was made, with its secret if the broker made one.")))
        .example(examples::made())
}

fn secret() -> SchemaSpec {
    with_secret(object("A new secret.")).example(examples::secret())
}

fn binding() -> SchemaSpec {
    object("Event types a subscription wants.")
        .required("type", pattern("A type, or a pattern of types."))
        .optional_nullable("dataVersion", version("Only events of this schema version."))
        .closed()
        .example(examples::binding())
}

fn signing() -> SchemaSpec {
    let example = json!({"type": "standard-webhooks", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]});
    let secret = any_text("`whsec_…` signs v1, `whsk_…` signs v1a.").example("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    object("How deliveries are signed.")
        .optional("type", enumeration(&["standard-webhooks"], "By which standard.").example("standard-webhooks"))
        .optional(
            "secrets",
            list(secret, "Every one signs; absent: one is made.")
                .items(0, limits::SIGNING_SECRETS_MAX)
                .example(at_pointer(&example, "/secrets")),
        )
        .closed()
        .example(example)
}

fn start_from() -> SchemaSpec {
    let word = enumeration(&["latest", "earliest"], "With what comes, or with the first there is.").example("latest");
    let offset = object("Behind this sequence.")
        .required("offset", number(0..=u64::MAX, "The sequence.").example(12_000))
        .closed()
        .example(json!({"offset": 12_000}));
    let at = object("With the first event stored at this time or later.")
        .required("time", time("The time.").example("2025-12-03T12:00:00Z"))
        .closed()
        .example(json!({"time": "2025-12-03T12:00:00Z"}));
    any_of([word, offset, at], "Where a subscription begins.").example("latest")
}

fn pause() -> SchemaSpec {
    object("Why a subscription is paused.")
        .required("since", time("Since when.").example("2025-12-03T12:00:00.000Z"))
        .required("by", any_text("Who paused it; `broker` after a 410.").example("broker"))
        .optional("reason", any_text("Why.").example("The receiver answered 410 Gone."))
        .example(examples::pause())
}

fn pause_order() -> SchemaSpec {
    object("Why a subscription is to pause.")
        .optional_nullable("reason", text_up_to(limits::REASON_BYTES_MAX, "Why.").example("maintenance"))
        .closed()
        .example(json!({"reason": "maintenance"}))
}

fn rotate_order() -> SchemaSpec {
    let grace = number(0..=limits::GRACE_SECONDS_MAX.into(), "How long the old secrets sign too; a day when absent.");
    let kind = enumeration(&["symmetric", "asymmetric"], "`whsec_…`, or `whsk_…` with a public key.");
    object("What the new secret is to be.")
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
    object("Which part of the topic is to be delivered once more; both ends are part of it.")
        .required("from", edge("The first event."))
        .optional_nullable("to", edge("The last one; the tail when absent."))
        .optional("dryRun", boolean("Only count.").example(true))
        .closed()
        .example(json!({"from": 1, "to": 100, "dryRun": true}))
}

fn replayed() -> SchemaSpec {
    object("How many events are delivered once more, or would be.")
        .required("count", number(0..=NUMBER_MAX, "How many.").example(42))
        .optional(
            "countIsLowerBound",
            boolean("Whether it may be more: only the first million events were counted.").example(true),
        )
        .optional("replay", uuid("The replay.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .example(json!({"count": 42}))
}

fn group() -> SchemaSpec {
    let example = examples::group();
    object("A message group that does not move.")
        .required(
            "messageGroup",
            any_text("`{subscription code}:{group}`.").example(at_pointer(&example, "/messageGroup")),
        )
        .required(
            "blockedBy",
            any_text("The job that everything waits for: retry, cancel or complete it.").example(JOB_ID),
        )
        .required("since", time("Since when.").example("2025-12-03T12:00:00.000Z"))
        .required("waiting", number(0..=NUMBER_MAX, "How many wait behind it.").example(3))
        .optional("waitingIsLowerBound", boolean("Whether more may wait than were counted.").example(true))
        .required("verbs", schema_ref("GroupVerbs"))
        .example(example)
}

fn group_verbs() -> SchemaSpec {
    let at = |name: &str| at_pointer(&examples::group(), &format!("/verbs/{name}"));
    object("What each verb would do about the job that blocks; one that is absent would be refused now.")
        .optional("retry", any_text("What `:retry` would do.").example(at("retry")))
        .optional("cancel", any_text("What `:cancel` would do.").example(at("cancel")))
        .optional("complete", any_text("What `:complete` would do.").example(at("complete")))
        .example(at_pointer(&examples::group(), "/verbs"))
}

fn replay() -> SchemaSpec {
    let example = examples::replay();
    let at = |pointer: &str| at_pointer(&example, pointer);
    object("A replay that is not over.")
        .required("id", uuid("Made by the broker.").example(at("/id")))
        .required("from", number(1..=NUMBER_MAX, "The first sequence.").example(at("/from")))
        .required("to", number(0..=NUMBER_MAX, "The last sequence.").example(at("/to")))
        .required("settledThrough", number(0..=NUMBER_MAX, "All is settled so far, but for open jobs.").example(12))
        .required("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or were given up.").example(0))
        .required("deadJobs", number(0..=NUMBER_MAX, "Those of them that were given up.").example(0))
        .required("orderedAt", time("When it was ordered.").example(at("/orderedAt")))
        .example(example.clone())
}

fn replays() -> SchemaSpec {
    object("The replays of a subscription that are not over, the oldest first.")
        .required("items", list(schema_ref("Replay"), "One row per replay.").example(json!([examples::replay()])))
        .example(json!({"items": [examples::replay()]}))
}

fn job() -> SchemaSpec {
    let example = examples::job();
    let at = |pointer: &str| at_pointer(&example, pointer);
    object("The duty to deliver one event to one subscription, or one task to a URL.")
        .required("id", any_text("Made by the broker.").example(JOB_ID))
        .required("kind", enumeration(&["EVENT", "TASK"], "What it delivers.").example("EVENT"))
        .required("code", any_text("The event's type, or the task's code.").example(at("/code")))
        .optional("subscription", code("The subscription's code.", CODE))
        .optional("replay", uuid("The replay it belongs to.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .optional("event", uuid("The event.").example(EVENT_ID))
        .optional("topic", topic_id("The event's topic."))
        .optional("sequence", number(1..=NUMBER_MAX, "The event's number there.").example(12_345))
        .optional("subject", any_text("What the event speaks of.").example("7"))
        .required("target", target())
        .required("status", status("How it stands."))
        .optional("messageGroup", any_text("`{subscription code}:{group}`.").example(at("/messageGroup")))
        .required("attempts", list(schema_ref("JobAttempt"), "What was tried, the last ones.").example(at("/attempts")))
        .optional("scheduledFor", time("When it goes next.").example(at("/scheduledFor")))
        .optional("expiresAt", time("When it grows too old.").example(at("/expiresAt")))
        .optional("deferred", described_ref("JobDeferral", "That the receiver put it off, while it waits for that."))
        .optional("deadLetter", uuid("The dead letter it became.").example("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .required("createdAt", time("When its event arrived, or it was asked for.").example(at("/createdAt")))
        .example(example)
}

fn attempt() -> SchemaSpec {
    object("One try of a job.")
        .required("number", number(1..=NUMBER_MAX, "Which one.").example(1))
        .required("at", time("When it began.").example("2025-12-03T12:00:00.000Z"))
        .required("durationMs", number(0..=NUMBER_MAX, "How long it took.").example(31))
        .optional("status", number(0..=999, "The receiver's status.").example(500))
        .optional("error", described_ref("AttemptError", "What went wrong."))
        .optional("response", any_text("The beginning of the receiver's answer.").example("oops"))
        .optional("token", number(0..=NUMBER_MAX, "What fenced it.").example(20_072))
        .example(examples::attempt())
}

fn deferral() -> SchemaSpec {
    let example = examples::deferral();
    let at = |pointer: &str| at_pointer(&example, pointer);
    object("A job that its receiver put off, which costs no attempt.")
        .required("count", number(1..=NUMBER_MAX, "How often in a row, since the last attempt that counts.").example(1))
        .required("reason", any_text("What the receiver said.").example(at("/reason")))
        .required("at", time("When it said so, the last time.").example(at("/at")))
        .required("until", time("When the job is sent again.").example(at("/until")))
        .example(example.clone())
}

fn breaker() -> SchemaSpec {
    let example = examples::breaker();
    let at = |pointer: &str| at_pointer(&example, pointer);
    let state = "CLOSED: the target is called. OPEN: it failed ten times in a row, and is not called for a while. \
        HALF_OPEN: it is tried with one delivery.";
    object("Whether the target of a subscription is called, as seen by the broker that delivers.")
        .required("state", enumeration(&["CLOSED", "OPEN", "HALF_OPEN"], state).example("OPEN"))
        .required("failures", number(0..=NUMBER_MAX, "Failures in a row.").example(10))
        .optional("since", time("Since when it is not.").example(at("/since")))
        .optional("nextTryAt", time("When it is tried next.").example(at("/nextTryAt")))
        .example(example.clone())
}

fn attempt_error() -> SchemaSpec {
    let example = at_pointer(&examples::attempt(), "/error");
    object("What went wrong with a try.")
        .required("class", any_text("What kind: `timeout`, `http_5xx`, …").example("http_5xx"))
        .required("message", any_text("What there is to say.").example(at_pointer(&example, "/message")))
        .example(example)
}

fn new_task() -> SchemaSpec {
    let group = "Tasks of one group keep their order, as `mode` says.";
    object("A payload to be posted to a URL.")
        .required(
            "code",
            text_up_to(limits::LABEL_BYTES_MAX, "What it is about.").not_empty().example("nightly-report"),
        )
        .required("target", target())
        .required("payload", any_value("Any JSON; it is posted as it is.").example(json!({"day": 3})))
        .optional_nullable("messageGroup", text_up_to(limits::LABEL_BYTES_MAX, group).not_empty().example("reports"))
        .optional("mode", mode())
        .optional_nullable("pool", code("Which pool.", POOL))
        .optional_nullable("scheduledFor", time("Not before this.").example("2099-12-03T12:00:00Z"))
        .closed()
        .example(examples::new_task())
}
