//! Subscriptions, dispatch jobs and pools.

use crate::rest::openapi::examples::subscriptions::{self as examples, CODE, JOB_ID, POOL};
use crate::rest::openapi::examples::{EVENT_ID, page_of};
use crate::rest::openapi::operation::{Answer, Body, JSON, Op, op};
use crate::rest::openapi::parameters::{path, query};
use crate::rest::openapi::schemas::subscriptions::{code, status};
use crate::rest::openapi::shape::{any_text, uuid};
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::{Delete, Get, Patch, Post};
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Subscriptions";

pub(super) fn all() -> Vec<Op> {
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
    path("id", any_text("The subscription.").like(CODE), "The subscription's id, or its code.", CODE)
}

fn job() -> Parameter {
    path("id", any_text("The job.").like(JOB_ID), "The job's id.", JOB_ID)
}

fn pool_code() -> Parameter {
    path("code", code("The pool.", POOL), "The pool's code.", POOL)
}

fn create() -> Op {
    op(Post, "/v1/subscriptions", "createSubscription", "Subscribe")
        .about(
            "Orders a topic's events to be pushed to a URL, signed by Standard Webhooks 1.0, in order where order is asked \
            for, retried on a schedule, and given up as dead letters. Without `signing` a secret is made; this answer shows \
            it, and nothing shows it again, not even this request sent again under its key.",
        )
        .body(Body::about("The subscription.").of(JSON, "SubscriptionInput", examples::new_subscription()))
        .answers(201, Answer::json("Made.", "SubscriptionMade", examples::made()).with(&["Location"]))
        .refuses(&[Kind::InvalidType, Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list() -> Op {
    op(Get, "/v1/subscriptions", "listSubscriptions", "List subscriptions")
        .about("Subscriptions in order of their codes.")
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of subscriptions.", "Subscriptions", page_of(&examples::subscription())))
        .refuses(&[Kind::NotAcceptable, Kind::Validation])
}

fn show() -> Op {
    op(Get, "/v1/subscriptions/{id}", "getSubscription", "Read a subscription")
        .about("One subscription, and how far it has come.")
        .takes(id())
        .answers(200, Answer::json("The subscription.", "Subscription", examples::subscription()))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn change() -> Op {
    op(Patch, "/v1/subscriptions/{id}", "changeSubscription", "Change a subscription")
        .about("Changes what is named. What is not settled yet follows the new definition.")
        .takes(id())
        .body(Body::about("What is to be different.").of(JSON, "SubscriptionChange", examples::change()))
        .answers(200, Answer::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .refuses(&[Kind::InvalidType, Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove() -> Op {
    op(Delete, "/v1/subscriptions/{id}", "deleteSubscription", "Delete a subscription")
        .about("Ends a subscription, with its jobs and replays. Its open dead letters are discarded.")
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .answers(204, Answer::about("It is gone."))
        .refuses(&[Kind::NotFound, Kind::Validation])
}

fn pause() -> Op {
    op(Post, "/v1/subscriptions/{id}:pause", "pauseSubscription", "Pause a subscription")
        .about("Lets its jobs wait. They grow older meanwhile.")
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .body(Body::about("Why.").or_none().of(JSON, "PauseOrder", json!({"reason": "maintenance"})))
        .answers(200, Answer::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .refuses(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn resume() -> Op {
    op(Post, "/v1/subscriptions/{id}:resume", "resumeSubscription", "Resume a subscription")
        .about("Lets its jobs go on, in their order.")
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .answers(200, Answer::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .refuses(&[Kind::NotFound, Kind::Validation])
}

fn resume_dispatch() -> Op {
    op(Post, "/v1/server/dispatch:resume", "resumeDispatch", "Resume dispatch after a restore")
        .about(
            "Delivers again. `event-broker restore` pauses dispatch as a whole, because a delivery that the backup holds as \
            pending may have been made since: subscriptions, tasks and replays are not delivered until this verb is called \
            or the broker is started with `serve --resume-dispatch`. Meanwhile `/readyz` lists the pause under `degraded`. \
            `:test` works all the same. Where dispatch is not paused, nothing changes.",
        )
        .takes_shared(&["Producer-Id"])
        .answers(200, Answer::json("Dispatch is active.", "DispatchState", json!({"status": "ACTIVE"})))
        .refuses(&[Kind::Validation])
}

fn close_breaker() -> Op {
    op(Post, "/v1/subscriptions/{id}:close-breaker", "closeBreaker", "Close a breaker")
        .about(
            "A target that failed ten times in a row is not called for a while; `breaker` of its subscriptions says so. \
            This has it called again at once, because somebody knows that it works. Where it does not, the breaker opens \
            again after ten failures.",
        )
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .answers(200, Answer::json("The subscription as it is now.", "Subscription", examples::subscription()))
        .refuses(&[Kind::NotFound, Kind::Validation])
}

fn rotate() -> Op {
    op(Post, "/v1/subscriptions/{id}:rotate-secret", "rotateSecret", "Make a new secret")
        .about("Signs with a new secret from now on, and for a while with the old ones too. Nothing shows it again.")
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .body(Body::about("What it is to be.").or_none().of(JSON, "RotateOrder", json!({"graceSeconds": 3600})))
        .answers(200, Answer::json("The new secret.", "SecretInput", examples::secret()))
        .refuses(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn test() -> Op {
    op(Post, "/v1/subscriptions/{id}:test", "testSubscription", "Try a subscription out")
        .about("Sends one made-up event, signed as all are, and says what came of it. Nothing is stored or retried.")
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .answers(200, Answer::json("What came of it.", "JobAttempt", examples::attempt()))
        .refuses(&[Kind::NotFound, Kind::Validation])
}

fn replay() -> Op {
    let example = json!({"from": 1, "to": 100, "dryRun": true});
    op(Post, "/v1/subscriptions/{id}:replay", "replaySubscription", "Replay a part of the topic")
        .about(
            "Delivers a part of the topic again, with the same ids and in the order of groups, which it shares with live \
            traffic. Deliveries carry `Event-Broker-Replay`. All replays of a pool take a quarter of it at most. With \
            `dryRun` it is only counted. Of a longer part only the first million events are counted: it is ordered all \
            the same, and `countIsLowerBound` says so. Events that a correction has replaced are skipped. `maxAgeSeconds` \
            starts when the replay is requested.",
        )
        .takes(id())
        .takes_shared(&["Producer-Id"])
        .body(Body::about("Which part.").of(JSON, "ReplayInput", example))
        .answers(200, Answer::json("How many it is.", "Replayed", json!({"count": 42, "replay": "018f3c1e-7b5a-7c3e-9d51-0b6f2f1f7a10"})))
        .refuses(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn groups() -> Op {
    op(Get, "/v1/subscriptions/{id}/groups", "listBlockedGroups", "List groups that do not move")
        .about(
            "Which job blocks which group, since when, how many wait, and what `:retry`, `:cancel` and `:complete` of that \
            job would do now; in the order of those jobs. One request looks through a bounded part of the topic: where \
            that is not all of it, `waitingIsLowerBound` says so.",
        )
        .takes(id())
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of groups.", "BlockedGroups", page_of(&examples::group())))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn replays() -> Op {
    op(Get, "/v1/subscriptions/{id}/replays", "listReplays", "List replays that are not over")
        .about("How far each has come. One that is delivered is not listed any more.")
        .takes(id())
        .answers(200, Answer::json("The replays.", "Replays", json!({"items": [examples::replay()]})))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn list_jobs() -> Op {
    let (subscription, event) = ("Of this subscription, by id or code.", "Of this event.");
    let group = "Of this message group, as jobs show it.";
    op(Get, "/v1/dispatch-jobs", "listJobs", "List jobs")
        .about(
            "Jobs by subscription and sequence. A page may be short, or empty, and have a next one: one request looks \
            through a bounded part of the log.",
        )
        .takes(query("status", status("How they stand."), "How they stand.", "PENDING"))
        .takes(query("subscription", any_text(subscription).like(CODE), subscription, CODE))
        .takes(query("event", uuid(event).like(EVENT_ID), event, EVENT_ID))
        .takes(query("group", any_text(group).like("order-mailer:7"), group, "order-mailer:7"))
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of jobs.", "DispatchJobs", page_of(&examples::job())))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn create_task() -> Op {
    op(Post, "/v1/dispatch-jobs", "createTask", "Ask for a task")
        .about("Has a payload posted to a URL, now or later, retried like any job.")
        .body(Body::about("The task.").of(JSON, "TaskInput", examples::new_task()))
        .answers(201, Answer::json("The job.", "DispatchJob", examples::job()).with(&["Location"]))
        .refuses(&[Kind::PayloadTooLarge, Kind::Validation])
}

fn show_job() -> Op {
    op(Get, "/v1/dispatch-jobs/{id}", "getJob", "Read a job")
        .about("One job, with what was tried.")
        .takes(job())
        .answers(200, Answer::json("The job.", "DispatchJob", examples::job()))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn verb(path: &'static str, id: &'static str, summary: &'static str, about: &'static str) -> Op {
    op(Post, path, id, summary)
        .about(about)
        .takes(job())
        .takes_shared(&["Producer-Id"])
        .answers(200, Answer::json("The job as it is now.", "DispatchJob", examples::job()))
        .refuses(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}

fn retry() -> Op {
    let about = "Tries a job again now, its attempts begun anew: one that was given up, cancelled, expired or waits. Its \
        dead letter is closed.";
    verb("/v1/dispatch-jobs/{id}:retry", "retryJob", "Retry a job", about)
}

fn cancel() -> Op {
    let about =
        "Cancels a job that is neither over nor under way. Its group goes on without it; its dead letter is closed.";
    verb("/v1/dispatch-jobs/{id}:cancel", "cancelJob", "Cancel a job", about)
}

fn complete() -> Op {
    let about = "Says that a job that failed need not be delivered any more, because somebody has seen to it. Its dead letter \
        is closed.";
    verb("/v1/dispatch-jobs/{id}:complete", "completeJob", "Complete a job", about)
}

fn create_pool() -> Op {
    op(Post, "/v1/pools", "createPool", "Make a pool")
        .about("Makes a pool. The same again is no error.")
        .body(Body::about("The pool.").of(JSON, "Pool", examples::pool()))
        .answers(201, Answer::json("The pool.", "Pool", examples::pool()).with(&["Location"]))
        .refuses(&[Kind::AlreadyExists, Kind::PayloadTooLarge, Kind::Validation])
}

fn list_pools() -> Op {
    op(Get, "/v1/pools", "listPools", "List pools")
        .about("Pools in order of their codes; `default` is always there.")
        .takes_shared(&["limit", "cursor"])
        .answers(200, Answer::json("A page of pools.", "Pools", page_of(&examples::pool())))
        .refuses(&[Kind::NotAcceptable, Kind::Validation])
}

fn show_pool() -> Op {
    op(Get, "/v1/pools/{code}", "getPool", "Read a pool")
        .about("One pool.")
        .takes(pool_code())
        .answers(200, Answer::json("The pool.", "Pool", examples::pool()))
        .refuses(&[Kind::NotFound, Kind::NotAcceptable, Kind::Validation])
}

fn change_pool() -> Op {
    op(Patch, "/v1/pools/{code}", "changePool", "Change a pool")
        .about("Changes a pool from now on; what is under way is finished.")
        .takes(pool_code())
        .body(Body::about("What is to be different.").of(JSON, "PoolChange", json!({"concurrency": 40})))
        .answers(200, Answer::json("The pool as it is now.", "Pool", examples::pool()))
        .refuses(&[Kind::NotFound, Kind::PayloadTooLarge, Kind::Validation])
}

fn remove_pool() -> Op {
    op(Delete, "/v1/pools/{code}", "deletePool", "Delete a pool")
        .about("Deletes a pool that no subscription and no open task uses; the refusal names what does.")
        .takes(pool_code())
        .answers(204, Answer::about("It is gone."))
        .refuses(&[Kind::NotFound, Kind::InvalidState, Kind::Validation])
}
