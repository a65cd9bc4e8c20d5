//! Lag: the number of events still to be processed, the same for a handler and for the group of its name.

use crate::scenario::check;

/// Two types in one topic; `billing` takes only `placed`.
const EVENTS: &str = "
        topic orders                                -> created
        type placed topic=orders                    -> created
        type viewed topic=orders                    -> created
        batch viewed v ; placed a ; viewed v ; placed a ; placed b ; viewed v -> created 1 aggregate 1 | created 2 aggregate 1 | created 3 aggregate 2 | created 4 aggregate 2 | created 5 aggregate 1 | created 6 aggregate 3
";

/// When all were done, the group had lag 0 and the handler 14; without polls, events of other types counted.
#[test]
fn a_handler_and_its_shared_group_have_one_lag_and_other_types_do_not_count() {
    for how in ["reopen", "crash", "rebuild"] {
        check(&format!(
            "{EVENTS}
        consumer m group=billing topic=orders shared type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1 -> created
        group billing                               -> orders 0 of 6 lag 3 by m
        poll m limit=2                              -> 2 5 next 1 tail 6
        done m.2                                    -> done attempt 1
        group billing                               -> orders 3 of 6 lag 2 by m(1)
        standing billing                            -> in flight 1 failed 0 dead 0 lag 2
        delete m                                    -> deleted
        publish viewed v                            -> created 7 aggregate 4
        publish placed b                            -> created 8 aggregate 2
        {how}
        group billing                               -> orders 3 of 8 lag 3
        standing billing                            -> in flight 0 failed 0 dead 0 lag 3
        consumer n group=billing topic=orders shared type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1 -> created
        poll n                                      -> 4 5 next 3 tail 8
        fail n.4 class=X final                      -> dead attempt 1
        done n.5                                    -> done attempt 1
        poll n                                      -> 8 next 3 tail 8
        done n.8                                    -> done attempt 1
        group billing                               -> orders 3 of 8 lag 1 by n
        standing billing                            -> in flight 0 failed 0 dead 1 lag 1 since 0
        discard billing orders/4 reason=old         -> discarded
        group billing                               -> orders 8 of 8 lag 0 by n
        standing billing                            -> in flight 0 failed 0 dead 0 lag 0
    "
        ));
    }
}

#[test]
fn a_handler_that_reads_for_itself_has_the_lag_of_its_group() {
    for how in ["reopen", "rebuild"] {
        check(&format!(
            "{EVENTS}
        consumer m group=billing topic=orders type=gts.hyperspot.core.events.type.v1~vendor.app.placed.v1 -> created
        commit m 1                                  -> orders 1 of 6 lag 3 by m
        claim billing orders/4 as=a                 -> claimed attempt 1 until 900000
        standing billing                            -> in flight 1 failed 0 dead 0 lag 3
        done a                                      -> done attempt 1
        group billing                               -> orders 1 of 6 lag 1 by m
        {how}
        standing billing                            -> in flight 0 failed 0 dead 0 lag 1
        claim billing orders/2                      -> stale
        standing billing                            -> in flight 0 failed 0 dead 0 lag 1 stale 1
        commit m 4                                  -> orders 4 of 6 lag 1 by m
        claim billing orders/5 as=b                 -> claimed attempt 1 until 900000
        fail b                                      -> failed attempt 1 again 1000
        commit m 6                                  -> orders 6 of 6 lag 1 by m
        group billing                               -> orders 6 of 6 lag 1 by m
        standing billing                            -> in flight 0 failed 1 dead 0 lag 1 stale 1 since 0
        reset billing orders earliest               -> orders 0 of 6 lag 1 by m
        handler billing order=gapless               -> created PT900S 5 PT1S gapless
        group billing                               -> orders 0 of 6 lag 2 by m
    "
        ));
    }
}

#[test]
fn what_is_gone_is_not_to_be_done() {
    check(&format!(
        "{EVENTS}
        claim billing orders/5 as=a                 -> claimed attempt 1 until 900000
        standing billing                            -> in flight 1 failed 0 dead 0 lag 6
        trim orders 3                               -> removed 3
        standing billing                            -> in flight 1 failed 0 dead 0 lag 3
        done a                                      -> done attempt 1
        standing billing                            -> in flight 0 failed 0 dead 0 lag 2
    "
    ));
}
