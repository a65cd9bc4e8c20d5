//! Republishing and trimming: the same events again, for all readers or for one group, recognised by the handlers that
//! have done them.

use crate::scenario::{check, check_alone};

const EVENTS: &str = "
        topic orders window=PT1H                    -> created
        type placed topic=orders                    -> created
        publish placed a id=11 data={\"n\":1}       -> created 1 aggregate 1
        publish placed b id=12 data={\"n\":2}       -> created 2 aggregate 1
        publish placed a id=13 data={\"n\":3}       -> created 3 aggregate 2
        publish placed c                            -> created 4 aggregate 1
";

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn events_are_appended_again_in_their_order_and_nothing_swallows_them() {
    with_events(
        "
        republish orders 1 3 dry                    -> 3
        read orders                                 -> 1 2 3 4 next 4 tail 4
        republish orders 1 3                        -> 3
        read orders after=4                         -> 5 6 7 next 7 tail 7
        history orders a                            -> 1@1 2@3 3@5 4@7 next 4 of 4
        event 11                                    -> 1 {\"n\":1}
        publish placed a id=11 data={\"n\":1}       -> duplicate 1
        republish orders 2 2                        -> 1
        publish placed a id=11 data={\"n\":1}       -> duplicate 1
        rebuild
        publish placed a id=11 data={\"n\":1}       -> duplicate 1
        history orders b                            -> 1@2 2@6 3@8 next 3 of 3
        read orders after=4                         -> 5 6 7 8 next 8 tail 8
    ",
    );
}

#[test]
fn what_was_not_understood_changes_nothing() {
    with_events(
        "
        republish orders 0 3                        -> VALIDATION_ERROR /from
        republish orders 3 2                        -> VALIDATION_ERROR /to
        republish orders 1 100001                   -> VALIDATION_ERROR /to
        republish nowhere 1 2                       -> NOT_FOUND
        republish orders 1 2 group=(none)           -> VALIDATION_ERROR /name
        republish orders 1 2 group=g                -> VALIDATION_ERROR /name
        republish orders 1 2 subscription=s         -> VALIDATION_ERROR /name
        let-go orders                               -> VALIDATION_ERROR /through
        let-go orders through=1 before=0            -> VALIDATION_ERROR /before
        let-go nowhere through=1                    -> NOT_FOUND
        read orders                                 -> 1 2 3 4 next 4 tail 4
    ",
    );
}

#[test]
fn only_what_is_there_is_published_again() {
    with_events(
        "
        trim orders 2                               -> removed 2
        republish orders 1 99                       -> 2
        read orders after=2                         -> 3 4 5 6 next 6 tail 6
        republish orders 7 9                        -> 0
    ",
    );
}

#[test]
fn a_handler_that_has_done_an_event_is_told_so_when_it_comes_again() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing orders/4 as=d                 -> claimed attempt 1 until 900000
        republish orders 1 4                        -> 4
        claim billing orders/5                      -> done
        claim billing #11                           -> done
        claim billing orders/8                      -> held until 900000
        claim mailing orders/5 as=m                 -> claimed attempt 1 until 900000
        claim mailing orders/1                      -> held until 900000
        done m                                      -> done attempt 1
        claim mailing orders/1                      -> done
        done d                                      -> done attempt 1
        republish orders 5 5                        -> 1
        claim billing orders/9                      -> done
        rebuild
        claim billing orders/9                      -> done
        claim mailing #11                           -> done
    ",
    );
}

#[test]
fn it_is_known_again_also_when_the_first_one_is_gone() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        republish orders 1 1                        -> 1
        trim orders 4                               -> removed 4
        claim billing orders/5                      -> done
        claim billing #11                           -> done
        claim mailing orders/5                      -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn a_shared_group_is_not_handed_a_second_time_what_comes_again() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 2 4 next 0 tail 4
        dones m.1 m.2                               -> done attempt 1 | done attempt 1
        republish orders 1 4                        -> 4
        poll m                                      -> 3 next 2 tail 8
        dones m.3 m.4                               -> done attempt 1 | done attempt 1
        poll m                                      -> next 8 tail 8
        group g                                     -> orders 8 of 8 lag 0 by m
        consumer n group=late topic=orders shared   -> created
        poll n after=4                              -> 5 6 8 next 4 tail 8
        done n.5                                    -> done attempt 1
        poll n                                      -> 7 next 5 tail 8
    ",
    );
}

/// The claim of a copy whose original was never done returned `done` once retention had removed the original.
#[test]
fn an_event_that_was_never_done_can_be_done_by_its_copy_when_the_original_is_removed() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        handler mailing backoff=PT1H                -> created PT900S 5 PT1H latest
        claim billing orders/4 as=d                 -> claimed attempt 1 until 900000
        done d                                      -> done attempt 1
        claim mailing orders/1 as=e                 -> claimed attempt 1 until 900000
        fail e                                      -> failed attempt 1 again 3600000
        republish orders 1 2                        -> 2
        trim orders 3                               -> removed 3
        {how}
        claim billing orders/5 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        {how}
        claim billing orders/5                      -> done
        claim mailing orders/5 as=f                 -> claimed attempt 1 until 900000
        done e                                      -> CLAIM_LOST
        done f                                      -> done attempt 1
        claim mailing #11                           -> done
        republish orders 5 6                        -> 2
        claim mailing orders/7                      -> done
        claim mailing orders/8                      -> claimed attempt 1 until 900000
    "
        ));
    }
}

