//! A dead letter that was resolved with a corrected event is final: no operation makes the wrong event available again.

use super::with_events;

/// `redrive --data` published the correction, and it was done. A republish to the group then handed out the wrong event
/// again, and an order was charged twice.
#[test]
fn an_event_that_a_correction_replaced_is_not_handed_to_its_group_again() {
    for (change, how) in [(r#"data={"n":2}"#, "reopen"), ("new", "crash"), ("new", "rebuild")] {
        with_events(&format!(
            "
        handler g attempts=1                        -> created PT900S 1 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m                                      -> 1 3 next 0 tail 4
        done m.3                                    -> done attempt 1
        fail m.1 class=Wrong                        -> dead attempt 1
        redrive g orders/1 {change}                 -> redriven
        poll m                                      -> 2 next 1 tail 5
        done m.2                                    -> done attempt 1
        poll m                                      -> 4 next 3 tail 5
        done m.4                                    -> done attempt 1
        poll m                                      -> 5 next 4 tail 5
        done m.5                                    -> done attempt 1
        {how}
        republish orders 1 5 group=g dry            -> 4
        republish orders 1 5 group=g                -> 4
        claim g orders/1                            -> done
        poll m                                      -> 2 3 next 1 tail 5
        dones m.2 m.3                               -> done attempt 1 | done attempt 1
        {how}
        reset g orders earliest                     -> orders 0 of 5 lag 4 by m
        group g                                     -> orders 1 of 5 lag 4 by m
        poll m                                      -> 2 3 next 1 tail 5
        claim g orders/1                            -> done
        republish orders 1 1                        -> 1
        dones m.2 m.3                               -> done attempt 1 | done attempt 1
        poll m                                      -> 4 next 3 tail 6
        done m.4                                    -> done attempt 1
        poll m                                      -> 5 next 4 tail 6
        done m.5                                    -> done attempt 1
        poll m                                      -> next 6 tail 6
        claim g orders/6                            -> done
        claim other orders/1                        -> claimed attempt 1 until 900000
    "
        ));
    }
}

/// The group had received a copy; the correction was stored under the copy's sequence, and the next copy was handed
/// out.
#[test]
fn a_correction_of_a_copy_is_final_for_all_copies() {
    with_events(
        "
        handler g attempts=1                        -> created PT900S 1 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m after=4                              -> next 4 tail 4
        republish orders 1 1                        -> 1
        poll m                                      -> 5 next 4 tail 5
        fail m.5                                    -> dead attempt 1
        redrive g orders/1 new                      -> redriven
        poll m                                      -> 6 next 5 tail 6
        done m.6                                    -> done attempt 1
        republish orders 5 5                        -> 1
        poll m                                      -> next 7 tail 7
        claim g orders/7                            -> done
    ",
    );
}

#[test]
fn a_discarded_event_is_handed_out_again_where_somebody_wants_that() {
    with_events(
        "
        handler g attempts=1                        -> created PT900S 1 PT1S latest
        consumer m group=g topic=orders shared      -> created
        poll m limit=1                              -> 1 next 0 tail 4
        fail m.1                                    -> dead attempt 1
        discard g orders/1 reason=old               -> discarded
        claim g orders/1                            -> done
        republish orders 1 1 group=g                -> 1
        poll m limit=1                              -> 1 next 0 tail 4
    ",
    );
}
