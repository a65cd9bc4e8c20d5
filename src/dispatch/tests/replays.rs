//! A message group has one order: for first attempts and retries, live and replayed events, and after every restart.

use super::check;

const RESTARTS: [&str; 3] = ["", "restart", "reopen"];

/// The group was dropped when its last new job was done, so that a retry and a new job were sent at the same time.
#[test]
fn next_on_error_sends_no_second_one_while_a_retry_is_under_way() {
    check(
        "
        subscribe mail mode=NEXT_ON_ERROR
        publish a
        answer mail/1 500 hang
        run                         -> mail/1:500
        advance 5000
        run                         ->
        publish a b
        run                         -> mail/3:200
        release mail/1              -> mail/1:200 mail/2:200
    ",
    );
}

#[test]
fn next_on_error_sends_no_retry_while_another_one_is_under_way() {
    for restart in ["", "change mail timeoutSeconds=10"] {
        check(&format!(
            "
            subscribe mail mode=NEXT_ON_ERROR
            publish a a
            answer mail/1 500
            answer mail/2 hang
            run                         -> mail/1:500
            advance 5000
            {restart}
            run                         ->
            release mail/2              -> mail/2:200 mail/1:200
        "
        ));
    }
}

/// After a rebuild a deferred job was outside of its group, and later jobs overtook it.
#[test]
fn next_on_error_waits_for_a_job_that_was_put_off_before_and_after_a_restart() {
    for restart in RESTARTS {
        check(&format!(
            "
            subscribe mail mode=NEXT_ON_ERROR
            publish a a
            answer mail/1 defer7
            run                         -> mail/1:defer7
            {restart}
            run                         ->
            advance 7000
            run                         -> mail/1:200 mail/2:200
        "
        ));
    }
}

/// Tasks of NEXT_ON_ERROR had no order at all.
#[test]
fn tasks_of_one_group_go_one_at_a_time_in_every_pool() {
    for mode in ["NEXT_ON_ERROR", "BLOCK_ON_ERROR"] {
        check(&format!(
            "
            pool other
            task one messageGroup=g mode={mode}
            task two messageGroup=g mode={mode} pool=other
            task three messageGroup=g mode={mode}
            answer task:one hang
            run                         ->
            release task:one            -> task:one:200 task:two:200 task:three:200
        "
        ));
    }
}

/// Replayed and live events of a group were delivered at the same time, and mixed.
#[test]
fn a_replay_and_live_traffic_share_their_groups() {
    for mode in ["NEXT_ON_ERROR", "BLOCK_ON_ERROR"] {
        check(&format!(
            "
            subscribe mail mode={mode}
            publish a a b
            run                         -> mail/1:200 mail/3:200 mail/2:200
            answer mail/4 hang
            publish a a
            run                         ->
            replay mail 1 3             -> 3
            run                         -> mail/3:200
            release mail/4              -> mail/4:200 mail/1:200 mail/2:200 mail/5:200
            answer mail/1 hang
            replay mail 1 2             -> 2
            run                         ->
            publish a b
            run                         -> mail/7:200
            release mail/1              -> mail/1:200 mail/2:200 mail/6:200
            status mail                 -> Active through 7 open 0
        "
        ));
    }
}

#[test]
fn a_replay_passes_no_group_that_is_blocked() {
    for restart in RESTARTS {
        check(&format!(
            "
            subscribe mail mode=BLOCK_ON_ERROR attempts=1
            publish a b
            run                         -> mail/1:200 mail/2:200
            answer mail/3 500
            publish a a
            run                         -> mail/3:500
            replay mail 1 3             -> 3
            {restart}
            run                         -> mail/2:200
            redrive mail/3
            run                         -> mail/3:200 mail/1:200 mail/3:200 mail/4:200
        "
        ));
    }
}

