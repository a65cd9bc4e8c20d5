//! Compaction: the latest event of each aggregate is kept whatever its age, and a tombstone ends an aggregate.

use crate::scenario::{check, check_alone};

const EVENTS: &str = "
        topic states compact retention=P1D          -> created
        type changed topic=states                   -> created
        type ended topic=states tombstone           -> created
        publish changed a id=11                     -> created 1 aggregate 1
        publish changed b id=12                     -> created 2 aggregate 1
        publish changed a id=13                     -> created 3 aggregate 2
        publish changed b id=14                     -> created 4 aggregate 2
        publish changed c id=15                     -> created 5 aggregate 1
        publish changed a id=16                     -> created 6 aggregate 3
";

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn retention_never_takes_the_latest_event_of_an_aggregate() {
    with_events(
        "
        expire                                      -> removed 0
        advance 86400001
        publish changed d                           -> created 7 aggregate 1
        expire                                      -> removed 3
        expire                                      -> removed 0
        read states after=3                         -> 4 5 6 7 next 7 tail 7
        aggregate states b                          -> 2 at 4 there
        publish changed b                           -> created 8 aggregate 3
        expire                                      -> removed 1
        read states after=4                         -> 5 6 7 8 next 8 tail 8
        rebuild
        publish changed b                           -> created 9 aggregate 4
        publish changed a                           -> created 10 aggregate 4
    ",
    );
}

#[test]
fn what_retention_would_do_later_can_be_done_now() {
    with_events(
        "
        compact states                              -> 3
        compact states                              -> 0
        read states after=3                         -> 4 5 6 next 6 tail 6
        publish changed b                           -> created 7 aggregate 3
        publish changed c                           -> created 8 aggregate 2
        compact states                              -> 2
        read states after=5                         -> 6 7 8 next 8 tail 8
        compact nowhere                             -> NOT_FOUND
        compact default                             -> INVALID_STATE
    ",
    );
}

#[test]
fn a_tombstone_takes_its_aggregate_with_it_when_its_time_is_over() {
    with_events(
        "
        publish ended b id=20                       -> created 7 aggregate 3
        publish ended c                             -> created 8 aggregate 2
        publish changed a                           -> created 9 aggregate 4
        publish changed d                           -> created 10 aggregate 1
        compact states                              -> 6
        read states after=6                         -> 7 8 9 10 next 10 tail 10
        advance 86400001
        compact states                              -> 2
        read states after=8                         -> 9 10 next 10 tail 10
        aggregate states b                          -> 3 at 7 gone
        publish changed b id=12                     -> created 11 aggregate 4
        rebuild
        publish changed b                           -> created 12 aggregate 5
        aggregate states c                          -> 2 at 8 gone
    ",
    );
}

#[test]
fn the_last_event_of_a_topic_stays_even_if_it_ends_something() {
    check(
        "
        topic states compact                        -> created
        type ended topic=states tombstone           -> created
        type loose topic=states subject-optional    -> created
        publish ended a                             -> created 1 aggregate 1
        compact states                              -> 0
        publish loose -                             -> created 2
        compact states                              -> 1
        publish ended b                             -> created 3 aggregate 1
        compact states                              -> 0
        advance 86400001
        expire                                      -> removed 0
        read states after=1                         -> 2 3 next 3 tail 3
    ",
    );
}

#[test]
fn the_latest_events_are_published_again_under_new_ids() {
    with_events(
        "
        republish states 1 6 dry                    -> 3
        republish states 1 6                        -> 3
        read states after=6                         -> 7 8 9 next 9 tail 9
        event 16                                    -> 6 {}
        history states a                            -> 1@1 2@3 3@6 4@9 next 4 of 4
        claim billing states/6 as=x                 -> claimed attempt 1 until 900000
        done x                                      -> done attempt 1
        claim billing states/9                      -> claimed attempt 1 until 900000
        caused states 9                             -> 16
        republish states 1 6                        -> 0
        compact states                              -> 6
        republish states 1 99                       -> 3
    ",
    );
}

#[test]
fn a_compacted_topic_may_lie_in_a_log_of_its_own() {
    check_alone(
        "
        topic aside compact streaming={\"type\":\"file\",\"location\":\"aside\"}     -> created
        type made topic=aside                       -> created
        type ended topic=aside tombstone            -> created
        publish made a                              -> created 1 aggregate 1
        publish ended a                             -> created 2 aggregate 2
        publish made b                              -> created 3 aggregate 1
        compact aside                               -> 2
        read aside after=2                          -> 3 next 3 tail 3
    ",
    );
}
