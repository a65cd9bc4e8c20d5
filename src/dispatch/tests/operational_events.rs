//! Operations events, and that there are none about themselves.

use super::check;

/// Ten failures in a row open a target's breaker.
fn ten_failures() -> String {
    format!("answer mail/1{}\n{}", " down".repeat(10), "run -> mail/1:down\nadvance 1000\n".repeat(10))
}

#[test]
fn a_pause_and_a_job_given_up_are_told_with_what_happened_and_can_be_subscribed_to() {
    check(
        "
        subscribe mail attempts=1
        subscribe ops topic=gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1
        publish a b
        answer mail/1 500
        answer mail/2 410
        run-sorted                -> mail/1:500 mail/2:410 ops/1:200 ops/2:200
        news                      -> job_dead subscription_paused
        pause ops
        resume mail
        pause mail
        news                      -> job_dead subscription_paused subscription_paused
        task t
        answer task:t refused
        run-sorted                -> task:t:refused
        news                      -> job_dead subscription_paused subscription_paused job_dead
        ",
    );
}

#[test]
fn nothing_is_told_of_whoever_listens_to_the_news() {
    check(
        "
        subscribe mail attempts=1
        subscribe ops attempts=1 topic=gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1
        publish a
        answer mail/1 500
        answer ops/1 500
        run-sorted                -> mail/1:500 ops/1:500
        run                       ->
        job ops/1                 -> ERROR tried 1
        news                      -> job_dead
        ",
    );
}

#[test]
fn a_target_that_fails_and_recovers_is_told_once_each() {
    check(&format!(
        "
        subscribe mail retry=PT1S attempts=50
        publish a
        {}
        news                      -> target_failing
        advance 30000
        run                       -> mail/1:200
        news                      -> target_failing target_recovered
        ",
        ten_failures()
    ));
}

/// A target was never called again if the event of its probe was removed before the probe was sent.
#[test]
fn a_probe_that_cannot_be_sent_is_not_waited_for() {
    check(&format!(
        "
        subscribe mail retry=PT1S attempts=50
        publish a
        {}
        publish b
        run                       ->
        trim 1
        advance 30000
        run                       -> mail/2:200
        ",
        ten_failures()
    ));
}

/// A job that was delivered but not recorded yet was delivered again when its subscription was changed meanwhile.
#[test]
fn a_change_between_a_delivery_and_the_log_delivers_nothing_twice() {
    for change in ["change mail timeoutSeconds=10", "pause mail\nresume mail"] {
        check(&format!(
            "
            subscribe mail
            publish a
            land                      -> mail/1:200
            {change}
            run                       ->
            job mail/1                -> COMPLETED tried 1
            "
        ));
    }
}

#[test]
fn a_group_says_what_each_verb_would_do_about_the_job_that_blocks_it() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=2 retry=PT5S
        publish a a a
        answer mail/1 500 500
        run                       -> mail/1:500
        verbs mail                -> cancel complete retry
        advance 5000
        run                       -> mail/1:500
        verbs mail                -> cancel complete retry
        retry mail/1              -> QUEUED
        verbs mail                -> cancel
        ",
    );
}
