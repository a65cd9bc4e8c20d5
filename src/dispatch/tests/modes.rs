//! The three modes with failures, back-off, deferrals, delay and age.

use super::check;

#[test]
fn immediate_delivers_in_any_order_and_retries_each_on_its_own() {
    check(
        "
        subscribe mail
        publish a a b
        answer mail/1 500
        run                         -> mail/1:500 mail/2:200 mail/3:200
        job mail/1                  -> PENDING tried 1 in 5000
        job mail/2                  -> COMPLETED tried 1
        status mail                 -> Active through 3 open 1
        advance 4999
        run                         -> 
        advance 1
        run                         -> mail/1:200
        job mail/1                  -> COMPLETED tried 2
        status mail                 -> Active through 3 open 0
        tokens mail/1               -> 2 growing
    ",
    );
}

#[test]
fn next_on_error_goes_one_at_a_time_and_lets_later_ones_pass_a_failed_one() {
    check(
        "
        subscribe mail mode=NEXT_ON_ERROR
        publish a a a b
        answer mail/1 hang
        run                         -> mail/4:200
        job mail/1                  -> QUEUED tried 0
        release mail/1              -> mail/1:200 mail/2:200 mail/3:200
        publish a a
        answer mail/5 500 500
        run                         -> mail/5:500 mail/6:200
        publish a
        run                         -> mail/7:200
        advance 5000
        run                         -> mail/5:500
        advance 30000
        run                         -> mail/5:200
        status mail                 -> Active through 7 open 0
    ",
    );
}

#[test]
fn block_on_error_lets_nothing_of_the_group_pass_and_everything_of_the_others() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR retry=PT5S attempts=3
        publish a b a b a
        answer mail/1 500 500
        run                         -> mail/1:500 mail/2:200 mail/4:200
        job mail/3                  -> QUEUED tried 0
        groups mail                 -> mail:gts.vendor.app.order.v1/a by 1 for 0 waiting 2
        advance 5000
        run                         -> mail/1:500
        publish a
        run                         -> 
        groups mail                 -> mail:gts.vendor.app.order.v1/a by 1 for 5000 waiting 3
        advance 5000
        run                         -> mail/1:200 mail/3:200 mail/5:200 mail/6:200
        groups mail                 -> 
        status mail                 -> Active through 6 open 0
    ",
    );
}

#[test]
fn a_job_that_is_given_up_holds_its_group_until_a_person_decides() {
    for (verb, then, status) in [
        ("retry", "mail/1:200 mail/2:200", "COMPLETED tried 3"),
        ("cancel", "mail/2:200", "CANCELLED tried 2"),
        ("complete", "mail/2:200", "COMPLETED tried 2"),
        ("redrive", "mail/1:200 mail/2:200", "COMPLETED tried 3"),
        ("discard", "mail/2:200", "CANCELLED tried 2"),
    ] {
        check(&format!(
            "
            subscribe mail mode=BLOCK_ON_ERROR retry=PT5S attempts=2
            publish a a b
            answer mail/1 500 500
            run                     -> mail/1:500 mail/3:200
            advance 5000
            run                     -> mail/1:500
            job mail/1              -> ERROR tried 2
            letters                 -> mail/1 timeout tried 2
            jobs status=ERROR       -> mail/1
            advance 3600000
            run                     -> 
            {verb} mail/1
            letters                 -> 
            run                     -> {then}
            job mail/1              -> {status}
            status mail             -> Active through 3 open 0
        "
        ));
    }
}

#[test]
fn a_job_given_up_holds_nobody_in_the_other_modes() {
    for mode in ["IMMEDIATE", "NEXT_ON_ERROR"] {
        check(&format!(
            "
            subscribe mail mode={mode} attempts=1
            publish a a a
            answer mail/2 500
            run                     -> mail/1:200 mail/2:500 mail/3:200
            job mail/2              -> ERROR tried 1
            publish a
            run                     -> mail/4:200
            redrive mail/2
            run                     -> mail/2:200
        "
        ));
    }
}

#[test]
fn a_failure_that_cannot_be_helped_is_given_up_at_once() {
    check(
        "
        subscribe mail
        publish a
        answer mail/1 refused
        run                         -> mail/1:refused
        job mail/1                  -> ERROR tried 1
    ",
    );
}

#[test]
fn a_deferral_costs_no_attempt_and_holds_the_group_that_must_hold() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=1
        publish a a
        answer mail/1 defer7 defer9
        run                         -> mail/1:defer7
        job mail/1                  -> PENDING tried 0 in 7000
        advance 7000
        run                         -> mail/1:defer9
        advance 8999
        run                         -> 
        advance 1
        run                         -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn a_delay_is_waited_for_and_age_ends_a_job_wherever_it_waits() {
    check(
        "
        subscribe slow delay=60 age=100
        subscribe block mode=BLOCK_ON_ERROR age=100 retry=PT10M
        publish a a
        answer block/1 500
        run                         -> block/1:500
        job slow/1                  -> PENDING tried 0 in 60000
        advance 59999
        run                         -> 
        advance 1
        answer slow/2 500
        run                         -> slow/1:200 slow/2:500
        advance 39999
        run                         -> slow/2:200
        publish b
        job block/1                 -> PENDING tried 1 in 500001
        advance 1
        run                         -> block/3:200
        job block/1                 -> EXPIRED tried 1
        job block/2                 -> EXPIRED tried 0
        jobs status=EXPIRED         -> block/1 block/2
        letters                     -> block/1 Expired tried 1 | block/2 Expired tried 0
        status block                -> Active through 3 open 2
    ",
    );
}

#[test]
fn a_pool_holds_up_nobody_but_its_own() {
    check(
        "
        pool narrow concurrency=1
        subscribe one pool=narrow sequence=1
        subscribe two pool=narrow
        subscribe free
        publish a a
        answer one/1 hang
        run                         -> free/1:200 free/2:200
        pool narrow concurrency=2
        run                         -> one/2:200 two/1:200 two/2:200
        release one/1               -> one/1:200
    ",
    );
}

#[test]
fn a_rate_is_kept_and_can_be_changed() {
    check(
        "
        pool slow rate=60
        subscribe one pool=slow
        publish a a a a
        run                         -> one/1:200
        advance 999
        run                         -> 
        advance 1
        run                         -> one/2:200
        pool slow rate=120
        advance 500
        run                         -> one/3:200
    ",
    );
}

#[test]
fn who_has_the_lower_sequence_goes_first_and_equals_take_turns() {
    check(
        "
        pool narrow concurrency=1
        subscribe b pool=narrow sequence=5
        subscribe a pool=narrow sequence=50
        publish x x
        run                         -> b/1:200 b/2:200 a/1:200 a/2:200
        change b sequence=50
        publish x x
        run-turns                   -> taking turns
    ",
    );
}
