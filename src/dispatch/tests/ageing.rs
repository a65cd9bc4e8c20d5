//! Maximum age: a job that reaches it is given up like one that failed too often, and gets a new age when a person
//! retries it.

use super::check;

/// A job that was redriven or retried after its age expired again at once, and its dead letter was closed.
#[test]
fn a_redrive_or_a_retry_after_the_maximum_age_delivers() {
    for verb in ["redrive", "retry"] {
        for between in ["", "restart", "reopen"] {
            check(&format!(
                "
                subscribe mail age=4 attempts=1
                publish a
                answer mail/1 500
                run                     -> mail/1:500
                advance 5000
                {verb} mail/1
                {between}
                job mail/1              -> QUEUED tried 1
                run                     -> mail/1:200
                job mail/1              -> COMPLETED tried 2
                letters                 ->
            "
            ));
        }
    }
}

/// It expired silently: no dead letter, no operations event, and later jobs of its group were sent.
#[test]
fn a_job_that_expires_is_a_dead_letter_in_every_mode() {
    for (mode, behind) in [("IMMEDIATE", " mail/2:200"), ("NEXT_ON_ERROR", " mail/2:200"), ("BLOCK_ON_ERROR", "")] {
        check(&format!(
            "
            subscribe mail mode={mode} age=100 retry=PT10M
            publish a a
            answer mail/1 500
            run                         -> mail/1:500{behind}
            advance 99999
            run                         ->
            letters                     ->
            advance 1
            run                         ->
            job mail/1                  -> EXPIRED tried 1
            jobs status=EXPIRED subscription=mail -> {}
            news                        -> {}
            reopen
            run                         ->
            job mail/1                  -> EXPIRED tried 1
        ",
            if behind.is_empty() { "mail/1 mail/2" } else { "mail/1" },
            if behind.is_empty() { "job_dead job_dead" } else { "job_dead" },
        ));
    }
}

#[test]
fn a_job_that_was_never_tried_is_a_dead_letter_when_it_expires() {
    check(
        "
        subscribe mail delay=40 age=50
        publish a
        advance 50000
        run                         ->
        job mail/1                  -> EXPIRED tried 0
        letters                     -> mail/1 Expired tried 0
        redrive mail/1
        letters                     ->
        run                         -> mail/1:200
    ",
    );
}

/// The head of a group expired, and the jobs behind it were sent.
#[test]
fn an_expired_job_holds_its_group_until_its_letter_is_resolved() {
    for (verb, then, status) in [
        ("retry", "mail/1:200 mail/2:200", "COMPLETED tried 2"),
        ("redrive", "mail/1:200 mail/2:200", "COMPLETED tried 2"),
        ("cancel", "mail/2:200", "CANCELLED tried 1"),
        ("complete", "mail/2:200", "COMPLETED tried 1"),
        ("discard", "mail/2:200", "CANCELLED tried 1"),
    ] {
        for between in ["", "reopen"] {
            check(&format!(
                "
                subscribe mail mode=BLOCK_ON_ERROR age=100 retry=PT10M
                publish a
                answer mail/1 500
                run                     -> mail/1:500
                advance 60000
                publish a
                advance 40000
                run                     ->
                {between}
                job mail/1              -> EXPIRED tried 1
                letters                 -> mail/1 Expired tried 1
                groups mail             -> mail:gts.vendor.app.order.v1/a by 1 for 100000 waiting 1
                run                     ->
                {verb} mail/1
                letters                 ->
                run                     -> {then}
                job mail/1              -> {status}
                groups mail             ->
            "
            ));
        }
    }
}

/// A job that waited behind another one had no dead letter although it was shown as expired.
#[test]
fn a_job_that_waits_behind_another_expires_in_its_own_time() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR age=100 retry=PT10M attempts=1
        publish a
        answer mail/1 500
        run                         -> mail/1:500
        advance 10000
        publish a a
        run                         ->
        advance 100000
        publish a
        run                         ->
        letters                     -> mail/1 timeout tried 1 | mail/2 Expired tried 0 | mail/3 Expired tried 0
        job mail/4                  -> QUEUED tried 0
        redrive mail/1
        redrive mail/3
        run                         -> mail/1:200
        redrive mail/2
        run                         -> mail/2:200 mail/3:200 mail/4:200
    ",
    );
}

/// They were shown as expired, but had no dead letter until the subscription was resumed.
#[test]
fn jobs_of_a_paused_subscription_expire_in_their_time() {
    for mode in ["IMMEDIATE", "BLOCK_ON_ERROR"] {
        check(&format!(
            "
            subscribe mail mode={mode} age=100
            publish a
            pause mail
            publish a
            run                         ->
            advance 100000
            run                         ->
            job mail/1                  -> EXPIRED tried 0
            letters                     -> mail/1 Expired tried 0 | mail/2 Expired tried 0
            resume mail
            run                         ->
            redrive mail/1
            redrive mail/2
            run                         -> mail/1:200 mail/2:200
        "
        ));
    }
}

/// A task that its receiver deferred again and again never ended.
#[test]
fn a_task_expires_a_day_after_its_time() {
    check(
        "
        subscribe ops topic=gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1 types=none
        task late scheduledFor=2025-12-03T12:01:00Z
        advance 60000
        answer task:late defer80000 defer80000
        run                         -> task:late:defer80000
        advance 80000000
        run                         -> task:late:defer80000
        advance 6400000
        run                         ->
        job task:late               -> EXPIRED tried 0
        news                        -> job_dead
        reopen
        run                         ->
        retry task:late             -> QUEUED
        run                         -> task:late:200
    ",
    );
}

#[test]
fn an_expired_task_holds_its_group() {
    check(
        "
        task one messageGroup=g mode=BLOCK_ON_ERROR
        answer task:one defer86400
        run                         -> task:one:defer86400
        task two messageGroup=g mode=BLOCK_ON_ERROR
        advance 86400000
        run                         ->
        job task:one                -> EXPIRED tried 0
        complete task:one           -> COMPLETED
        job task:two                -> EXPIRED tried 0
    ",
    );
}

/// Its status was EXPIRED, but there was no dead letter until a place of the pool was free.
#[test]
fn a_job_expires_though_its_pool_is_full() {
    check(
        "
        pool one concurrency=1
        subscribe mail pool=one age=10
        publish a b
        answer mail/1 hang
        run                         ->
        advance 10000
        run                         ->
        letters                     -> mail/2 Expired tried 0
        release mail/1              -> mail/1:200
        letters                     -> mail/2 Expired tried 0
    ",
    );
}

/// Everything older than the maximum age became a dead letter, undelivered.
#[test]
fn events_that_are_older_than_a_new_subscription_age_from_its_creation() {
    for from in ["earliest", "0"] {
        check(&format!(
            "
            publish a b
            advance 5000
            subscribe mail age=3 from={from}
            answer mail/2 hang
            job mail/1                  -> QUEUED tried 0
            run                         -> mail/1:200
            advance 2999
            publish c
            restart
            run                         -> mail/2:200 mail/3:200
        "
        ));
    }
    check(
        "
        publish a
        advance 5000
        subscribe mail age=3 from=earliest
        advance 3000
        run                         ->
        letters                     -> mail/1 Expired tried 0
    ",
    );
}

/// Every event became a dead letter.
#[test]
fn a_delay_as_long_as_the_maximum_age_is_refused() {
    check(
        "
        subscribe mail delay=5 age=5   -> VALIDATION_ERROR
        subscribe mail delay=4 age=5
        change mail age=4              -> VALIDATION_ERROR
        change mail delay=3 age=4
    ",
    );
}
