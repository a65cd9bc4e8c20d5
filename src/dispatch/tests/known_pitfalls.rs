//! Known pitfalls of other systems, one test each.

use super::check;

#[test]
fn trap_1_a_job_that_waits_to_be_tried_again_is_not_overtaken() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR
        publish a
        answer mail/1 500
        run                         -> mail/1:500
        publish a
        advance 4999
        run                         -> 
        restart
        run                         -> 
        advance 1
        run                         -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn trap_2_a_group_never_holds_itself() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=1
        publish a a
        answer mail/1 500
        run                         -> mail/1:500
        retry mail/1                -> QUEUED
        run                         -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn trap_3_events_of_one_moment_keep_their_order() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR
        publish a a a a a a a a a a a a
        answer mail/4 500
        run                         -> mail/1:200 mail/2:200 mail/3:200 mail/4:500
        advance 5000
        run                         -> mail/4:200 mail/5:200 mail/6:200 mail/7:200 mail/8:200 mail/9:200 mail/10:200 mail/11:200 mail/12:200
    ",
    );
}

#[test]
fn trap_4_a_failed_job_of_one_mode_or_subscriber_holds_no_other() {
    check(
        "
        subscribe a mode=BLOCK_ON_ERROR attempts=1
        subscribe b mode=BLOCK_ON_ERROR attempts=1
        subscribe c mode=NEXT_ON_ERROR
        subscribe d
        publish x
        answer a/1 500
        run-sorted                  -> a/1:500 b/1:200 c/1:200 d/1:200
        publish x
        run-sorted                  -> b/2:200 c/2:200 d/2:200
    ",
    );
}

#[test]
fn trap_5_a_hold_costs_no_attempt() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR retry=PT1S attempts=4
        publish a a
        answer mail/1 500 500 500
        answer mail/2 500 500 500
        run                         -> mail/1:500
        advance 1000
        run                         -> mail/1:500
        advance 1000
        run                         -> mail/1:500
        advance 1000
        run                         -> mail/1:200 mail/2:500
        advance 1000
        run                         -> mail/2:500
        advance 1000
        run                         -> mail/2:500
        advance 1000
        run                         -> mail/2:200
    ",
    );
}

#[test]
fn trap_6_a_full_pool_of_slow_jobs_starves_no_other() {
    let many = "slow/1 hang\n".to_owned();
    check(&format!(
        "
        pool slow concurrency=1
        subscribe slow pool=slow
        subscribe fast
        answer {many}
        publish a a a a a a a a
        run                         -> fast/1:200 fast/2:200 fast/3:200 fast/4:200 fast/5:200 fast/6:200 fast/7:200 fast/8:200
    "
    ));
}

#[test]
fn trap_7_a_completed_job_is_not_sent_again_by_a_retry() {
    check(
        "
        subscribe mail
        publish a
        run                         -> mail/1:200
        retry mail/1                -> INVALID_STATE
        restart
        run                         -> 
        reopen
        run                         -> 
    ",
    );
}

#[test]
fn trap_8_what_waits_is_not_sent_twice_because_it_waits_long() {
    check(
        "
        subscribe mail
        publish a
        answer mail/1 defer3600
        run                         -> mail/1:defer3600
        advance 900000
        run                         -> 
        advance 2700000
        run                         -> mail/1:200
        run                         -> 
    ",
    );
}

#[test]
fn trap_9_members_that_are_stored_are_applied() {
    check(
        "
        subscribe mail delay=1 age=3 attempts=2 retry=PT1S types=placed
        publish a
        publish a type=paid
        run                         -> 
        advance 1000
        answer mail/1 500
        run                         -> mail/1:500
        advance 1000
        run                         -> mail/1:200
        jobs                        -> mail/1
    ",
    );
}

#[test]
fn trap_10_two_deliveries_of_one_job_are_told_apart_by_a_token_that_grows() {
    check(
        "
        subscribe mail retry=PT0S attempts=9
        publish a
        answer mail/1 500 500 500
        run                         -> mail/1:500 mail/1:500 mail/1:500 mail/1:200
        tokens mail/1               -> 4 growing
    ",
    );
}

#[test]
fn trap_11_nothing_is_lost_or_stuck_when_the_broker_dies_between_an_answer_and_the_log() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR
        publish a a b
        answer mail/1 hang
        run                         -> mail/3:200
        restart
        run                         -> mail/1:200 mail/2:200
        tokens mail/1               -> 2 growing
        status mail                 -> Active through 3 open 0
        reopen
        run                         -> 
        status mail                 -> Active through 3 open 0
    ",
    );
}

#[test]
fn a_target_that_is_down_is_left_alone_and_that_costs_nothing() {
    let downs: String = (1..=10).map(|n| format!("answer mail/{n} down\n")).collect();
    let publish = "publish a b c d e f g h i j";
    check(&format!(
        "
        subscribe mail mode=BLOCK_ON_ERROR retry=PT1H
        {downs}
        {publish}
        run                         -> mail/1:down mail/2:down mail/3:down mail/4:down mail/5:down mail/6:down mail/7:down mail/8:down mail/9:down mail/10:down
        publish k l
        run                         -> 
        job mail/11                 -> QUEUED tried 0
        advance 30000
        answer mail/11 hang
        run                         -> 
        release mail/11             -> mail/11:200 mail/12:200
    "
    ));
}

#[test]
fn a_delivery_that_the_broker_itself_fails_over_is_given_up_and_not_stuck() {
    check(
        "
        subscribe mail mode=NEXT_ON_ERROR
        answer mail/1 panic
        publish a a
        run                         -> mail/1:panic mail/2:200
        job mail/1                  -> ERROR tried 1
        retry mail/1
        run                         -> mail/1:200
        job mail/1                  -> COMPLETED tried 2
    ",
    );
}
