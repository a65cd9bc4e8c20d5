//! The secret guard, on every engine: what a topic refuses, what it flags, and that stored events stay what they are.

use crate::scenario::check;

/// The example key of AWS's documentation.
const KEY: &str = r#"{"key":"AKIAIOSFODNN7EXAMPLE"}"#;
const NAMED: &str = r#"{"password":"correct-horse"}"#;

fn check_with_samples(script: &str) {
    check(&script.replace("{KEY}", KEY).replace("{NAMED}", NAMED));
}

#[test]
fn a_topic_flags_unless_it_says_otherwise() {
    check_with_samples(
        "
        topic watched                             -> created
        topic open secrets=off                    -> created
        topic strict secrets=reject               -> created
        type placed topic=watched                 -> created
        type noted topic=open                     -> created
        type ruled topic=strict                   -> created
        publish placed a data={KEY}               -> created 1 aggregate 1 suspected /data/key
        publish placed a data={NAMED}             -> created 2 aggregate 2 suspected /data/password
        publish noted a data={KEY}                -> created 1 aggregate 1
        publish ruled a data={KEY}                -> VALIDATION_ERROR /data/key
        publish ruled a data={NAMED}              -> created 1 aggregate 1 suspected /data/password
        publish ruled a                           -> created 2 aggregate 2
        reopen
        publish ruled a data={KEY}                -> VALIDATION_ERROR /data/key
        crash
        publish ruled a data={KEY}                -> VALIDATION_ERROR /data/key
        change strict secrets=off                 ->
        publish ruled a data={KEY}                -> created 3 aggregate 3
        rebuild
        publish ruled a data={KEY}                -> created 4 aggregate 4
    ",
    );
}

/// A retry of a stored event must get the stored event, whatever the topic says by then.
#[test]
fn an_event_that_is_stored_is_a_duplicate_in_a_topic_that_refuses_by_now() {
    check_with_samples(
        "
        topic strict secrets=off                  -> created
        type ruled topic=strict                   -> created
        publish ruled a id=1 data={KEY}           -> created 1 aggregate 1
        change strict secrets=reject              ->
        publish ruled a id=1 data={KEY}           -> duplicate 1
        publish ruled a id=2 data={KEY}           -> VALIDATION_ERROR /data/key
        crash
        publish ruled a id=1 data={KEY}           -> duplicate 1
    ",
    );
}

#[test]
fn stored_events_can_be_republished_in_a_topic_that_refuses_by_now() {
    check_with_samples(
        "
        topic strict secrets=off                  -> created
        type ruled topic=strict                   -> created
        publish ruled a id=1 data={KEY}           -> created 1 aggregate 1
        change strict secrets=reject              ->
        republish strict 1 1                      -> 1
        event 1                                   -> 1 {KEY}
        publish ruled a                           -> created 3 aggregate 3
    ",
    );
}
