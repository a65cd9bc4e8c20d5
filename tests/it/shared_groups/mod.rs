//! Shared groups: which member receives which event, order, fairness, and what a restart preserves.

mod killed_members;
mod leaving;
mod waiting_members;

use crate::scenario::{check, check_alone};

/// Subject `a` has three events, `b` has two, and one event has no subject.
const EVENTS: &str = "
        topic orders                                -> created
        type placed topic=orders                    -> created
        type loose topic=orders subject-optional    -> created
        publish placed a id=11                      -> created 1 aggregate 1
        publish placed a id=12                      -> created 2 aggregate 2
        publish placed b id=13                      -> created 3 aggregate 1
        publish loose - id=14                       -> created 4
        publish placed b id=15                      -> created 5 aggregate 2
        publish placed a id=16                      -> created 6 aggregate 3
";

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn of_each_aggregate_one_event_at_a_time_is_handed_out_and_the_next_when_it_is_done() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        group g                                     -> orders 0 of 6 lag 6 by m
        poll m                                      -> 1 3 4 next 0 tail 6
        poll m                                      -> next 0 tail 6
        group g                                     -> orders 0 of 6 lag 6 by m(3)
        done m.3                                    -> done attempt 1
        poll m                                      -> 5 next 0 tail 6
        done m.1                                    -> done attempt 1
        group g                                     -> orders 1 of 6 lag 4 by m(2)
        poll m                                      -> 2 next 1 tail 6
        dones m.4 m.5 m.2                        -> done attempt 1 | done attempt 1 | done attempt 1
        group g                                     -> orders 5 of 6 lag 1 by m
        poll m                                      -> 6 next 5 tail 6
        done m.6                                    -> done attempt 1
        group g                                     -> orders 6 of 6 lag 0 by m
        poll m                                      -> next 6 tail 6
        claim g orders/3                            -> done
        claim other orders/3                        -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn members_divide_what_is_ready_and_nobody_takes_it_all() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        consumer n group=g topic=orders shared      -> created
        poll m                                      -> 1 3 next 0 tail 6
        poll n                                      -> 4 next 0 tail 6
        poll n                                      -> next 0 tail 6
        group g                                     -> orders 0 of 6 lag 6 by m(2) n(1)
        done m.1                                    -> done attempt 1
        poll n                                      -> 2 next 1 tail 6
        consumer o group=g topic=orders shared      -> created
        delete n                                    -> deleted
        delete o                                    -> deleted
        done m.3                                    -> done attempt 1
        poll m                                      -> 2 4 5 next 1 tail 6
    ",
    );
}

#[test]
fn a_member_has_no_more_in_hand_than_it_may() {
    with_events(
        "
        consumer m group=g topic=orders shared flight=2     -> created
        poll m                                              -> 1 3 next 0 tail 6
        poll m                                              -> next 0 tail 6
        done m.3                                            -> done attempt 1
        poll m                                              -> 4 next 0 tail 6
        poll m limit=1                                      -> next 0 tail 6
        fail m.4                                            -> failed attempt 1 again 1000
        poll m                                              -> 5 next 0 tail 6
    ",
    );
}

#[test]
fn what_a_silent_member_had_goes_to_the_others_when_its_lease_is_over() {
    with_events(
        "
        handler g lease=PT10S attempts=2            -> created PT10S 2 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m limit=1                              -> 1 next 0 tail 6
        consumer n group=g topic=orders shared      -> created
        advance 9999
        poll n limit=1                              -> 3 next 0 tail 6
        advance 1
        poll n limit=1                              -> 1+2 next 0 tail 6
        done m.1                                    -> CLAIM_LOST
        group g                                     -> orders 0 of 6 lag 6 by m n(2)
        advance 10000
        poll n                                      -> 3+2 next 0 tail 6
        letters                                     -> g orders/1 LeaseExpired attempts 2 open
        poll n                                      -> 4 next 0 tail 6
    ",
    );
}

