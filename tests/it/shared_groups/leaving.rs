//! Members that leave: the events that they held go to the other members at once.

use super::with_events;

/// A member took ten events and was deleted; no other member got them for the whole lease of a quarter of an hour.
#[test]
fn what_a_deleted_member_held_goes_to_the_others_at_once() {
    for how in ["reopen", "crash", "rebuild"] {
        with_events(&format!(
            "
        consumer m group=g topic=orders shared      -> created
        consumer n group=g topic=orders shared      -> created
        poll m                                      -> 1 3 next 0 tail 6
        poll n                                      -> 4 next 0 tail 6
        delete m                                    -> deleted
        open g                                      -> orders/1 released | orders/3 released | orders/4 claimed
        done m.1                                    -> CLAIM_LOST
        {how}
        group g                                     -> orders 0 of 6 lag 6 by n(1)
        poll n                                      -> 1 3 next 0 tail 6
        done n.1                                    -> done attempt 1
        done m.3                                    -> CLAIM_LOST
        open g                                      -> orders/3 claimed | orders/4 claimed
    "
        ));
    }
}

/// One member left and another joined within a second: it was assigned half of the events, as if there were still two
/// members.
#[test]
fn a_member_that_replaces_another_is_given_all_of_its_work_at_once() {
    with_events(
        "
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 3 4 next 0 tail 6
        delete m                                    -> deleted
        consumer n group=g topic=orders shared      -> created
        poll n                                      -> 1 3 4 next 0 tail 6
    ",
    );
}

#[test]
fn what_a_member_held_goes_to_the_others_when_its_session_ends_and_the_attempt_counts() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        handler g attempts=2                                -> created PT900S 2 PT1S latest
        consumer m group=g topic=orders shared session=PT3S -> created
        consumer n group=g topic=orders shared session=PT1H -> created
        poll m limit=1                              -> 1 next 0 tail 6
        advance 3999
        poll n limit=1                              -> 3 next 0 tail 6
        advance 1
        poll n limit=1                              -> 1+2 next 0 tail 6
        {how}
        done m.1                                    -> CLAIM_LOST
        consumer o group=g topic=orders shared session=PT3S -> created
        done n.1                                    -> done attempt 2
        poll o limit=1                              -> 2 next 1 tail 6
        advance 4000
        done o.2                                    -> done attempt 1
        consumer p group=g topic=orders shared session=PT3S -> created
        poll p limit=1                              -> 4 next 2 tail 6
        advance 4000
        consumer q group=g topic=orders shared session=PT3S -> created
        poll q limit=1                              -> 4+2 next 2 tail 6
        advance 4000
        poll n limit=1                              -> 6 next 2 tail 6
        letters                                     -> g orders/4 LeaseExpired attempts 2 open
    "
        ));
    }
}