/// A copy was skipped permanently while its original was pending; then retention removed the original, and neither was
/// handled.
#[test]
fn a_shared_group_is_handed_the_copy_of_an_event_that_was_removed_before_it_was_done() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        consumer m group=g topic=orders shared flight=1 -> created
        poll m                                      -> 1 next 0 tail 4
        republish orders 2 3                        -> 2
        poll m                                      -> next 0 tail 6
        trim orders 3                               -> removed 3
        done m.1                                    -> done attempt 1
        {how}
        poll m                                      -> 4 next 3 tail 6
        done m.4                                    -> done attempt 1
        poll m                                      -> 5 next 4 tail 6
        done m.5                                    -> done attempt 1
        poll m                                      -> 6 next 5 tail 6
        done m.6                                    -> done attempt 1
        poll m                                      -> next 6 tail 6
        group g                                     -> orders 6 of 6 lag 0 by m
    "
        ));
    }
}

/// A group whose range did not contain the original received every copy, and a claim by hand did not exclude it.
#[test]
fn a_shared_group_that_started_after_the_original_is_handed_one_copy() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m after=4                              -> next 4 tail 4
        republish orders 1 1                        -> 1
        republish orders 1 1                        -> 1
        claim g orders/1 as=a                       -> claimed attempt 1 until 900000
        poll m                                      -> next 4 tail 6
        release a                                   -> released attempt 0
        poll m                                      -> 5 next 4 tail 6
        claim g orders/6                            -> held until 900000
        done m.5                                    -> done attempt 1
        poll m                                      -> next 6 tail 6
        group g                                     -> orders 6 of 6 lag 0 by m
        claim g orders/1                            -> done
        republish orders 5 6 group=g dry            -> 1
        republish orders 5 6 group=g                -> 1
        group g                                     -> orders 4 of 6 lag 1 by m
        rebuild
        poll m                                      -> 5 next 4 tail 6
        done m.5                                    -> done attempt 1
        poll m                                      -> next 6 tail 6
    ",
    );
}

