//! Known errors of similar systems, each as a test that explains it.

use super::with_events;

/// Two deliveries of one event both check first and then both act, because checking and claiming were two steps.
/// [`super::races`] tests the race itself; this test has the order of steps that caused it.
#[test]
fn check_then_act_looking_is_claiming() {
    with_events(
        "
        claim billing orders/1 by=w1 as=a           -> claimed attempt 1 until 900000
        claim billing orders/1 by=w2                -> held until 900000
        done a events: placed b id=99               -> done attempt 1
        claim billing orders/1 by=w2                -> done
        done a events: placed b id=99               -> done attempt 1
        read orders                                 -> 1 2 3 4 5 next 5 tail 5
    ",
    );
}

/// Event 1 fails, 2 is done, and the retry of 1 returns `stale`: its effect is lost without notice. Here a failed event
/// that is overtaken becomes a dead letter, and can be redriven.
#[test]
fn a_failed_lower_event_is_not_passed_over_in_silence() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a class=Timeout                        -> failed attempt 1 again 1000
        claim billing orders/2 as=b                 -> claimed attempt 1 until 900000
        done b                                      -> done attempt 1
        standing billing                            -> in flight 0 failed 1 dead 0 lag 3 since 0
        advance 1000
        claim billing orders/1                      -> stale
        claim billing orders/1                      -> stale
        letters                                     -> billing orders/1 Superseded attempts 1 open
        tried billing orders/1                      -> 1 unknown Timeout
        standing billing                            -> in flight 0 failed 0 dead 1 lag 3 stale 1 since -1000
        redrive billing orders/1                    -> redriven
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a                                      -> failed attempt 1 again 1000
        advance 1000
        claim billing orders/1 as=a                 -> claimed attempt 2 until 900000
        done a                                      -> done attempt 2
    ",
    );
    // A handler with order `gapless` never reaches this state.
    with_events(
        "
        handler billing order=gapless               -> created PT900S 5 PT1S gapless
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a class=Timeout                        -> failed attempt 1 again 1000
        claim billing orders/2                      -> held until 1000
        advance 1000
        claim billing orders/2                      -> held
        claim billing orders/1 as=a                 -> claimed attempt 2 until 900000
        done a                                      -> done attempt 2
        claim billing orders/2                      -> claimed attempt 1 until 900000
        letters                                     -> 
    ",
    );
}

/// The worker of event 1 crashes, 2 is done, and 1 is stale: it is unknown whether its effect happened, so an operator
/// must check.
#[test]
fn an_event_whose_worker_died_is_not_passed_over_in_silence_either() {
    with_events(
        "
        claim billing orders/1 by=w1 lease=PT1S     -> claimed attempt 1 until 1000
        claim billing orders/2 as=b                 -> claimed attempt 1 until 900000
        done b                                      -> done attempt 1
        advance 1000
        claim billing orders/1                      -> stale
        letters                                     -> billing orders/1 Superseded attempts 1 open
        tried billing orders/1                      -> 1 w1 LeaseExpired
        discard billing orders/1 reason=looked      -> discarded
        claim billing orders/1                      -> done
    ",
    );
}

/// A redriven event has its old id, and a consumer that remembers ids discards it.
#[test]
fn a_redriven_event_is_not_swallowed_by_deduplication() {
    with_events(
        r#"
        publish placed c id=15 dedup=once data={"n":1} -> created 5 aggregate 1
        claim billing orders/5 as=a                 -> claimed attempt 1 until 900000
        fail a class=X final                        -> dead attempt 1
        redrive billing orders/5                    -> redriven
        claim billing #15 as=a                      -> claimed attempt 1 until 900000
        fail a class=X final                        -> dead attempt 1
        redrive billing orders/5 data={"n":2}       -> redriven
        read orders                                 -> 1 2 3 4 5 6 next 6 tail 6
        claim billing orders/5                      -> done
        claim billing orders/6 as=b                 -> claimed attempt 1 until 900000
        fail b class=X final                        -> dead attempt 1
        redrive billing orders/6 new                -> redriven
        read orders                                 -> 1 2 3 4 5 6 7 next 7 tail 7
        claim billing orders/7                      -> claimed attempt 1 until 900000
    "#,
    );
}

/// One event that always fails blocks its partition, and all later events in it.
#[test]
fn a_poison_event_blocks_no_other_aggregate() {
    for order in ["latest", "gapless"] {
        with_events(&format!(
            "
        handler billing order={order} attempts=1    -> created PT900S 1 PT1S {order}
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a class=Poison                         -> dead attempt 1
        claim billing orders/3 as=c                 -> claimed attempt 1 until 900000
        done c offset=3                             -> done attempt 1
        publish placed b                            -> created 5 aggregate 2
        claim billing orders/5 as=e                 -> claimed attempt 1 until 900000
        done e                                      -> done attempt 1
        letters                                     -> billing orders/1 Poison attempts 1 open
    "
        ));
    }
}

/// The clock is set back by an hour: leases and back-offs seem to last an hour longer, or ends precede beginnings.
/// Times are shown by the wall clock, so the log's times are an hour ahead of it from then on.
#[test]
fn a_clock_that_steps_back_neither_stretches_a_lease_nor_lets_two_in() {
    with_events(
        "
        claim billing orders/1 as=a lease=PT30S     -> claimed attempt 1 until 30000
        advance 20000
        publish placed b                            -> created 5 aggregate 2
        step -3600000
        claim billing orders/1                      -> held until 3610000
        claim billing orders/3 lease=PT5S as=c      -> claimed attempt 1 until 3605000
        advance 4999
        claim billing orders/3                      -> held until 3600001
        advance 1
        claim billing orders/3 lease=PT5S as=d      -> claimed attempt 2 until 3605000
        advance 4999
        claim billing orders/1                      -> held until 3600001
        advance 1
        claim billing orders/1 as=b                 -> claimed attempt 2 until 4500000
        done a                                      -> CLAIM_LOST
        done c                                      -> CLAIM_LOST
        done b                                      -> done attempt 2
    ",
    );
}
