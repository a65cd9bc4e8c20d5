//! The offset sent with `done`, events that `latest` skips, and where `gapless` begins.

use super::with_events;

/// Event 1 fails, 2 is done with `offset: 2`: a restarted worker that continued from that offset never received 1
/// again.
#[test]
fn done_does_not_move_the_offset_over_an_event_that_failed() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a                                      -> failed attempt 1 again 1000
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=3                             -> done attempt 1 offset 0 because of 1
        {how}
        group billing                               -> orders 0 of 4 lag 3
        advance 1000
        claim billing orders/1 as=c                 -> claimed attempt 2 until 900000
        done c offset=3                             -> done attempt 2
        group billing                               -> orders 3 of 4 lag 1
    "
        ));
    }
}

#[test]
fn done_does_not_move_the_offset_over_what_somebody_is_at_or_gave_back() {
    with_events(
        "
        claim billing orders/2 as=a                 -> claimed attempt 1 until 900000
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=3                             -> done attempt 1 offset 1 because of 2
        group billing                               -> orders 1 of 4 lag 2
        release a                                   -> released attempt 0
        claim billing orders/4 as=c                 -> claimed attempt 1 until 900000
        done c offset=4                             -> done attempt 1 offset 1 because of 2
        claim billing orders/2 as=d order=gapless   -> claimed attempt 1 until 900000
        done d offset=4                             -> done attempt 1
        group billing                               -> orders 4 of 4 lag 0
    ",
    );
}

/// A dead letter already waits for an operator; it does not hold the offset back permanently.
#[test]
fn done_moves_the_offset_over_a_dead_letter() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a final                                -> dead attempt 1
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=3                             -> done attempt 1
        group billing                               -> orders 3 of 4 lag 2
        redrive billing orders/1                    -> redriven
        claim billing orders/2 order=gapless        -> held
        claim mailing orders/3 as=c                 -> claimed attempt 1 until 900000
        done c offset=4                             -> done attempt 1
        open billing                                -> orders/1 redriven
    ",
    );
}

/// Two deposits, the second is faster: the first one was `stale`, and no number showed that it was skipped.
#[test]
fn events_that_are_stale_are_counted_once_each() {
    with_events(
        "
        claim billing orders/4 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing orders/1                      -> stale
        claim billing orders/1                      -> stale
        claims billing orders/2 ; billing orders/3 as=b -> stale | claimed attempt 1 until 900000
        standing billing                            -> in flight 1 failed 0 dead 0 lag 1 stale 2
        standing nobody                             -> NOT_FOUND
        reopen
        standing billing                            -> in flight 1 failed 0 dead 0 lag 1
        delete-handler billing                      -> deleted
        claim billing orders/1 as=c                 -> claimed attempt 1 until 900000
        standing billing                            -> in flight 1 failed 0 dead 0 lag 4
    ",
    );
}

/// A handler that starts after the topic's first events does not wait for events that it will never receive.
#[test]
fn gapless_does_not_wait_for_events_the_group_has_left_behind() {
    with_events(
        "
        claim billing orders/4 order=gapless        -> held
        reset billing orders 2                      -> orders 2 of 4 lag 2
        claim billing orders/4 order=gapless as=a   -> claimed attempt 1 until 900000
        claim billing orders/2 order=gapless as=b   -> claimed attempt 1 until 900000
        fail b                                      -> failed attempt 1 again 1000
        reset billing orders latest                 -> orders 4 of 4 lag 2
        release a                                   -> released attempt 0
        claim billing orders/4 order=gapless        -> held until 1000
    ",
    );
}

/// A worker claims event 1 and dies, and retention removes the event: nobody could ever claim it again, and the offset
/// stayed before it for ever.
#[test]
fn a_claim_that_nobody_can_finish_because_its_event_is_removed_does_not_hold_the_offset_back() {
    for (ends, open) in
        [("advance 1000", ""), ("fail a -> failed attempt 1 again 1000", ""), ("", "offset 0 because of 1")]
    {
        with_events(&format!(
            "
        claim billing orders/1 as=a lease=PT1S      -> claimed attempt 1 until 1000
        trim orders 1                               -> removed 1
        {ends}
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=3                             -> done attempt 1 {open}
    "
        ));
    }
}