/// The next event of an aggregate stayed `held` permanently after a copy of a finished event.
#[test]
fn under_gapless_an_event_does_not_wait_for_copies_of_finished_ones() {
    with_events(
        "
        handler h order=gapless                     -> created PT900S 5 PT1S gapless
        claim h orders/1 as=a                       -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        republish orders 1 1                        -> 1
        publish placed a                            -> created 6 aggregate 4
        claim h orders/6                            -> held
        claim h orders/3 as=c                       -> claimed attempt 1 until 900000
        claim h orders/6                            -> held until 900000
        done c                                      -> done attempt 1
        claim h orders/6 as=f                       -> claimed attempt 1 until 900000
        done f                                      -> done attempt 1
        republish orders 3 6                        -> 4
        trim orders 6                               -> removed 6
        publish placed a                            -> created 11 aggregate 8
        claim h orders/11                           -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn under_latest_a_copy_is_stale_if_a_later_event_is_done() {
    with_events(
        "
        claim h orders/3 as=c                       -> claimed attempt 1 until 900000
        done c                                      -> done attempt 1
        republish orders 1 1                        -> 1
        claim h orders/5                            -> stale
        trim orders 1                               -> removed 1
        claim h orders/5                            -> stale
        claim other orders/5 as=o                   -> claimed attempt 1 until 900000
        done o                                      -> done attempt 1
        claim other orders/3                        -> claimed attempt 1 until 900000
    ",
    );
}

/// Every copy of a finished event counted permanently in the lag of its handler.
#[test]
fn an_event_and_its_copies_are_one_in_the_lag() {
    for order in ["gapless", "latest"] {
        with_events(&format!(
            "
        handler h order={order}                     -> created PT900S 5 PT1S {order}
        claim h orders/1 as=a                       -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim h orders/2 as=b                       -> claimed attempt 1 until 900000
        standing h                                  -> in flight 1 failed 0 dead 0 lag 3
        republish orders 1 4                        -> 4
        standing h                                  -> in flight 1 failed 0 dead 0 lag 3
        done b                                      -> done attempt 1
        claim h orders/7 as=c                       -> claimed attempt 1 until 900000
        done c                                      -> done attempt 1
        claim h orders/8 as=d                       -> claimed attempt 1 until 900000
        done d                                      -> done attempt 1
        standing h                                  -> in flight 0 failed 0 dead 0 lag 0
        trim orders 3                               -> removed 3
        standing h                                  -> in flight 0 failed 0 dead 0 lag 0
        claim new orders/4 as=e                     -> claimed attempt 1 until 900000
        standing new                                -> in flight 1 failed 0 dead 0 lag 4
    "
        ));
    }
}

/// The first round's worker received success for its `done`, although the second round's `done` had counted.
#[test]
fn a_token_from_before_a_reset_is_refused_once_the_event_is_done_again() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        consumer m group=g topic=orders shared      -> created
        claim g orders/1 as=a                       -> claimed attempt 1 until 900000
        poll m limit=1                              -> 2 next 0 tail 4
        done a                                      -> done attempt 1
        done a                                      -> done attempt 1
        republish orders 1 1 group=g                -> 1
        done a                                      -> NOT_FOUND
        {how}
        claim g orders/1 as=b                       -> claimed attempt 1 until 900000
        done a                                      -> CLAIM_LOST
        done b                                      -> done attempt 1
        {how}
        done b                                      -> done attempt 1
        done a                                      -> CLAIM_LOST
    "
        ));
    }
}

#[test]
fn a_group_is_handed_again_what_it_has_finished_and_nobody_else_notices() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 2 4 next 0 tail 4
        dones m.1 m.2                               -> done attempt 1 | done attempt 1
        poll m                                      -> 3 next 2 tail 4
        republish orders 1 4 group=g dry            -> 2
        group g                                     -> orders 2 of 4 lag 2 by m(2)
        republish orders 1 4 group=g                -> 2
        group g                                     -> orders 0 of 4 lag 4 by m(2)
        poll m                                      -> 1 2 next 0 tail 4
        dones m.1 m.2                               -> done attempt 1 | done attempt 1
        group g                                     -> orders 2 of 4 lag 2 by m(2)
        dones m.3 m.4                               -> done attempt 1 | done attempt 1
        group g                                     -> orders 4 of 4 lag 0 by m
        republish orders 2 2 group=g                -> 1
        rebuild
        group g                                     -> orders 1 of 4 lag 1 by m
        poll m                                      -> 2 next 1 tail 4
        republish orders 2 2 group=g                -> 0
        done m.2                                    -> done attempt 1
        group g                                     -> orders 4 of 4 lag 0 by m
        poll m                                      -> next 4 tail 4
        read orders                                 -> 1 2 3 4 next 4 tail 4
    ",
    );
}