#[test]
fn a_replayed_event_that_fails_blocks_its_group() {
    for restart in RESTARTS {
        check(&format!(
            "
            subscribe mail mode=BLOCK_ON_ERROR attempts=1
            publish a
            run                         -> mail/1:200
            answer mail/1 500
            replay mail 1 1             -> 1
            run                         -> mail/1:500
            publish a b
            {restart}
            run                         -> mail/3:200
            groups mail                 -> mail:gts.vendor.app.order.v1/a by 1 for 0 waiting 1
            redrive mail/1
            run                         -> mail/1:200 mail/2:200
            groups mail                 ->
        "
        ));
    }
}

/// A receiver that deduplicates by id dropped the replay that was to repair it.
#[test]
fn replayed_deliveries_name_their_replay() {
    check(
        "
        subscribe mail
        subscribe post
        publish a a
        run-sorted                  -> mail/1:200 mail/2:200 post/1:200 post/2:200
        replayed                    ->
        replay mail 1 2             -> 2
        answer mail/2 500
        run                         -> mail/1:200 mail/2:500
        advance 5000
        run                         -> mail/2:200
        replayed                    -> mail/1@1 mail/2@1 mail/2@1
        republish 1 1               -> 2
        run-sorted                  -> mail/1:200 post/1:200
    ",
    );
}

/// The share was counted for each replay on its own, so that six of them filled a pool.
#[test]
fn all_replays_of_a_pool_together_take_a_quarter_of_it() {
    let hang = |code: &str| (1..=4).map(|number| format!("answer {code}/{number} hang\n")).collect::<String>();
    check(&format!(
        "
        pool p concurrency=8
        subscribe one pool=p
        subscribe two pool=p
        subscribe six pool=p
        publish a a a a
        run-until six/4:200 12      -> soon
        {}{}{}
        replay one 1 4              -> 4
        replay two 1 4              -> 4
        replay six 1 4              -> 4
        run                         ->
        flying                      -> 2
        publish a
        run-sorted                  -> one/5:200 six/5:200 two/5:200
    ",
        hang("one"),
        hang("two"),
        hang("six"),
    ));
}

/// A receiver that hung filled the pool, and every other subscription waited.
#[test]
fn a_receiver_that_hangs_leaves_places_of_its_pool_to_others() {
    let hang: String = (1..=20).map(|number| format!("answer slow/{number} hang\n")).collect();
    check(&format!(
        "
        pool p concurrency=8
        subscribe slow pool=p sequence=1 types=big
        subscribe quick pool=p types=small
        {hang}
        publish a b c d e f g h i j k l type=big
        run                         ->
        flying                      -> 5
        publish a b c type=small
        run                         -> quick/13:200 quick/14:200 quick/15:200
        advance 10000
        publish a b type=small
        run                         -> quick/16:200 quick/17:200
        flying                      -> 5
        unsubscribe quick
        run                         ->
        flying                      -> 8
    "
    ));
}

/// A higher `sequence` got nothing at all while a lower one had a backlog.
#[test]
fn a_lower_priority_gets_its_turn_in_the_end() {
    let many = "publish x x x x x x x x x x x x x x x x x x x x type=much\n".repeat(2);
    check(&format!(
        "
        pool narrow concurrency=1
        subscribe first pool=narrow sequence=1 types=much
        subscribe last pool=narrow sequence=4 types=little
        publish x type=little
        {many}
        run-until last 25           -> soon
    "
    ));
}

/// Replays with a dead letter counted as running for ever, and the ninth was refused.
#[test]
fn a_replay_whose_jobs_were_given_up_runs_no_more() {
    let replay = "answer mail/1 500\nreplay mail 1 1 -> 1\nrun -> mail/1:500\n";
    check(&format!(
        "
        subscribe mail attempts=1
        publish a
        run                         -> mail/1:200
        {}
        pause mail
        {}
        replay mail 1 1             -> OVERLOADED
        resume mail
        ",
        replay.repeat(10),
        "replay mail 1 1 -> 1\n".repeat(8),
    ));
}
