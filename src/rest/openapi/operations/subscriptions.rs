//! Subscriptions, dispatch jobs and pools.

use crate::rest::openapi::examples::subscriptions::{self as examples, CODE, JOB_ID, POOL};
use crate::rest::openapi::examples::{EVENT_ID, page_of};
use crate::rest::openapi::operation_spec::{BodySpec, JSON, OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{optional_query, path};
use crate::rest::openapi::schema_spec::{any_text, uuid};
use crate::rest::openapi::schemas::subscriptions::{code, status};
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Patch, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Subscriptions";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![
        create(),
        list(),
        show(),
        change(),
        remove(),
        pause(),
        resume(),
        close_breaker(),
        rotate(),
        test(),
        replay(),
        groups(),
        replays(),
        list_jobs(),
        create_task(),
        show_job(),
        retry(),
        cancel(),
        complete(),
        create_pool(),
        list_pools(),
        show_pool(),
        change_pool(),
        remove_pool(),
        resume_dispatch(),
    ]
}

fn id() -> Parameter {
    path("id", any_text("The subscription.").example(CODE), "The subscription's id, or its code.", CODE)
}

fn job() -> Parameter {
    path("id", any_text("The job.").example(JOB_ID), "The job's id.", JOB_ID)
}

fn pool_code() -> Parameter {
    path("code", code("The pool.", POOL), "The pool's code.", POOL)
}

fn create() -> OperationSpec {
    operation(Post, "/v1/subscriptions", "createSubscription", "Subscribe")
        .about(
            "Creates a subscription: events of the topic are posted to a URL, signed by Standard Webhooks 1.0, in order \
                if the mode requires it, retried on a schedule, and finally become dead letters. Without `signing` the \
                broker generates a secret. Only this response shows it; a retry under the same key does not.",
        )
        .body(BodySpec::about("The subscription.").of(JSON, "SubscriptionInput", examples::new_subscription()))
        .response(201, ResponseSpec::json("Created.", "SubscriptionMade", examples::made()).with(&["Location", "Secret-Suspected"]))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/subscriptions", "listSubscriptions", "List subscriptions")
        .about("Subscriptions, sorted by code.")
        .paged("A page of subscriptions.", "Subscriptions", page_of(&examples::subscription()))
}

fn show() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}", "getSubscription", "Read a subscription")
        .about("One subscription, with its progress.")
        .parameter(id())
        .shown("The subscription.", "Subscription", examples::subscription())
}

