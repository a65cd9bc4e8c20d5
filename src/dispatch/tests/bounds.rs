//! Limits: the rows of failed jobs are limited, and jobs without room for a row wait.

use super::check;

/// The limit was documented and never checked.
#[test]
fn no_more_jobs_are_open_than_may_be_and_the_others_wait() {
    for (mode, restart) in
        [("IMMEDIATE", ""), ("IMMEDIATE", "reopen"), ("BLOCK_ON_ERROR", ""), ("BLOCK_ON_ERROR", "reopen")]
    {
        let fail: String = (1..=9).map(|number| format!("answer mail/{number} 500\n")).collect();
        check(&format!(
            "
            limit 4
            subscribe mail mode={mode} attempts=1
            {fail}
            publish a b c d e f g h i
            run-sorted                  -> mail/1:500 mail/2:500 mail/3:500 mail/4:500
            status mail                 -> Active through 4 open 4 held
            {restart}
            advance 1000
            run                         ->
            job mail/5                  -> QUEUED tried 0
            discard mail/2
            status mail                 -> Active through 4 open 3
            advance 1000
            run-until mail/5:500 9      -> soon
            status mail                 -> Active through 5 open 4 held
            discard mail/1
            discard mail/3
            discard mail/4
            discard mail/5
            answer mail/6 200
            advance 1000
            run-until mail/6:200 9      -> soon
        "
        ));
    }
}

/// One receiver that refused everything stopped all subscriptions of the log when it had filled the limit.
#[test]
fn a_subscription_whose_jobs_all_fail_leaves_room_to_the_others() {
    for restart in ["", "reopen"] {
        let fail: String = (1..=9).map(|number| format!("answer bad/{number} 500\n")).collect();
        check(&format!(
            "
            limit 8
            pool slow concurrency=1
            subscribe bad attempts=1 pool=slow
            subscribe good
            {fail}
            publish a b c d e f g h i
            run-sorted                  -> {} {}
            status bad                  -> Active through 6 open 6 held
            status good                 -> Active through 9 open 0
            {restart}
            answer good/10 500
            publish j k
            run                         -> good/10:500 good/11:200
            status good                 -> Active through 11 open 1
            discard bad/1
            discard bad/2
            answer bad/7 200
            answer bad/8 200
            run                         -> bad/7:200 bad/8:200 bad/9:500 bad/10:200 bad/11:200
        ",
            (1..=6).map(|number| format!("bad/{number}:500")).collect::<Vec<_>>().join(" "),
            (1..=9).map(|number| format!("good/{number}:200")).collect::<Vec<_>>().join(" "),
        ));
    }
}

#[test]
fn a_job_that_failed_is_tried_again_though_no_more_may_be_open() {
    check(
        "
        limit 1
        subscribe mail
        publish a b
        answer mail/1 500
        run                         -> mail/1:500
        advance 5000
        run                         -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn a_job_expires_only_where_there_is_room_for_its_letter() {
    for mode in ["IMMEDIATE", "BLOCK_ON_ERROR"] {
        check(&format!(
            "
            limit 1
            subscribe mail age=100 mode={mode}
            pause mail
            publish a a
            advance 100000
            run                         ->
            letters                     -> mail/1 Expired tried 0
            discard mail/1
            advance 1000
            run                         ->
            letters                     -> mail/2 Expired tried 0
        "
        ));
    }
}

/// The worker kept an offset for every subscription and replay that ever existed.
#[test]
fn the_worker_forgets_lanes_that_are_gone() {
    check(
        "
        subscribe mail
        subscribe post
        publish a
        run-sorted                  -> mail/1:200 post/1:200
        replay mail 1 1             -> 1
        run                         -> mail/1:200
        remembered                  -> 2
        answer post/2 hang
        publish a
        run                         -> mail/2:200
        unsubscribe post
        release post/2              -> post/2:200
        remembered                  -> 1
    ",
    );
}

/// A dead letter contained the attempts of its job, and cost as much again.
#[test]
fn a_letter_shows_the_attempts_of_its_job_before_and_after_it_is_resolved() {
    check(
        "
        subscribe mail attempts=2 retry=PT5S
        publish a
        answer mail/1 500 500
        run                         -> mail/1:500
        advance 5000
        run                         -> mail/1:500
        letters                     -> mail/1 timeout tried 2
        reopen
        letters                     -> mail/1 timeout tried 2
        advance 1
        redrive mail/1
        answer mail/1 500
        run                         -> mail/1:500
        letters all                 -> mail/1 timeout tried 2
        advance 5000
        run                         -> mail/1:200
        letters all                 -> mail/1 timeout tried 2
    ",
    );
}
