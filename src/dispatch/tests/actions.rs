//! Actions of people: pause, resume, change, delete, replay, tasks, lists; and which actions fit which status.

use super::check;

#[test]
fn paused_jobs_wait_and_go_on_in_order() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR age=100
        publish a
        pause mail
        run                         -> 
        job mail/1                  -> PENDING tried 0
        publish a a
        resume mail
        resume mail
        run                         -> mail/1:200 mail/2:200 mail/3:200
        pause mail
        publish a
        advance 100000
        job mail/4                  -> EXPIRED tried 0
        resume mail
        publish a
        run                         -> 
        discard mail/4
        run                         -> mail/5:200
    ",
    );
}

#[test]
fn a_410_pauses_the_subscription_and_the_job_waits_for_the_resume() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=1
        publish a a
        answer mail/1 410
        run                         -> mail/1:410
        status mail                 -> Paused by broker through 1 open 1
        job mail/1                  -> PENDING tried 1
        advance 1000
        run                         -> 
        resume mail
        run                         -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn a_change_counts_for_what_was_not_reached() {
    check(
        "
        subscribe mail types=placed mode=BLOCK_ON_ERROR
        publish a
        publish a type=paid
        answer mail/1 500
        run                         -> mail/1:500
        change mail types=paid mode=IMMEDIATE
        publish a
        publish a type=paid
        run                         -> mail/4:200
        advance 5000
        run                         -> mail/1:200
        job mail/3                  -> NOT_FOUND
    ",
    );
}

#[test]
fn a_deleted_subscription_delivers_nothing_and_its_code_is_free() {
    check(
        "
        subscribe mail
        publish a
        answer mail/1 hang
        run                         -> 
        unsubscribe mail
        release mail/1              -> mail/1:200
        publish a
        run                         -> 
        subscribe mail from=earliest
        run                         -> mail/1:200 mail/2:200
        unsubscribe nobody          -> NOT_FOUND
        subscribe mail              -> ALREADY_EXISTS
    ",
    );
}

#[test]
fn a_subscription_begins_where_it_was_told_to() {
    check(
        "
        publish a a a
        subscribe all from=earliest
        subscribe some from=2
        subscribe new
        publish a
        run-sorted                  -> all/1:200 all/2:200 all/3:200 all/4:200 new/4:200 some/3:200 some/4:200
    ",
    );
}

#[test]
fn a_replay_is_counted_first_and_keeps_the_order_of_groups() {
    check(
        "
        pool two concurrency=4
        subscribe mail mode=BLOCK_ON_ERROR pool=two types=placed
        publish a b a
        publish a type=paid
        run                         -> mail/1:200 mail/2:200 mail/3:200
        replay mail 1 4 dry         -> 3
        run                         -> 
        replay mail 1 4             -> 3
        publish a
        run                         -> mail/1:200 mail/2:200 mail/3:200 mail/5:200
        replay mail 2 2             -> 1
        answer mail/2 500
        run                         -> mail/2:500
        reopen
        advance 5000
        run                         -> mail/2:200
        replay mail 3 2             -> VALIDATION_ERROR
        status mail                 -> Active through 5 open 0
    ",
    );
}

#[test]
fn events_are_published_again_for_one_subscription_or_for_all_of_the_topic() {
    check(
        "
        subscribe a
        subscribe b
        publish x x y
        run-sorted                  -> a/1:200 a/2:200 a/3:200 b/1:200 b/2:200 b/3:200
        republish 2 9 dry           -> 4
        run                         ->
        republish 2 9               -> 4
        run-sorted                  -> a/2:200 a/3:200 b/2:200 b/3:200
        republish 1 1 to=b          -> 1
        run                         -> b/1:200
        republish 1 1 to=c          -> VALIDATION_ERROR
        republish 3 2               -> VALIDATION_ERROR
    ",
    );
}

#[test]
fn a_task_is_delivered_in_its_time_and_in_the_order_of_its_group() {
    check(
        "
        task one
        task two scheduledFor=2025-12-03T12:01:00Z
        run                         -> task:one:200
        job task:two                -> PENDING tried 0 in 60000
        advance 60000
        run                         -> task:two:200
        job task:two                -> COMPLETED tried 1
        task g1 messageGroup=g mode=BLOCK_ON_ERROR
        task g2 messageGroup=g mode=BLOCK_ON_ERROR
        answer task:g1 500
        run                         -> task:g1:500
        job task:g2                 -> QUEUED tried 0
        reopen
        advance 5000
        run                         -> task:g1:200 task:g2:200
        task late
        cancel task:late            -> CANCELLED
        run                         -> 
    ",
    );
}

#[test]
fn verbs_that_do_not_fit_are_refused() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR
        publish a a
        cancel mail/2               -> CANCELLED
        cancel mail/2               -> INVALID_STATE
        complete mail/1             -> INVALID_STATE
        retry mail/1                -> INVALID_STATE
        run                         -> mail/1:200
        cancel mail/1               -> INVALID_STATE
        retry mail/1                -> INVALID_STATE
        retry mail/2                -> QUEUED
        answer mail/2 500
        run                         -> mail/2:500
        complete mail/2             -> COMPLETED
        run                         -> 
        advance 5000
        run                         -> 
        job mail/3                  -> NOT_FOUND
    ",
    );
}

#[test]
fn jobs_are_listed_by_how_they_stand_page_by_page() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=1
        publish a b b c
        publish d group=g
        answer mail/2 500
        run                         -> mail/1:200 mail/2:500 mail/4:200 mail/5:200
        jobs limit=2                -> mail/1 mail/2 mail/3 mail/4 mail/5
        jobs status=COMPLETED limit=1 -> mail/1 mail/4 mail/5
        jobs status=QUEUED          -> mail/3
        jobs status=ERROR           -> mail/2
        jobs group=mail:g           -> mail/5
        jobs subscription=mail      -> mail/1 mail/2 mail/3 mail/4 mail/5
        jobs subscription=nobody    -> NOT_FOUND
    ",
    );
}

/// Its receiver answered 410. There was no subscription to pause, so the task was sent again at once, without end.
#[test]
fn a_task_whose_receiver_is_gone_is_given_up_after_one_call() {
    check(
        "
        subscribe ops topic=gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1 types=none
        task t
        answer task:t 410 410 410
        run                         -> task:t:410
        job task:t                  -> ERROR tried 1
        news                        -> job_dead
        reopen
        run                         ->
        retry task:t                -> QUEUED
        run                         -> task:t:410
        job task:t                  -> ERROR tried 2
    ",
    );
}
