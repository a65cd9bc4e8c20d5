//! Deleting handlers and groups: what is removed, what is kept, and that the name can be used again as new.

use super::with_events;
use crate::scenario::check_alone;

#[test]
fn a_deleted_handler_is_forgotten_and_its_name_begins_anew() {
    for how in ["reopen", "crash", "rebuild"] {
        with_events(&format!(
            "
        handler billing attempts=2 lease=PT5S       -> created PT5S 2 PT1S latest
        claim billing orders/1 as=a                 -> claimed attempt 1 until 5000
        done a offset=1                             -> done attempt 1
        claim billing orders/2 as=b                 -> claimed attempt 1 until 5000
        claim billing orders/3 as=c                 -> claimed attempt 1 until 5000
        fail c class=X final                        -> dead attempt 1
        claim mailing orders/3 as=d                 -> claimed attempt 1 until 900000
        fail d class=Y final                        -> dead attempt 1
        delete-handler billing                      -> deleted
        delete-handler billing                      -> NOT_FOUND
        {how}
        standing billing                            -> NOT_FOUND
        handlers                                    -> mailing
        open billing                                -> 
        done b                                      -> NOT_FOUND
        beat b                                      -> NOT_FOUND
        letters                                     -> mailing orders/3 Y attempts 1 open
        letters all name=billing                    -> billing orders/3 X attempts 1 discarded
        redrive billing orders/3                    -> INVALID_STATE
        group billing                               -> orders 1 of 4 lag 3
        claim billing orders/1 as=e                 -> claimed attempt 1 until 900000
        higher e b                                  -> yes
        done e                                      -> done attempt 1
        done a                                      -> CLAIM_LOST
        claim billing orders/3                      -> claimed attempt 1 until 900000
    "
        ));
    }
}

#[test]
fn a_deleted_shared_group_begins_anew_and_one_with_members_is_not_deleted() {
    for how in ["reopen", "crash", "rebuild"] {
        with_events(&format!(
            "
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 3 next 0 tail 4
        done m.1                                    -> done attempt 1
        fail m.3 class=X final                      -> dead attempt 1
        delete-group g                              -> INVALID_STATE
        delete-handler g                            -> INVALID_STATE
        delete m                                    -> deleted
        delete-group g                              -> deleted
        delete-group g                              -> NOT_FOUND
        {how}
        group g                                     -> NOT_FOUND
        groups                                      -> end
        letters                                     -> 
        open g                                      -> 
        consumer n group=g topic=orders             -> created
        delete n                                    -> deleted
        consumer o group=g topic=orders shared      -> created
        poll o after=2                              -> 3 4 next 2 tail 4
        group g                                     -> orders 2 of 4 lag 2 by o(2)
    "
        ));
    }
}

#[test]
fn a_group_whose_sessions_are_over_can_be_deleted_and_its_handlers_other_work_stays() {
    with_events(
        "
        consumer m group=g topic=orders             -> created
        commit m 2                                  -> orders 2 of 4 lag 2 by m
        claim g orders/1 as=a                       -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        delete-group g                              -> INVALID_STATE
        advance 40000
        delete-group g                              -> deleted
        group g                                     -> NOT_FOUND
        claim g orders/1                            -> done
        delete-group nobody                         -> NOT_FOUND
        consumer n group=h topic=orders shared      -> created
        poll n limit=1                              -> 1 next 0 tail 4
        advance 40000
        delete-handler h                            -> deleted
        group h                                     -> NOT_FOUND
        claim h orders/1                            -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn a_handler_is_deleted_in_every_log_that_knows_it() {
    check_alone(
        r#"
        topic orders streaming={"type":"memory","location":"memory://apart"} -> created
        topic parcels                               -> created
        type placed topic=orders                    -> created
        type packed topic=parcels                   -> created
        publish placed a id=11                      -> created 1 aggregate 1
        publish packed p id=13                      -> created 1 aggregate 1
        handler billing lease=PT5S                  -> created PT5S 5 PT1S latest
        claim billing #11 as=a                      -> claimed attempt 1 until 5000
        claim billing #13 as=b                      -> claimed attempt 1 until 5000
        dones a b                                   -> done attempt 1 | done attempt 1
        delete-handler billing                      -> deleted
        handlers                                    -> 
        claim billing #11                           -> claimed attempt 1 until 900000
        claim billing #13                           -> claimed attempt 1 until 900000
    "#,
    );
}

/// Each run checked the same first thousand inactive groups. If all of those had to stay, no other group was ever
/// forgotten.
#[test]
fn an_unused_group_is_forgotten_however_many_silent_groups_must_stay() {
    let stay: String = (0..1001).map(|number| format!("reset a{number} orders 4 -> orders 4 of 4 lag 0\n")).collect();
    with_events(&format!(
        "
        {stay}
        reset zz orders 1                           -> orders 1 of 4 lag 3
        trim orders 1                               -> removed 1
        advance 2592000000
        forget-unused
        group zz                                    -> NOT_FOUND
        group a0                                    -> orders 4 of 4 lag 0
    "
    ));
}

/// Ten thousand names, each used once, made the broker refuse every new name permanently.
#[test]
fn unused_names_are_forgotten_once_all_they_have_done_is_gone_and_never_before() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a offset=1                             -> done attempt 1
        claim mailing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=3                             -> done attempt 1
        claim failing orders/1 as=c                 -> claimed attempt 1 until 900000
        fail c final                                -> dead attempt 1
        handler put                                 -> created PT900S 5 PT1S latest
        consumer m group=shared topic=orders shared -> created
        poll m limit=1                              -> 1 next 0 tail 4
        done m.1                                    -> done attempt 1
        delete m                                    -> deleted
        trim orders 1                               -> removed 1
        advance 2591999999
        forget-unused
        handlers                                    -> billing failing mailing put shared
        groups                                      -> billing mailing shared end
        {how}
        advance 1
        forget-unused
        handlers                                    -> failing mailing put
        groups                                      -> mailing end
        claim mailing orders/3                      -> done
        discard failing orders/1 reason=old         -> discarded
        advance 2592000000
        forget-unused
        handlers                                    -> mailing put
        trim orders 3                               -> removed 2
        {how}
        handlers                                    -> mailing put
        forget-unused
        handlers                                    -> put
        groups                                      -> end
    "
        ));
    }
}