#[test]
fn a_poison_event_holds_up_its_own_aggregate_and_no_other() {
    with_events(
        "
        handler g attempts=1                        -> created PT900S 1 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 3 4 next 0 tail 6
        fail m.1 class=Poison                       -> dead attempt 1
        dones m.3 m.4                            -> done attempt 1 | done attempt 1
        poll m                                      -> 5 next 0 tail 6
        done m.5                                    -> done attempt 1
        poll m                                      -> next 0 tail 6
        group g                                     -> orders 0 of 6 lag 3 by m
        redrive g orders/1                          -> redriven
        poll m                                      -> 1 next 0 tail 6
        fail m.1 class=Poison                       -> dead attempt 1
        discard g orders/1 reason=nobody-cares      -> discarded
        poll m                                      -> 2 next 1 tail 6
        fail m.2 class=Other                        -> dead attempt 1
        poll m                                      -> next 1 tail 6
    ",
    );
}

#[test]
fn what_failed_is_handed_out_again_after_its_wait() {
    with_events(
        "
        handler g backoff=PT2S                      -> created PT900S 5 PT2S latest
        consumer m group=g topic=orders shared      -> created
        poll m limit=1                              -> 1 next 0 tail 6
        fail m.1                                    -> failed attempt 1 again 2000
        advance 1999
        poll m limit=1                              -> 3 next 0 tail 6
        advance 1
        poll m limit=1                              -> 1+2 next 0 tail 6
    ",
    );
}

#[test]
fn what_the_filter_does_not_take_is_passed_over_and_counts_as_seen() {
    with_events(
        "
        consumer m group=g topic=orders shared cel=subject == 'b'   -> created
        poll m                                      -> 3 next 2 tail 6
        group g                                     -> orders 2 of 6 lag 2 by m(1)
        done m.3                                    -> done attempt 1
        group g                                     -> orders 4 of 6 lag 1 by m
        poll m                                      -> 5 next 4 tail 6
        done m.5                                    -> done attempt 1
        group g                                     -> orders 6 of 6 lag 0 by m
        publish placed a                            -> created 7 aggregate 4
        publish placed c                            -> created 8 aggregate 1
        poll m                                      -> next 8 tail 8
        group g                                     -> orders 8 of 8 lag 0 by m
        rebuild
        group g                                     -> orders 8 of 8 lag 0 by m
    ",
    );
}

#[test]
fn a_group_begins_at_either_end_of_what_is_there() {
    with_events(
        "
        trim orders 2                               -> removed 2
        consumer e group=e topic=orders shared      -> created
        poll e after=earliest                       -> 3 4 6 next 2 tail 6
        group e                                     -> orders 2 of 6 lag 4 by e(3)
        consumer l group=l topic=orders shared      -> created
        poll l after=latest                         -> next 6 tail 6
        poll l after=earliest wait=1                -> next 6 tail 6
        publish placed c                            -> created 7 aggregate 1
        poll l after=latest                         -> 7 next 6 tail 7
    ",
    );
}

#[test]
fn a_group_begins_where_it_has_committed_or_where_its_first_poll_says() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m after=3                              -> 4 5 6 next 3 tail 6
        poll m after=0                              -> next 3 tail 6
        reset h orders 5                            -> orders 5 of 6 lag 1
        consumer n group=h topic=orders shared      -> created
        poll n after=0                              -> 6 next 5 tail 6
        consumer o group=i topic=orders shared      -> created
        poll o after=99                             -> next 6 tail 6
    ",
    );
}