fn change() -> OperationSpec {
    operation(Patch, "/v1/subscriptions/{id}", "changeSubscription", "Change a subscription")
        .about("Changes the given members. Jobs that are not finished use the new definition.")
        .parameter(id())
        .body(BodySpec::about("The change.").of(JSON, "SubscriptionChange", examples::change()))
        .response(
            200,
            ResponseSpec::json("The subscription after the change.", "Subscription", examples::subscription())
                .with(&["Secret-Suspected"]),
        )
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/subscriptions/{id}", "deleteSubscription", "Delete a subscription")
        .about("Deletes a subscription with its jobs and replays. Its open dead letters are discarded.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::Validation])
}

/// A custom method of a subscription that returns the subscription.
fn action(path: &'static str, id_of_operation: &'static str, summary: &'static str) -> OperationSpec {
    operation(Post, path, id_of_operation, summary)
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(
            200,
            ResponseSpec::json("The subscription after the change.", "Subscription", examples::subscription()),
        )
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn pause() -> OperationSpec {
    action("/v1/subscriptions/{id}:pause", "pauseSubscription", "Pause a subscription")
        .about("Pauses deliveries. Waiting jobs continue to age.")
        .body(BodySpec::about("The reason.").or_none().of(JSON, "PauseOrder", json!({"reason": "maintenance"})))
        .problems(&[Kind::PayloadTooLarge])
}

fn resume() -> OperationSpec {
    action("/v1/subscriptions/{id}:resume", "resumeSubscription", "Resume a subscription")
        .about("Resumes deliveries, in their order.")
}

fn resume_dispatch() -> OperationSpec {
    operation(Post, "/v1/server/dispatch:resume", "resumeDispatch", "Resume dispatch after a restore")
        .about(
            "Resumes dispatch. `event-broker restore` pauses dispatch as a whole, because a delivery that is pending in \
                the backup may have been made since: subscriptions, tasks and replays are not delivered until this \
                request, or until the broker is started with `serve --resume-dispatch`. Until then `/readyz` lists the \
                pause in `degraded`. `:test` works during the pause. If dispatch is not paused, nothing changes.",
        )
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("Dispatch is active.", "DispatchState", json!({"status": "ACTIVE"})))
        .problems(&[Kind::Validation])
}

fn close_breaker() -> OperationSpec {
    action("/v1/subscriptions/{id}:close-breaker", "closeBreaker", "Close a breaker").about(
        "Closes the circuit breaker of the target. It opens after ten consecutive failures, and the target is not \
                called for a while; `breaker` of its subscriptions shows this. Closing it calls the target again at \
                once; it opens again after ten failures.",
    )
}

fn rotate() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:rotate-secret", "rotateSecret", "Rotate the secret")
        .about(
            "Generates a new secret, which signs from now on; the old ones sign, too, for a grace period. Only this \
            response shows it.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The kind of secret and the grace period.").or_none().of(
            JSON,
            "RotateOrder",
            json!({"graceSeconds": 3600}),
        ))
        .response(200, ResponseSpec::json("The new secret.", "SecretInput", examples::secret()))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn test() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:test", "testSubscription", "Test a subscription")
        .about("Sends one sample event, signed like any other, and returns the result. Nothing is stored or retried.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("The result.", "JobAttempt", examples::attempt()))
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn replay() -> OperationSpec {
    let example = json!({"from": 1, "to": 100, "dryRun": true});
    operation(Post, "/v1/subscriptions/{id}:replay", "replaySubscription", "Replay a part of the topic")
        .about(
            "Delivers a range of the topic again, with the same ids, in the same message groups as live events. \
                Deliveries have the header `Event-Broker-Replay`. All replays of a pool use at most a quarter of it. \
                With `dryRun` the events are only counted. Only the first million events are counted: a longer range is \
                replayed completely, and `countIsLowerBound` is set. Events that a correction has replaced are skipped. \
                Events that are damaged on disk are not counted: `damaged` names them, and each becomes a dead letter. \
                `maxAgeSeconds` starts when the replay is requested.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("The range.").of(JSON, "ReplayInput", example))
        .response(200, ResponseSpec::json("The number of events.", "Replayed", json!({"count": 42, "replay": "018f3c1e-7b5a-7c3e-9d51-0b6f2f1f7a10"})))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn groups() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}/groups", "listBlockedGroups", "List blocked groups")
        .about(
            "Blocked message groups: the blocking job, since when it blocks, how many jobs wait, and the effect of \
                `:retry`, `:cancel` and `:complete` of that job; sorted by those jobs. One request reads a bounded part \
                of the topic; if that is not all of it, `waitingIsLowerBound` is set.",
        )
        .parameter(id())
        .paged("A page of groups.", "BlockedGroups", page_of(&examples::group()))
        .problems(&[Kind::NotFound])
}

fn replays() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}/replays", "listReplays", "List running replays")
        .about("Running replays, with their progress. A finished replay is not listed.")
        .parameter(id())
        .shown("The replays.", "Replays", json!({"items": [examples::replay()]}))
}

