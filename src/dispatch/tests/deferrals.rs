//! Deferrals and circuit breakers: why a job waits is visible, and a person can act.

use super::check;

#[test]
fn a_deferred_job_says_why_until_when_and_how_often() {
    check(
        "
        subscribe mail
        publish a
        answer mail/1 defer60 defer60 500 defer60
        deferred mail/1             -> no
        run                         -> mail/1:defer60
        deferred mail/1             -> 1 in 60000: The receiver responded with 503 and Retry-After.
        job mail/1                  -> PENDING tried 0 in 60000
        advance 60000
        run                         -> mail/1:defer60
        reopen
        deferred mail/1             -> 2 in 60000: The receiver responded with 503 and Retry-After.
        advance 60000
        run                         -> mail/1:500
        deferred mail/1             -> no
        job mail/1                  -> PENDING tried 1 in 5000
        advance 5000
        run                         -> mail/1:defer60
        deferred mail/1             -> 1 in 60000: The receiver responded with 503 and Retry-After.
        job mail/1                  -> PENDING tried 1 in 60000
        advance 60000
        run                         -> mail/1:200
        job mail/1                  -> COMPLETED tried 2
    ",
    );
}

#[test]
fn a_receiver_that_always_defers_by_a_second_is_asked_less_and_less_often() {
    let answers = " defer1".repeat(20);
    let quick = "run -> mail/1:defer1\nadvance 1000\n".repeat(8);
    check(&format!(
        "
        subscribe mail
        publish a
        answer mail/1{answers}
        {quick}
        run                         -> mail/1:defer1
        deferred mail/1             -> 9 in 2000: The receiver responded with 503 and Retry-After.
        advance 2000
        run                         -> mail/1:defer1
        deferred mail/1             -> 10 in 4000: The receiver responded with 503 and Retry-After.
        retry mail/1                -> QUEUED
        deferred mail/1             -> no
        run                         -> mail/1:defer1
        deferred mail/1             -> 1 in 1000: The receiver responded with 503 and Retry-After.
    "
    ));
}

#[test]
fn an_open_breaker_is_shown_and_closed_by_hand() {
    let downs: String = (1..=10).map(|n| format!("answer mail/{n} down\n")).collect();
    check(&format!(
        "
        subscribe mail mode=BLOCK_ON_ERROR retry=PT1H
        subscribe other
        breaker mail                -> unknown
        {downs}
        publish a b c d e f g h i j
        run-sorted                  -> mail/10:down mail/1:down mail/2:down mail/3:down mail/4:down mail/5:down mail/6:down mail/7:down mail/8:down mail/9:down other/10:200 other/1:200 other/2:200 other/3:200 other/4:200 other/5:200 other/6:200 other/7:200 other/8:200 other/9:200
        breaker mail                -> Open after 10 next in 30000
        breaker other               -> Closed after 0
        publish k
        run                         -> other/11:200
        advance 1000
        breaker mail                -> Open after 10 next in 29000
        close-breaker mail
        breaker mail                -> Closed after 0
        run                         -> mail/11:200
        close-breaker nobody        -> NOT_FOUND
    "
    ));
}

/// After a repair, redriven jobs waited for the circuit breaker for half a minute or more; a job with a short maximum
/// age expired again meanwhile.
#[test]
fn a_redrive_or_a_retry_does_not_wait_for_an_open_breaker() {
    let fail: String = (1..=10).map(|number| format!("answer mail/{number} 500\n")).collect();
    let failed: Vec<_> = (1..=10).map(|number| format!("mail/{number}:500")).collect();
    for verb in ["redrive", "retry"] {
        check(&format!(
            "
            subscribe mail attempts=1 age=20
            {fail}
            publish a b c d e f g h i j
            run                         -> {}
            publish k
            run                         ->
            advance 1000
            answer mail/1 500
            {verb} mail/1
            run                         -> mail/1:500
            change mail timeoutSeconds=10
            run                         ->
            advance 1000
            {verb} mail/2
            run                         -> mail/2:200 mail/11:200
        ",
            failed.join(" ")
        ));
    }
}