/// A topic that is deleted and created again. The second one is empty, has another number, and in a log of its own perhaps
/// the same number in another log.
fn check_created_again(text: impl Fn(&str) -> String) {
    for streaming in ["", r#"streaming={"type":"memory"}"#] {
        check_alone(&text(&format!("topic orders {streaming} -> created")));
    }
}

/// The group kept the backlog of the deleted topic, and its members got nothing until the process was restarted.
#[test]
fn a_shared_group_of_a_topic_that_is_created_again_is_handed_its_events() {
    check_created_again(|created| {
        format!(
            "
        {created}
        type placed topic=orders                    -> created
        consumer m group=g topic=orders shared      -> created
        publish placed a                            -> created 1 aggregate 1
        poll m                                      -> 1 next 0 tail 1
        delete-topic orders                         -> deleted
        {created}
        consumer n group=g topic=orders shared      -> created
        poll n                                      -> next 0 tail 0
        batch placed a ; placed b                   -> created 1 aggregate 1 | created 2 aggregate 1
        poll n                                      -> 1 2 next 0 tail 2
    "
        )
    });
}

/// The lag was 0 until the process was restarted: the view of the deleted topic had read that far.
#[test]
fn the_lag_of_a_topic_that_is_created_again_does_not_count_on_what_was_read_of_the_old_one() {
    let placed = "type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1";
    check_created_again(|created| {
        format!(
            "
        {created}
        type placed topic=orders                    -> created
        type viewed topic=orders                    -> created
        consumer m group=g topic=orders {placed}    -> created
        commit m 0                                  -> orders 0 of 0 lag 0 by m
        batch viewed a ; viewed a                   -> created 1 aggregate 1 | created 2 aggregate 2
        group g                                     -> orders 0 of 2 lag 0 by m
        delete-topic orders                         -> deleted
        {created}
        consumer n group=g topic=orders {placed}    -> created
        commit n 0                                  -> orders 0 of 0 lag 0 by n
        batch placed a ; placed a                   -> created 1 aggregate 1 | created 2 aggregate 2
        group g                                     -> orders 0 of 2 lag 2 by n
    "
        )
    });
}

/// Both the events of the deleted topic and those of the next one counted, under the same sequences.
#[test]
fn stale_events_are_not_counted_any_more_when_their_topic_is_deleted() {
    check_created_again(|created| {
        let overtaken = "
        claim h orders/3 as=c                       -> claimed attempt 1 until 900000
        done c                                      -> done attempt 1
        ";
        format!(
            "
        {created}
        type placed topic=orders                    -> created
        handler h                                   -> created PT900S 5 PT1S latest
        batch placed a ; placed a ; placed a        -> created 1 aggregate 1 | created 2 aggregate 2 | created 3 aggregate 3
        {overtaken}
        claim h orders/1                            -> stale
        claim h orders/2                            -> stale
        standing h                                  -> in flight 0 failed 0 dead 0 lag 0 stale 2
        delete-topic orders                         -> deleted
        standing h                                  -> in flight 0 failed 0 dead 0 lag 0
        {created}
        batch placed a ; placed a ; placed a        -> created 1 aggregate 1 | created 2 aggregate 2 | created 3 aggregate 3
        {overtaken}
        claim h orders/1                            -> stale
        standing h                                  -> in flight 0 failed 0 dead 0 lag 0 stale 1
    "
        )
    });
}
