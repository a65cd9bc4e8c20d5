//! Dead letters: claims that were given up, listed, redriven or discarded.

use crate::scenario::check;

/// Two handlers have given up three events.
const GIVEN_UP: &str = r#"
        topic orders                                -> created
        topic parcels                               -> created
        type placed topic=orders schema={"type":"object","properties":{"n":{"type":"integer"}}} -> created
        type packed topic=parcels                   -> created
        publish placed a id=11 correlation=c-1 data={"n":1} -> created 1 aggregate 1
        publish placed b id=12                      -> created 2 aggregate 1
        publish packed p id=13                      -> created 1 aggregate 1
        claim billing #11 by=w1 as=a                -> claimed attempt 1 until 900000
        fail a class=Timeout final                  -> dead attempt 1
        advance 10
        claim billing #13 by=w1 as=b                -> claimed attempt 1 until 900000
        fail b class=Refused final                  -> dead attempt 1
        advance 10
        claim mailing #12 by=w1 as=c                -> claimed attempt 1 until 900000
        fail c class=Bounced final                  -> dead attempt 1
"#;

fn given_up(text: &str) {
    check(&format!("{GIVEN_UP}{text}"));
}

#[test]
fn letters_are_listed_oldest_first_and_counted() {
    given_up(
        "
        letters                       -> billing orders/1 Timeout attempts 1 open | billing parcels/1 Refused attempts 1 open | mailing orders/2 Bounced attempts 1 open
        letters name=billing          -> billing orders/1 Timeout attempts 1 open | billing parcels/1 Refused attempts 1 open
        letters topic=orders          -> billing orders/1 Timeout attempts 1 open | mailing orders/2 Bounced attempts 1 open
        letters source=subscription   -> 
        letters source=handler name=mailing topic=orders -> mailing orders/2 Bounced attempts 1 open
        summary                       -> 3: billing parcels 1 | billing orders 1 | mailing orders 1
        discard mailing orders/2 reason=old -> discarded
        letters name=mailing          -> 
        letters name=mailing all      -> mailing orders/2 Bounced attempts 1 discarded
        summary                       -> 2: billing parcels 1 | billing orders 1
    "
        .replace("billing parcels 1 | billing orders 1", "billing orders 1 | billing parcels 1")
        .as_str(),
    );
}

#[test]
fn a_redriven_event_is_claimable_under_its_own_id_with_attempts_begun_anew() {
    given_up(
        "
        redrive billing orders/1 dry                -> open
        claim billing #11                           -> held
        redrive billing orders/1 by=ops reason=fixed -> redriven
        resolved billing orders/1                   -> by ops because fixed at 0
        redrive billing orders/1                    -> INVALID_STATE
        redrive billing orders/1 dry                -> INVALID_STATE
        discard billing orders/1 reason=late        -> INVALID_STATE
        open billing                                -> orders/1 redriven | parcels/1 dead
        fail a                                      -> CLAIM_LOST
        done a                                      -> CLAIM_LOST
        claim billing #11 by=w2 as=a                -> claimed attempt 1 until 900000
        fail a class=Again final                    -> dead attempt 1
        letters name=billing topic=orders all       -> billing orders/1 Timeout attempts 1 redriven | billing orders/1 Again attempts 1 open
    ",
    );
}

#[test]
fn a_redriven_event_may_be_claimed_though_a_later_one_is_finished() {
    given_up(
        "
        publish placed a                            -> created 3 aggregate 2
        claim billing orders/3 as=d                 -> claimed attempt 1 until 900000
        done d                                      -> done attempt 1
        claim billing orders/1                      -> held
        redrive billing orders/1                    -> redriven
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing orders/1                      -> done
    ",
    );
}

#[test]
fn a_corrected_event_takes_the_place_of_the_old_one() {
    given_up(
        r#"
        redrive billing orders/1 data={"n":"x"}     -> VALIDATION_ERROR /override/data/n
        redrive billing orders/1 data={"n":"x"} dry -> VALIDATION_ERROR /override/data/n
        redrive billing orders/1 data=[]            -> VALIDATION_ERROR /override/data
        redrive billing orders/1 data={"n":2} dry   -> open
        read orders                                 -> 1 2 next 2 tail 2
        redrive billing orders/1 data={"n":2}       -> redriven
        read orders                                 -> 1 2 3 next 3 tail 3
        history orders a                            -> 1@1 2@3 next 2 of 2
        claim billing orders/1                      -> done
        claim billing orders/3 as=a                 -> claimed attempt 1 until 900000
        redrive billing parcels/1 new               -> redriven
        history parcels p                           -> 1@1 2@2 next 2 of 2
        redrive billing parcels/1 new               -> INVALID_STATE
        read parcels                                -> 1 2 next 2 tail 2
    "#,
    );
}

#[test]
fn a_discarded_event_is_done_and_somebody_said_why() {
    let long = "x".repeat(2049);
    given_up(&format!(
        "
        discard billing orders/1                    -> VALIDATION_ERROR /reason
        discard billing orders/1 reason={long}      -> VALIDATION_ERROR /reason
        redrive billing orders/1 reason={long}      -> VALIDATION_ERROR /reason
        claim billing orders/1                      -> held
        discard billing orders/1 reason=nonsense by=ops -> discarded
        resolved billing orders/1                   -> by ops because nonsense at 0
        discard billing orders/1 reason=nonsense    -> INVALID_STATE
        redrive billing orders/1                    -> INVALID_STATE
        claim billing orders/1                      -> done
        done a                                      -> CLAIM_LOST
        open billing                                -> parcels/1 dead
    "
    ));
}

#[test]
fn many_letters_are_counted_before_they_are_dealt_with_at_once() {
    for how in ["reopen", "rebuild"] {
        given_up(&format!(
            "
        redrive-all dry                             -> 3
        redrive-all name=billing dry                -> 2
        redrive-all source=subscription             -> 0
        discard-all                                 -> VALIDATION_ERROR /reason
        redrive-all name=billing topic=orders       -> 1
        redrive-all name=billing topic=orders       -> 0
        discard-all topic=orders reason=old dry     -> 1
        discard-all topic=orders reason=old         -> 1
        {how}
        letters all                   -> billing orders/1 Timeout attempts 1 redriven | billing parcels/1 Refused attempts 1 open | mailing orders/2 Bounced attempts 1 discarded
        redrive-all                                 -> 1
        open billing                                -> orders/1 redriven | parcels/1 redriven
        claim mailing #12                           -> done
        summary                                     -> 0:
    "
        ));
    }
}
