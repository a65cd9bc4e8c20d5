//! Subscriptions, dispatch jobs and pools.

use super::ids::{duration, pattern, topic_id, version};
use super::{NUMBER_MAX, credentials, rows};
use crate::rest::openapi::examples::subscriptions::{self as examples, CODE, JOB_ID, POOL, SUBSCRIPTION_ID};
use crate::rest::openapi::examples::{EVENT_ID, page_of, part};
use crate::rest::openapi::shape::{
    Shape, any_text, anything, either, flag, list, named, named_as, named_or_null, number, object, patterned,
    text_up_to, time, uuid, word,
};
use contract::{JobStatus, limits};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<(&'static str, Shape)> {
    vec![
        ("SubscriptionInput", new_subscription()),
        ("SubscriptionChange", change()),
        ("Subscription", subscription()),
        ("SubscriptionMade", made()),
        ("Subscriptions", rows("Subscription", "A page of subscriptions.", page_of(&examples::subscription()))),
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
        ("BlockedGroups", rows("BlockedGroup", "A page of groups.", page_of(&examples::group()))),
        ("GroupVerbs", group_verbs()),
        ("Replay", replay()),
        ("Replays", replays()),
        ("DispatchJob", job()),
        ("DispatchJobs", rows("DispatchJob", "A page of jobs.", page_of(&examples::job()))),
        ("JobAttempt", attempt()),
        ("JobDeferral", deferral()),
        ("TargetBreaker", breaker()),
        ("AttemptError", attempt_error()),
        ("TaskInput", new_task()),
        ("DispatchState", dispatch_state()),
    ]
}

fn dispatch_state() -> Shape {
    object("Whether anything is delivered.")
        .must("status", word(&["ACTIVE", "PAUSED"], "`PAUSED`: nothing is delivered.").like("ACTIVE"))
        .like(json!({"status": "ACTIVE"}))
}

/// The code of a subscription or a pool.
pub(in crate::rest::openapi) fn code(description: &str, example: &str) -> Shape {
    patterned("^[A-Za-z0-9._-]{1,128}$", description).like(example)
}

/// How a job stands.
pub(in crate::rest::openapi) fn status(description: &str) -> Shape {
    word(&JobStatus::ALL.map(JobStatus::as_str), description).like("PENDING")
}

fn for_people(description: &str) -> Shape {
    let description = format!("{description} At most {} characters.", limits::DESCRIPTION_CHARS_MAX);
    any_text(&description).up_to(limits::DESCRIPTION_CHARS_MAX).like("Mails about orders")
}

fn texts(description: &str, example: Value) -> Shape {
    object(description).others(any_text("A value.").like("orders")).like(example)
}

fn mode() -> Shape {
    let description = "What order the jobs of one message group keep: none; one at a time, later ones passing one that \
        failed; one at a time, nothing passing one that failed or waits.";
    word(&["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"], description).like("BLOCK_ON_ERROR")
}

fn format() -> Shape {
    word(&["event", "cloudevents-structured", "cloudevents-binary"], "What an event is sent as.").like("event")
}

/// The members that a definition and a change of it share.
fn with_terms(shape: Shape) -> Shape {
    let seconds = |min: u32, max: u32, description: &str, example: u32| {
        number(min.into()..=max.into(), description).like(example)
    };
    let schedule =
        list(duration("A wait."), "The waits between tries; the last one repeats. Differs by a fifth by chance.");
    let attempts =
        number(1..=limits::ATTEMPTS_MAX.into(), "All tries of a job; one more than there are waits when absent.");
    shape
        .or_null("name", for_people("For people."))
        .or_null("description", for_people("For people."))
        .may(
            "eventTypes",
            list(named("TypeBinding"), "Which types; all when absent.").like(json!([examples::binding()])),
        )
        .or_null("filter", any_text("A CEL expression over the event's members.").like("has(data)"))
        .or_null("tenant", uuid("Only events of this tenant.").like("550e8400-e29b-41d4-a716-446655440000"))
        .may("mode", mode())
        .or_null("pool", code("Whose concurrency and rate are shared; `default` when absent.", POOL))
        .may("timeoutSeconds", seconds(1, limits::DELIVERY_SECONDS_MAX, "For one attempt as a whole.", 30))
        .may(
            "maxAgeSeconds",
            seconds(
                1,
                limits::JOB_SECONDS_MAX,
                "Older jobs expire and are dead letters; counted from arrival, and anew from a redrive or `:retry`.",
                86_400,
            ),
        )
        .may("delaySeconds", seconds(0, limits::JOB_SECONDS_MAX, "How long an event waits at first.", 0))
        .may("sequence", seconds(0, 1_000_000, "Who goes first in a pool: the lower. Waiting counts.", 99))
        .or_null("maxAttempts", attempts.like(8))
        .or_null("retrySchedule", schedule.items(1, limits::SCHEDULE_MAX).like(json!(["PT5S", "PT30S"])))
        .may("dataOnly", flag("Whether `data` alone is sent.").like(false))
        .may("format", format())
        .may("headers", texts("Headers of its own.", json!({"x-team": "orders"})))
        .may("handshake", flag("Whether the receiver is asked for its consent first.").like(false))
        .may("customConfig", texts("For whoever reads it.", json!({"owner": "orders"})))
}