#[test]
fn what_a_group_began_behind_is_not_handed_out_by_publishing_for_it_again() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m after=3                              -> 4 next 3 tail 4
        done m.4                                    -> done attempt 1
        republish orders 1 4 group=g                -> 1
        poll m                                      -> 4 next 3 tail 4
        done m.4                                    -> done attempt 1
        group g                                     -> orders 4 of 4 lag 0 by m
    ",
    );
}

#[test]
fn a_topic_in_a_log_of_its_own_publishes_again_there() {
    check_alone(
        "
        topic aside streaming={\"type\":\"file\",\"location\":\"aside\"}     -> created
        type made topic=aside                       -> created
        publish made a id=1                         -> created 1 aggregate 1
        republish aside 1 1                         -> 1
        read aside                                  -> 1 2 next 2 tail 2
        let-go aside through=1                      -> 1
        read aside after=1                          -> 2 next 2 tail 2
    ",
    );
}

#[test]
fn a_topic_is_trimmed_through_a_sequence_or_before_a_time() {
    with_events(
        "
        let-go orders through=1                     -> 1
        let-go orders through=1                     -> 0
        advance 1000
        publish placed a                            -> created 5 aggregate 3
        let-go orders before=0                      -> 3
        read orders after=4                         -> 5 next 5 tail 5
        let-go orders before=-1000                  -> 0
        let-go orders through=99                    -> 1
        read orders after=5                         -> next 5 tail 5
    ",
    );
}

/// Its event was looked up only under the original's sequence: it could be claimed and given up, and then only discarded.
#[test]
fn a_dead_letter_of_a_copy_whose_original_is_removed_has_its_event_and_can_be_redriven() {
    with_events(
        "
        republish orders 1 1                        -> 1
        trim orders 1                               -> removed 1
        claim h orders/5 as=a                       -> claimed attempt 1 until 900000
        fail a class=X final                        -> dead attempt 1
        letters                                     -> h orders/1 X attempts 1 open
        redrive-all name=h dry                      -> 1
        redrive h orders/1                          -> redriven
        claim h orders/5 as=b                       -> claimed attempt 1 until 900000
        fail b class=Y final                        -> dead attempt 1
        redrive h orders/1 data={\"n\":9}           -> redriven
        read orders after=4                         -> 5 6 next 6 tail 6
        claim h orders/5                            -> done
        claim h orders/6 as=c                       -> claimed attempt 1 until 900000
        fail c class=Z final                        -> dead attempt 1
        trim orders 6                               -> removed 5
        letters                                     -> h orders/6 Z attempts 1 open event gone
        redrive h orders/6                          -> TRIMMED earliest 7
    ",
    );
}

/// The letter could not be redriven, so the events of its aggregate were never handed out.
#[test]
fn a_shared_group_goes_on_with_an_aggregate_when_the_copy_that_it_gave_up_is_redriven() {
    with_events(
        "
        republish orders 1 1                        -> 1
        trim orders 1                               -> removed 1
        consumer m group=g topic=orders shared      -> created
        poll m after=1                              -> 2 3 4 next 1 tail 5
        dones m.2 m.3 m.4                           -> done attempt 1 | done attempt 1 | done attempt 1
        poll m                                      -> 5 next 4 tail 5
        fail m.5 class=X final                      -> dead attempt 1
        publish placed a                            -> created 6 aggregate 4
        poll m                                      -> next 4 tail 6
        redrive g orders/1                          -> redriven
        poll m                                      -> 5 next 4 tail 6
        done m.5                                    -> done attempt 1
        poll m                                      -> 6 next 5 tail 6
    ",
    );
}
