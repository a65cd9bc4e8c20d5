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
            "Orders a topic's events to be pushed to a URL, signed by Standard Webhooks 1.0, in order where order is asked \
            for, retried on a schedule, and given up as dead letters. Without `signing` a secret is made; this answer shows \
            it, and nothing shows it again, not even this request sent again under its key.",
        )
        .body(BodySpec::about("The subscription.").of(JSON, "SubscriptionInput", examples::new_subscription()))
        .response(201, ResponseSpec::json("Made.", "SubscriptionMade", examples::made()).with(&["Location"]))
        .problems(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> OperationSpec {
    operation(Get, "/v1/subscriptions", "listSubscriptions", "List subscriptions")
        .about("Subscriptions in order of their codes.")
        .shared_parameters(&["limit", "cursor"])
        .response(
            200,
            ResponseSpec::json("A page of subscriptions.", "Subscriptions", page_of(&examples::subscription())),
        )
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}", "getSubscription", "Read a subscription")
        .about("One subscription, and how far it has come.")
        .parameter(id())
        .response(200, ResponseSpec::json("The subscription.", "Subscription", examples::subscription()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn change() -> OperationSpec {
    operation(Patch, "/v1/subscriptions/{id}", "changeSubscription", "Change a subscription")
        .about("Changes what is named. What is not settled yet follows the new definition.")
        .parameter(id())
        .body(BodySpec::about("What is to be different.").of(JSON, "SubscriptionChange", examples::change()))
        .response(200, ResponseSpec::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .problems(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove() -> OperationSpec {
    operation(Delete, "/v1/subscriptions/{id}", "deleteSubscription", "Delete a subscription")
        .about("Ends a subscription, with its jobs and replays. Its open dead letters are discarded.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn pause() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:pause", "pauseSubscription", "Pause a subscription")
        .about("Lets its jobs wait. They grow older meanwhile.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Why.").or_none().of(JSON, "PauseOrder", json!({"reason": "maintenance"})))
        .response(200, ResponseSpec::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn resume() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:resume", "resumeSubscription", "Resume a subscription")
        .about("Lets its jobs go on, in their order.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn resume_dispatch() -> OperationSpec {
    operation(Post, "/v1/server/dispatch:resume", "resumeDispatch", "Resume dispatch after a restore")
        .about(
            "Delivers again. `event-broker restore` pauses dispatch as a whole, because a delivery that the backup holds as \
            pending may have been made since: subscriptions, tasks and replays are not delivered until this verb is called \
            or the broker is started with `serve --resume-dispatch`. Meanwhile `/readyz` lists the pause under `degraded`. \
            `:test` works all the same. Where dispatch is not paused, nothing changes.",
        )
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("Dispatch is active.", "DispatchState", json!({"status": "ACTIVE"})))
        .problems(&[Kind::Validation])
}

fn close_breaker() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:close-breaker", "closeBreaker", "Close a breaker")
        .about(
            "A target that failed ten times in a row is not called for a while; `breaker` of its subscriptions says so. \
            This has it called again at once, because somebody knows that it works. Where it does not, the breaker opens \
            again after ten failures.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn rotate() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:rotate-secret", "rotateSecret", "Make a new secret")
        .about("Signs with a new secret from now on, and for a while with the old ones too. Nothing shows it again.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("What it is to be.").or_none().of(JSON, "RotateOrder", json!({"graceSeconds": 3600})))
        .response(200, ResponseSpec::json("The new secret.", "SecretInput", examples::secret()))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn test() -> OperationSpec {
    operation(Post, "/v1/subscriptions/{id}:test", "testSubscription", "Try a subscription out")
        .about("Sends one made-up event, signed as all are, and says what came of it. Nothing is stored or retried.")
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("What came of it.", "JobAttempt", examples::attempt()))
        .problems(&[Kind::NotFound, Kind::Validation])
}

fn replay() -> OperationSpec {
    let example = json!({"from": 1, "to": 100, "dryRun": true});
    operation(Post, "/v1/subscriptions/{id}:replay", "replaySubscription", "Replay a part of the topic")
        .about(
            "Delivers a part of the topic again, with the same ids and in the order of groups, which it shares with live \
            traffic. Deliveries carry `Event-Broker-Replay`. All replays of a pool take a quarter of it at most. With \
            `dryRun` it is only counted. Of a longer part only the first million events are counted: it is ordered all \
            the same, and `countIsLowerBound` says so. Events that a correction has replaced are skipped. `maxAgeSeconds` \
            starts when the replay is requested.",
        )
        .parameter(id())
        .shared_parameters(&["Producer-Id"])
        .body(BodySpec::about("Which part.").of(JSON, "ReplayInput", example))
        .response(200, ResponseSpec::json("How many it is.", "Replayed", json!({"count": 42, "replay": "018f3c1e-7b5a-7c3e-9d51-0b6f2f1f7a10"})))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn groups() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}/groups", "listBlockedGroups", "List groups that do not move")
        .about(
            "Which job blocks which group, since when, how many wait, and what `:retry`, `:cancel` and `:complete` of that \
            job would do now; in the order of those jobs. One request looks through a bounded part of the topic: where \
            that is not all of it, `waitingIsLowerBound` says so.",
        )
        .parameter(id())
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of groups.", "BlockedGroups", page_of(&examples::group())))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn replays() -> OperationSpec {
    operation(Get, "/v1/subscriptions/{id}/replays", "listReplays", "List replays that are not over")
        .about("How far each has come. One that is delivered is not listed any more.")
        .parameter(id())
        .response(200, ResponseSpec::json("The replays.", "Replays", json!({"items": [examples::replay()]})))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn list_jobs() -> OperationSpec {
    let (subscription, event) = ("Of this subscription, by id or code.", "Of this event.");
    let group = "Of this message group, as jobs show it.";
    operation(Get, "/v1/dispatch-jobs", "listJobs", "List jobs")
        .about(
            "Jobs by subscription and sequence. A page may be short, or empty, and have a next one: one request looks \
            through a bounded part of the log.",
        )
        .parameter(optional_query("status", status("How they stand."), "How they stand.", "PENDING"))
        .parameter(optional_query("subscription", any_text(subscription).example(CODE), subscription, CODE))
        .parameter(optional_query("event", uuid(event).example(EVENT_ID), event, EVENT_ID))
        .parameter(optional_query("group", any_text(group).example("order-mailer:7"), group, "order-mailer:7"))
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of jobs.", "DispatchJobs", page_of(&examples::job())))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn create_task() -> OperationSpec {
    operation(Post, "/v1/dispatch-jobs", "createTask", "Ask for a task")
        .about("Has a payload posted to a URL, now or later, retried like any job.")
        .body(BodySpec::about("The task.").of(JSON, "TaskInput", examples::new_task()))
        .response(201, ResponseSpec::json("The job.", "DispatchJob", examples::job()).with(&["Location"]))
        .problems(&[Kind::PayloadTooLarge, Kind::Validation])
}

fn show_job() -> OperationSpec {
    operation(Get, "/v1/dispatch-jobs/{id}", "getJob", "Read a job")
        .about("One job, with what was tried.")
        .parameter(job())
        .response(200, ResponseSpec::json("The job.", "DispatchJob", examples::job()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn verb(path: &'static str, id: &'static str, summary: &'static str, about: &'static str) -> OperationSpec {
    operation(Post, path, id, summary)
        .about(about)
        .parameter(job())
        .shared_parameters(&["Producer-Id"])
        .response(200, ResponseSpec::json("The job as it is now.", "DispatchJob", examples::job()))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}

fn retry() -> OperationSpec {
    let about = "Tries a job again now, its attempts begun anew: one that was given up, cancelled, expired or waits. Its \
        dead letter is closed.";
    verb("/v1/dispatch-jobs/{id}:retry", "retryJob", "Retry a job", about)
}

fn cancel() -> OperationSpec {
    let about =
        "Cancels a job that is neither over nor under way. Its group goes on without it; its dead letter is closed.";
    verb("/v1/dispatch-jobs/{id}:cancel", "cancelJob", "Cancel a job", about)
}

fn complete() -> OperationSpec {
    let about = "Says that a job that failed need not be delivered any more, because somebody has seen to it. Its dead letter \
        is closed.";
    verb("/v1/dispatch-jobs/{id}:complete", "completeJob", "Complete a job", about)
}

fn create_pool() -> OperationSpec {
    operation(Post, "/v1/pools", "createPool", "Make a pool")
        .about("Makes a pool. The same again is no error.")
        .body(BodySpec::about("The pool.").of(JSON, "Pool", examples::pool()))
        .response(201, ResponseSpec::json("The pool.", "Pool", examples::pool()).with(&["Location"]))
        .problems(&[Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list_pools() -> OperationSpec {
    operation(Get, "/v1/pools", "listPools", "List pools")
        .about("Pools in order of their codes; `default` is always there.")
        .shared_parameters(&["limit", "cursor"])
        .response(200, ResponseSpec::json("A page of pools.", "Pools", page_of(&examples::pool())))
        .problems(&[Kind::NotAcceptable, Kind::Validation])
}

fn show_pool() -> OperationSpec {
    operation(Get, "/v1/pools/{code}", "getPool", "Read a pool")
        .about("One pool.")
        .parameter(pool_code())
        .response(200, ResponseSpec::json("The pool.", "Pool", examples::pool()))
        .problems(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn change_pool() -> OperationSpec {
    operation(Patch, "/v1/pools/{code}", "changePool", "Change a pool")
        .about("Changes a pool from now on; what is under way is finished.")
        .parameter(pool_code())
        .body(BodySpec::about("What is to be different.").of(JSON, "PoolChange", json!({"concurrency": 40})))
        .response(200, ResponseSpec::json("The pool as it is now.", "Pool", examples::pool()))
        .problems(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove_pool() -> OperationSpec {
    operation(Delete, "/v1/pools/{code}", "deletePool", "Delete a pool")
        .about("Deletes a pool that no subscription and no open task uses; the refusal names what does.")
        .parameter(pool_code())
        .response(204, ResponseSpec::about("It is gone."))
        .problems(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}