fn target() -> Shape {
    let description =
        "The URL events are posted to. Private and local ones are refused unless the operator allows them.";
    text_up_to(limits::TARGET_BYTES_MAX, description).like("https://hooks.invalid/orders")
}

fn new_subscription() -> Shape {
    let shape = object("A subscription as one asks for it.")
        .must("code", code("Its name for programs.", CODE))
        .must("topic", topic_id("The topic whose events are pushed."))
        .must("target", target());
    with_terms(shape)
        .may(
            "signing",
            named_or_null("Signing", "How deliveries are signed; with a new secret when absent.").like(Value::Null),
        )
        .may("auth", named_or_null("DeliveryAuth", "How deliveries are authorised besides.").like(Value::Null))
        .may("startFrom", named_as("StartFrom", "Where it begins; `latest` when absent."))
        .closed()
        .like(examples::new_subscription())
}

fn change() -> Shape {
    with_terms(object("What is to be different about a subscription; null takes away what may be absent."))
        .may("target", target())
        .may("signing", named_as("Signing", "The secrets, all of them anew."))
        .may(
            "auth",
            named_or_null("DeliveryAuth", "How deliveries are authorised; null: not at all.").like(Value::Null),
        )
        .closed()
        .like(examples::change())
}

fn standing(shape: Shape) -> Shape {
    let shape = shape
        .must("id", uuid("Made by the broker.").like(SUBSCRIPTION_ID))
        .must("code", code("Its name for programs.", CODE))
        .must("topic", topic_id("The topic whose events are pushed."))
        .must("target", target());
    with_terms(shape)
        .may("authType", word(&["bearer", "basic", "apikey", "oauth2", "mtls"], "How it is authorised.").like("bearer"))
        .must("startFrom", named_as("StartFrom", "Where it began."))
        .must("status", word(&["ACTIVE", "PAUSED"], "Whether it delivers.").like("ACTIVE"))
        .may("pause", named_as("Pause", "Why it does not."))
        .must("settledThrough", number(0..=NUMBER_MAX, "All is settled so far, but for open jobs.").like(12_344))
        .must("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or were given up.").like(1))
        .may(
            "held",
            any_text("Why jobs that were not tried yet wait, though it is active.").like("No more jobs may be open."),
        )
        .must("replays", number(0..=NUMBER_MAX, "Replays that are running.").like(0))
        .may(
            "breaker",
            named_as("TargetBreaker", "Whether its target is called; absent where another broker delivers, or none."),
        )
        .must("createdAt", time("When it was made.").like("2025-12-03T12:00:00.000Z"))
        .must("updatedAt", time("When it was last changed.").like("2025-12-03T12:00:00.000Z"))
}

fn subscription() -> Shape {
    standing(object("A subscription as it stands. No secret is ever shown.")).like(examples::subscription())
}

