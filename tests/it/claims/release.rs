//! Releasing claims, and the interval between heartbeats.

use super::with_events;

#[test]
fn a_claim_that_is_given_back_may_be_claimed_at_once_and_costs_no_attempt() {
    for how in ["reopen", "crash", "rebuild"] {
        with_events(&format!(
            "
        handler billing attempts=2                  -> created PT900S 2 PT1S latest
        claim billing orders/1 by=w1 as=a           -> claimed attempt 1 until 900000
        release a                                   -> released attempt 0
        release a                                   -> CLAIM_LOST
        beat a                                      -> CLAIM_LOST
        done a                                      -> CLAIM_LOST
        fail a                                      -> CLAIM_LOST
        open billing                                -> orders/1 released
        standing billing                            -> in flight 0 failed 0 dead 0 lag 4
        {how}
        release a                                   -> CLAIM_LOST
        claim billing orders/1 by=w2 as=b           -> claimed attempt 1 until 900000
        higher b a                                  -> yes
        release a                                   -> CLAIM_LOST
        fail b                                      -> failed attempt 1 again 1000
        release b                                   -> CLAIM_LOST
        advance 1000
        claim billing orders/1 as=c                 -> claimed attempt 2 until 900000
        release c                                   -> released attempt 1
        claim billing orders/1 as=d                 -> claimed attempt 2 until 900000
        done d                                      -> done attempt 2
        done c                                      -> CLAIM_LOST
        done a                                      -> CLAIM_LOST
        release d                                   -> CLAIM_LOST
        open billing                                -> 
    "
        ));
    }
}

#[test]
fn a_claim_may_be_given_back_late_but_not_once_somebody_has_taken_over() {
    with_events(
        "
        claim billing orders/1 lease=PT1S as=a      -> claimed attempt 1 until 1000
        advance 5000
        release a                                   -> released attempt 0
        claim billing orders/1 lease=PT1S as=b      -> claimed attempt 1 until 1000
        advance 1000
        claim billing orders/1 as=c                 -> claimed attempt 2 until 900000
        release b                                   -> CLAIM_LOST
        release c                                   -> released attempt 1
        trim orders 1                               -> removed 1
        open billing                                -> 
    ",
    );
}

/// A claim returned `heartbeat: PT30S` with `lease: PT5S`: a worker that followed it lost every claim.
#[test]
fn a_claims_heartbeat_is_at_most_a_third_of_its_own_lease() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        rhythm a                                    -> PT30S in PT900S
        claim mailing orders/1 lease=PT5S as=b      -> claimed attempt 1 until 5000
        rhythm b                                    -> PT1.666S in PT5S
        handler g lease=PT30S                       -> created PT30S 5 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m limit=1                              -> 1 next 0 tail 4
        rhythm m.1                                  -> PT10S in PT30S
    ",
    );
}
