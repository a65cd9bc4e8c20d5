//! Deduplication: an event with the same key is a duplicate, within the topic's window and across restarts.

use crate::scenario::check;

#[test]
fn a_repeated_key_gets_the_stored_event_back() {
    check(
        "
        type placed                               -> created
        publish placed a id=1                     -> created 1 aggregate 1
        publish placed a id=1                     -> duplicate 1
        publish placed b id=1                     -> created 2 aggregate 1
        publish placed a id=1 tenant=2            -> created 3 aggregate 2
        publish placed a id=1 producer=p          -> created 4 aggregate 3
        publish placed a id=1 producer=p          -> duplicate 4
        publish placed a id=1 at=2025-12-03T12:00:00Z            -> created 5 aggregate 4
        publish placed a id=1 at=2025-12-03T13:00:00.000+01:00   -> duplicate 5
        publish placed a                          -> created 6 aggregate 5
        publish placed a                          -> created 7 aggregate 6
        reopen
        publish placed a id=1                     -> duplicate 1
        crash
        publish placed a id=1 producer=p          -> duplicate 4
        rebuild
        publish placed a id=1                     -> duplicate 1
        event 1                                   -> 1 {}
    ",
    );
}

#[test]
fn a_deduplication_id_counts_within_topic_and_tenant_alone() {
    check(
        "
        topic orders                              -> created
        type placed                               -> created
        type ordered topic=orders                 -> created
        publish placed a dedup=x id=1             -> created 1 aggregate 1
        publish placed b dedup=x id=2 producer=p  -> duplicate 1
        publish placed b dedup=x tenant=2         -> created 2 aggregate 1
        publish ordered b dedup=x                 -> created 1 aggregate 1
    ",
    );
}

#[test]
fn the_window_ends_and_is_the_topics_own() {
    check(
        "
        topic short window=PT1M                   -> created
        type placed                               -> created
        type brief topic=short                    -> created
        publish placed a id=1                     -> created 1 aggregate 1
        publish brief a id=1                      -> created 1 aggregate 1
        advance 59999
        publish brief a id=1                      -> duplicate 1
        advance 1
        publish brief a id=1                      -> created 2 aggregate 2
        publish brief a id=1                      -> duplicate 2
        publish placed a id=1                     -> duplicate 1
        advance 86400000
        publish placed a id=1                     -> created 2 aggregate 2
        event 1                                   -> 1 {}
    ",
    );
}

#[test]
fn deduplication_comes_before_the_expected_sequence() {
    check(
        "
        type placed                               -> created
        publish placed a id=1 expected=0          -> created 1 aggregate 1
        publish placed a id=1 expected=0          -> duplicate 1
        publish placed a id=1 sequence=1          -> duplicate 1
        reopen
        publish placed a id=1 expected=0          -> duplicate 1
        publish placed a id=2 expected=0          -> EXPECTED_SEQUENCE actual 1
    ",
    );
}

#[test]
fn other_data_under_the_same_key_is_what_the_topic_says() {
    check(
        r#"
        topic plain                               -> created
        topic flagged mismatch=flag               -> created
        topic strict mismatch=reject              -> created
        type p topic=plain                        -> created
        type f topic=flagged                      -> created
        type s topic=strict                       -> created
        publish p a id=1 data={"n":1}             -> created 1 aggregate 1
        publish p a id=1 data={"n":2}             -> duplicate 1
        publish f a id=1 data={"n":1,"m":[1]}     -> created 1 aggregate 1
        publish f a id=1 data={"m":[1.0],"n":1e0} -> duplicate 1
        publish f a id=1 data={"n":2}             -> mismatch 1
        publish s a id=1 data={"n":1}             -> created 1 aggregate 1
        publish s a id=1 data={"n":1}             -> duplicate 1
        publish s a id=1 data={"n":2}             -> EVENT_ID_REUSE
        reopen
        publish f a id=1 data={"n":2}             -> mismatch 1
        read strict                               -> 1 next 1 tail 1
    "#,
    );
}