fn with_secret(shape: Shape) -> Shape {
    let until = "Until when the secrets before it sign too.";
    shape
        .may("secret", any_text("The secret; shown once.").like("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
        .may(
            "publicKey",
            any_text("What a receiver verifies v1a with.").like("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
        )
        .may("previousUntil", time(until).like("2025-12-04T12:00:00.000Z"))
}

fn made() -> Shape {
    with_secret(standing(object("A subscription that was made, with its secret if the broker made one.")))
        .like(examples::made())
}

fn secret() -> Shape {
    with_secret(object("A new secret.")).like(examples::secret())
}

fn binding() -> Shape {
    object("Event types a subscription wants.")
        .must("type", pattern("A type, or a pattern of types."))
        .or_null("dataVersion", version("Only events of this schema version."))
        .closed()
        .like(examples::binding())
}

fn signing() -> Shape {
    let example = json!({"type": "standard-webhooks", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]});
    let secret = any_text("`whsec_…` signs v1, `whsk_…` signs v1a.").like("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    object("How deliveries are signed.")
        .may("type", word(&["standard-webhooks"], "By which standard.").like("standard-webhooks"))
        .may(
            "secrets",
            list(secret, "Every one signs; absent: one is made.")
                .items(0, limits::SIGNING_SECRETS_MAX)
                .like(part(&example, "/secrets")),
        )
        .closed()
        .like(example)
}

fn start_from() -> Shape {
    let word = word(&["latest", "earliest"], "With what comes, or with the first there is.").like("latest");
    let offset = object("Behind this sequence.")
        .must("offset", number(0..=u64::MAX, "The sequence.").like(12_000))
        .closed()
        .like(json!({"offset": 12_000}));
    let at = object("With the first event stored at this time or later.")
        .must("time", time("The time.").like("2025-12-03T12:00:00Z"))
        .closed()
        .like(json!({"time": "2025-12-03T12:00:00Z"}));
    either([word, offset, at], "Where a subscription begins.").like("latest")
}

fn pause() -> Shape {
    object("Why a subscription is paused.")
        .must("since", time("Since when.").like("2025-12-03T12:00:00.000Z"))
        .must("by", any_text("Who paused it; `broker` after a 410.").like("broker"))
        .may("reason", any_text("Why.").like("The receiver answered 410 Gone."))
        .like(examples::pause())
}

fn pause_order() -> Shape {
    object("Why a subscription is to pause.")
        .or_null("reason", text_up_to(limits::REASON_BYTES_MAX, "Why.").like("maintenance"))
        .closed()
        .like(json!({"reason": "maintenance"}))
}

fn rotate_order() -> Shape {
    let grace = number(0..=limits::GRACE_SECONDS_MAX.into(), "How long the old secrets sign too; a day when absent.");
    let kind = word(&["symmetric", "asymmetric"], "`whsec_…`, or `whsk_…` with a public key.");
    object("What the new secret is to be.")
        .or_null("graceSeconds", grace.like(3600))
        .or_null("kind", kind.like("symmetric"))
        .closed()
        .like(json!({"graceSeconds": 3600}))
}

fn edge(description: &str) -> Shape {
    let sequence = number(0..=u64::MAX, "A sequence.").like(1);
    either([sequence, time("A time.").like("2025-12-03T12:00:00Z")], description).like(1)
}

fn new_replay() -> Shape {
    object("Which part of the topic is to be delivered once more; both ends are part of it.")
        .must("from", edge("The first event."))
        .or_null("to", edge("The last one; the tail when absent."))
        .may("dryRun", flag("Only count.").like(true))
        .closed()
        .like(json!({"from": 1, "to": 100, "dryRun": true}))
}

fn replayed() -> Shape {
    object("How many events are delivered once more, or would be.")
        .must("count", number(0..=NUMBER_MAX, "How many.").like(42))
        .may(
            "countIsLowerBound",
            flag("Whether it may be more: only the first million events were counted.").like(true),
        )
        .may("replay", uuid("The replay.").like("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .like(json!({"count": 42}))
}

fn group() -> Shape {
    let example = examples::group();
    object("A message group that does not move.")
        .must("messageGroup", any_text("`{subscription code}:{group}`.").like(part(&example, "/messageGroup")))
        .must("blockedBy", any_text("The job that everything waits for: retry, cancel or complete it.").like(JOB_ID))
        .must("since", time("Since when.").like("2025-12-03T12:00:00.000Z"))
        .must("waiting", number(0..=NUMBER_MAX, "How many wait behind it.").like(3))
        .may("waitingIsLowerBound", flag("Whether more may wait than were counted.").like(true))
        .must("verbs", named("GroupVerbs"))
        .like(example)
}

fn group_verbs() -> Shape {
    let at = |name: &str| part(&examples::group(), &format!("/verbs/{name}"));
    object("What each verb would do about the job that blocks; one that is absent would be refused now.")
        .may("retry", any_text("What `:retry` would do.").like(at("retry")))
        .may("cancel", any_text("What `:cancel` would do.").like(at("cancel")))
        .may("complete", any_text("What `:complete` would do.").like(at("complete")))
        .like(part(&examples::group(), "/verbs"))
}

fn replay() -> Shape {
    let example = examples::replay();
    let at = |pointer: &str| part(&example, pointer);
    object("A replay that is not over.")
        .must("id", uuid("Made by the broker.").like(at("/id")))
        .must("from", number(1..=NUMBER_MAX, "The first sequence.").like(at("/from")))
        .must("to", number(0..=NUMBER_MAX, "The last sequence.").like(at("/to")))
        .must("settledThrough", number(0..=NUMBER_MAX, "All is settled so far, but for open jobs.").like(12))
        .must("openJobs", number(0..=NUMBER_MAX, "Jobs that failed and wait, or were given up.").like(0))
        .must("orderedAt", time("When it was ordered.").like(at("/orderedAt")))
        .like(example.clone())
}

fn replays() -> Shape {
    object("The replays of a subscription that are not over, the oldest first.")
        .must("items", list(named("Replay"), "One row per replay.").like(json!([examples::replay()])))
        .like(json!({"items": [examples::replay()]}))
}

fn job() -> Shape {
    let example = examples::job();
    let at = |pointer: &str| part(&example, pointer);
    object("The duty to deliver one event to one subscription, or one task to a URL.")
        .must("id", any_text("Made by the broker.").like(JOB_ID))
        .must("kind", word(&["EVENT", "TASK"], "What it delivers.").like("EVENT"))
        .must("code", any_text("The event's type, or the task's code.").like(at("/code")))
        .may("subscription", code("The subscription's code.", CODE))
        .may("replay", uuid("The replay it belongs to.").like("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .may("event", uuid("The event.").like(EVENT_ID))
        .may("topic", topic_id("The event's topic."))
        .may("sequence", number(1..=NUMBER_MAX, "The event's number there.").like(12_345))
        .may("subject", any_text("What the event speaks of.").like("7"))
        .must("target", target())
        .must("status", status("How it stands."))
        .may("messageGroup", any_text("`{subscription code}:{group}`.").like(at("/messageGroup")))
        .must("attempts", list(named("JobAttempt"), "What was tried, the last ones.").like(at("/attempts")))
        .may("scheduledFor", time("When it goes next.").like(at("/scheduledFor")))
        .may("expiresAt", time("When it grows too old.").like(at("/expiresAt")))
        .may("deferred", named_as("JobDeferral", "That the receiver put it off, while it waits for that."))
        .may("deadLetter", uuid("The dead letter it became.").like("78d4c214-f688-43d7-9b1c-164ea146cda0"))
        .must("createdAt", time("When its event arrived, or it was asked for.").like(at("/createdAt")))
        .like(example)
}

fn attempt() -> Shape {
    object("One try of a job.")
        .must("number", number(1..=NUMBER_MAX, "Which one.").like(1))
        .must("at", time("When it began.").like("2025-12-03T12:00:00.000Z"))
        .must("durationMs", number(0..=NUMBER_MAX, "How long it took.").like(31))
        .may("status", number(0..=999, "The receiver's status.").like(500))
        .may("error", named_as("AttemptError", "What went wrong."))
        .may("response", any_text("The beginning of the receiver's answer.").like("oops"))
        .may("token", number(0..=NUMBER_MAX, "What fenced it.").like(20_072))
        .like(examples::attempt())
}

fn deferral() -> Shape {
    let example = examples::deferral();
    let at = |pointer: &str| part(&example, pointer);
    object("A job that its receiver put off, which costs no attempt.")
        .must("count", number(1..=NUMBER_MAX, "How often in a row, since the last attempt that counts.").like(1))
        .must("reason", any_text("What the receiver said.").like(at("/reason")))
        .must("at", time("When it said so, the last time.").like(at("/at")))
        .must("until", time("When the job is sent again.").like(at("/until")))
        .like(example.clone())
}

fn breaker() -> Shape {
    let example = examples::breaker();
    let at = |pointer: &str| part(&example, pointer);
    let state = "CLOSED: the target is called. OPEN: it failed ten times in a row, and is not called for a while. \
        HALF_OPEN: it is tried with one delivery.";
    object("Whether the target of a subscription is called, as seen by the broker that delivers.")
        .must("state", word(&["CLOSED", "OPEN", "HALF_OPEN"], state).like("OPEN"))
        .must("failures", number(0..=NUMBER_MAX, "Failures in a row.").like(10))
        .may("since", time("Since when it is not.").like(at("/since")))
        .may("nextTryAt", time("When it is tried next.").like(at("/nextTryAt")))
        .like(example.clone())
}

fn attempt_error() -> Shape {
    let example = part(&examples::attempt(), "/error");
    object("What went wrong with a try.")
        .must("class", any_text("What kind: `timeout`, `http_5xx`, …").like("http_5xx"))
        .must("message", any_text("What there is to say.").like(part(&example, "/message")))
        .like(example)
}

fn new_task() -> Shape {
    let group = "Tasks of one group keep their order, as `mode` says.";
    object("A payload to be posted to a URL.")
        .must("code", text_up_to(limits::LABEL_BYTES_MAX, "What it is about.").not_empty().like("nightly-report"))
        .must("target", target())
        .must("payload", anything("Any JSON; it is posted as it is.").like(json!({"day": 3})))
        .or_null("messageGroup", text_up_to(limits::LABEL_BYTES_MAX, group).not_empty().like("reports"))
        .may("mode", mode())
        .or_null("pool", code("Which pool.", POOL))
        .or_null("scheduledFor", time("Not before this.").like("2099-12-03T12:00:00Z"))
        .closed()
        .like(examples::new_task())
}