fn list_jobs() -> OperationSpec {
    let (subscription, event) = ("Only of this subscription, by id or code.", "Only of this event.");
    let group = "Only of this message group.";
    operation(Get, "/v1/dispatch-jobs", "listJobs", "List jobs")
        .about(
            "Jobs, sorted by subscription and sequence. One request reads a bounded part of the log, so a page may be \
                short or empty and still have a next one.",
        )
        .parameter(optional_query("status", status("The status."), "The status.", "PENDING"))
        .parameter(optional_query("subscription", any_text(subscription).example(CODE), subscription, CODE))
        .parameter(optional_query("event", uuid(event).example(EVENT_ID), event, EVENT_ID))
        .parameter(optional_query("group", any_text(group).example("order-mailer:7"), group, "order-mailer:7"))
        .paged("A page of jobs.", "DispatchJobs", page_of(&examples::job()))
        .problems(&[Kind::NotFound])
}

fn create_task() -> OperationSpec {
    operation(Post, "/v1/dispatch-jobs", "createTask", "Create a task")
        .about("Posts a payload to a URL, now or later, with retries like any job.")
        .body(BodySpec::about("The task.").of(JSON, "TaskInput", examples::new_task()))
        .response(
            201,
            ResponseSpec::json("The job.", "DispatchJob", examples::job()).with(&["Location", "Secret-Suspected"]),
        )
        .problems(&[Kind::PayloadTooLarge, Kind::Validation])
}

fn show_job() -> OperationSpec {
    operation(Get, "/v1/dispatch-jobs/{id}", "getJob", "Read a job")
        .about("One job, with its attempts.")
        .parameter(job())
        .shown("The job.", "DispatchJob", examples::job())
}

/// A custom method of a job.
fn job_action(path: &'static str, id: &'static str, summary: &'static str, about: &'static str) -> OperationSpec {
    operation(Post, path, id, summary)
        .about(about)
        .parameter(job())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("The job after the change.", "DispatchJob", examples::job()))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}

fn retry() -> OperationSpec {
    let about = "Retries a job at once, with new attempts: a dead, cancelled, expired or waiting one. Its dead letter is \
        closed.";
    job_action("/v1/dispatch-jobs/{id}:retry", "retryJob", "Retry a job", about)
}

fn cancel() -> OperationSpec {
    let about = "Cancels a job that is neither finished nor in flight. Its group continues without it; its dead letter is \
            closed.";
    job_action("/v1/dispatch-jobs/{id}:cancel", "cancelJob", "Cancel a job", about)
}

fn complete() -> OperationSpec {
    let about = "Marks a failed job as completed, so that it is not delivered. Its dead letter is closed.";
    job_action("/v1/dispatch-jobs/{id}:complete", "completeJob", "Complete a job", about)
}

fn create_pool() -> OperationSpec {
    operation(Post, "/v1/pools", "createPool", "Create a pool")
        .about("Creates a pool. The same definition again is not an error.")
        .body(BodySpec::about("The pool.").of(JSON, "Pool", examples::pool()))
        .response(201, ResponseSpec::json("The pool.", "Pool", examples::pool()).with(&["Location"]))
        .problems(&[Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list_pools() -> OperationSpec {
    operation(Get, "/v1/pools", "listPools", "List pools")
        .about("Pools, sorted by code. `default` always exists.")
        .paged("A page of pools.", "Pools", page_of(&examples::pool()))
}

fn show_pool() -> OperationSpec {
    operation(Get, "/v1/pools/{code}", "getPool", "Read a pool").about("One pool.").parameter(pool_code()).shown(
        "The pool.",
        "Pool",
        examples::pool(),
    )
}

fn change_pool() -> OperationSpec {
    operation(Patch, "/v1/pools/{code}", "changePool", "Change a pool")
        .about("Changes a pool. Deliveries in flight are not affected.")
        .parameter(pool_code())
        .body(BodySpec::about("The change.").of(JSON, "PoolChange", json!({"concurrency": 40})))
        .response(200, ResponseSpec::json("The pool after the change.", "Pool", examples::pool()))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove_pool() -> OperationSpec {
    operation(Delete, "/v1/pools/{code}", "deletePool", "Delete a pool")
        .about("Deletes a pool that no subscription and no open task uses; the refusal names those that use it.")
        .parameter(pool_code())
        .response(204, ResponseSpec::about("Deleted."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}
