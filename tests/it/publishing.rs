//! Publishing single events: numbers, order, and every refusal.

use crate::scenario::check;

#[test]
fn events_are_numbered_in_their_topic_and_in_their_aggregate() {
    check(
        "
        topic orders                    -> created
        type placed topic=orders        -> created
        type shipped topic=orders       -> created
        type other                      -> created
        publish placed a                -> created 1 aggregate 1
        publish placed b                -> created 2 aggregate 1
        publish shipped a               -> created 3 aggregate 2
        publish other a                 -> created 1 aggregate 1
        publish placed a of=parcel      -> created 4 aggregate 1
        reopen
        publish placed a                -> created 5 aggregate 3
        crash
        publish placed a                -> created 6 aggregate 4
        rebuild
        publish placed a                -> created 7 aggregate 5
        aggregate orders a              -> 5 at 7 there
        aggregate orders nobody         -> NOT_FOUND
        history orders a after=1 limit=2 -> 2@3 3@5 next 3 of 5
        history orders a after=5        -> next 5 of 5
        history orders nobody           -> next 0 of 0
        log                             -> orders/1 orders/2 orders/3 default/1 orders/4 orders/5 orders/6 orders/7
    ",
    );
}

#[test]
fn an_own_sequence_must_be_the_next_one() {
    check(
        "
        type placed                     -> created
        publish placed a sequence=0     -> INVALID_SEQUENCE
        publish placed a sequence=-4    -> INVALID_SEQUENCE
        publish placed a sequence=2     -> INVALID_SEQUENCE
        publish placed a sequence=1     -> created 1 aggregate 1
        publish placed a sequence=1     -> SEQUENCE_EXISTS
        read default                    -> 1 next 1 tail 1
    ",
    );
}

#[test]
fn an_expected_aggregate_sequence_must_be_the_aggregates() {
    check(
        "
        type placed subject-optional      -> created
        publish placed a expected=1       -> EXPECTED_SEQUENCE actual 0
        publish placed a expected=0       -> created 1 aggregate 1
        publish placed a expected=0       -> EXPECTED_SEQUENCE actual 1
        reopen
        publish placed a expected=1       -> created 2 aggregate 2
        publish placed a expected=9       -> EXPECTED_SEQUENCE actual 2
        publish placed - expected=0       -> VALIDATION_ERROR /expectedAggregateSequence
        publish placed -                  -> created 3
    ",
    );
}

#[test]
fn bad_input_is_told_precisely_and_stores_nothing() {
    check(
        r#"
        topic orders                                    -> created
        topic others                                    -> created
        type placed topic=orders subjects=order subjects=parcel schema={"type":"object","properties":{"n":{"type":"integer"},"email":{"type":"string","format":"email"}},"required":["n"]} -> created
        publish unknown a                               -> VALIDATION_ERROR /type
        publish placed a topic=others data={"n":1}      -> VALIDATION_ERROR /topic
        publish placed -  data={"n":1}                  -> VALIDATION_ERROR /subject
        publish placed a of=invoice data={"n":1}        -> VALIDATION_ERROR /subjectType
        publish placed a of=- data={"n":1}              -> VALIDATION_ERROR /subjectType
        publish placed a tenant=- data={"n":1}          -> VALIDATION_ERROR /tenant
        publish placed a source= data={"n":1}           -> VALIDATION_ERROR /source
        publish placed a version=2.0 data={"n":1}       -> VALIDATION_ERROR /dataVersion
        publish placed a data={"n":"x","email":"y"}     -> VALIDATION_ERROR /data/email /data/n
        publish placed a data={}                        -> VALIDATION_ERROR /data
        publish placed a data=[1]                       -> VALIDATION_ERROR /data
        publish placed a data={"n":1,"n":2}             -> VALIDATION_ERROR /data/n
        publish placed a data={"n":1,"s":"\u0000"}      -> VALIDATION_ERROR /data/s
        publish placed a data={"n":1,"s":"\ud800"}      -> MALFORMED
        read orders                                     -> next 0 tail 0
        publish placed a version=1.0 data={"n":1}       -> created 1 aggregate 1
    "#,
    );
}

#[test]
fn a_schema_may_describe_the_whole_event() {
    check(
        r#"
        type made schema={"type":"object","properties":{"subject":{"type":"string","format":"uuid"},"data":{"type":"object","properties":{"userId":{"type":"string"}},"required":["userId"]}},"required":["subject","data"]} -> created
        publish made 1053828c-57b1-4c2b-97dc-ccff6225651e data={"userId":"u"} -> created 1 aggregate 1
        publish made a data={"userId":"u"}              -> VALIDATION_ERROR /subject
        publish made 1053828c-57b1-4c2b-97dc-ccff6225651e data={} -> VALIDATION_ERROR /data
    "#,
    );
}

#[test]
fn data_comes_back_exactly_as_it_was_spelt() {
    check(
        r#"
        type placed                                                   -> created
        publish placed a id=7 data={"n":36.00e0,"big":123456789012345678901234567890,"u":"\u00e9"} -> created 1 aggregate 1
        event 7     -> 1 {"n":36.00e0,"big":123456789012345678901234567890,"u":"\u00e9"}
        crash
        event 7     -> 1 {"n":36.00e0,"big":123456789012345678901234567890,"u":"\u00e9"}
        event 8     -> NOT_FOUND
    "#,
    );
}