#[test]
fn everything_survives_a_restart_and_a_rebuild() {
    for how in ["reopen", "rebuild", "crash"] {
        with_events(&format!(
            "
            handler g attempts=1                        -> created PT900S 1 PT1S latest
            consumer m group=g topic=orders shared      -> created
            poll m                                      -> 1 3 4 next 0 tail 6
            done m.1                                    -> done attempt 1
            done m.4                                    -> done attempt 1
            poll m                                      -> 2 next 1 tail 6
            fail m.2 class=Poison                       -> dead attempt 1
            {how}
            group g                                     -> orders 1 of 6 lag 4 by m(1)
            poll m                                      -> next 1 tail 6
            done m.3                                    -> done attempt 1
            poll m                                      -> 5 next 1 tail 6
            redrive g orders/2                          -> redriven
            {how}
            poll m                                      -> 2 next 1 tail 6
            dones m.2 m.5                            -> done attempt 1 | done attempt 1
            {how}
            group g                                     -> orders 5 of 6 lag 1 by m
            poll m                                      -> 6 next 5 tail 6
            done m.6                                    -> done attempt 1
            {how}
            group g                                     -> orders 6 of 6 lag 0 by m
            poll m                                      -> next 6 tail 6
        "
        ));
    }
}

#[test]
fn commits_change_nothing_where_the_offset_moves_by_itself_and_a_reset_moves_it() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 3 4 next 0 tail 6
        commit m 6                                  -> orders 0 of 6 lag 6 by m(3)
        commit m 7                                  -> VALIDATION_ERROR /offset
        done m.1 offset=6                           -> done attempt 1
        done m.4                                    -> done attempt 1
        group g                                     -> orders 1 of 6 lag 4 by m(1)
        reset g orders latest                       -> orders 6 of 6 lag 0 by m(1)
        poll m                                      -> next 6 tail 6
        reset g orders earliest                     -> orders 0 of 6 lag 6 by m(1)
        poll m                                      -> 1 4 next 0 tail 6
        dones m.1 m.3 m.4                        -> done attempt 1 | done attempt 1 | done attempt 1
        group g                                     -> orders 1 of 6 lag 3 by m
    ",
    );
}

#[test]
fn the_members_of_a_group_read_a_topic_in_one_way() {
    with_events(
        "
        consumer m group=g topic=orders shared              -> created
        consumer n group=g topic=orders                     -> INVALID_STATE
        consumer n group=g topic=orders shared cel=true     -> INVALID_STATE
        consumer n group=g topic=default                    -> created
        consumer o group=h topic=orders                     -> created
        consumer p group=h topic=orders shared              -> INVALID_STATE
        consumer p group=i topic=orders flight=5            -> VALIDATION_ERROR /maxInFlight
        consumer p group=i topic=orders shared flight=0     -> VALIDATION_ERROR /maxInFlight
        poll m limit=1                                      -> 1 next 0 tail 6
        advance 60000
        poll m                                              -> NOT_FOUND
        consumer n group=g topic=orders                     -> INVALID_STATE
        consumer n group=g topic=orders shared cel=true     -> created
        poll n                                              -> 1+2 3 4 next 0 tail 6
    ",
    );
}

#[test]
fn events_that_retention_removes_before_anybody_got_them_are_passed_over() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m limit=1                              -> 1 next 0 tail 6
        trim orders 3                               -> removed 3
        group g                                     -> orders 3 of 6 lag 3 by m(1)
        poll m                                      -> 4 5 6 next 3 tail 6
        consumer n group=h topic=orders shared      -> created
        poll n                                      -> 4 5 6 next 3 tail 6
        rebuild
        done m.4                                    -> done attempt 1
        group g                                     -> orders 4 of 6 lag 2 by m(3)
    ",
    );
}

#[test]
fn a_topic_in_a_log_of_its_own_is_divided_like_any_other() {
    check_alone(
        "
        handler g lease=PT10S                       -> created PT10S 5 PT1S latest
        topic aside streaming={\"type\":\"file\",\"location\":\"aside\"}     -> created
        type made topic=aside                       -> created
        publish made a id=1                         -> created 1 aggregate 1
        publish made a id=2                         -> created 2 aggregate 2
        consumer m group=g topic=aside shared       -> created
        poll m                                      -> 1 next 0 tail 2
        advance 10000
        poll m                                      -> 1+2 next 0 tail 2
        done m.1                                    -> done attempt 2
        group g                                     -> aside 1 of 2 lag 1 by m
        reopen
        poll m                                      -> 2 next 1 tail 2
    ",
    );
}
