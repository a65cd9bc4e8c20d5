//! Batches: atomic within each topic by default, or all or nothing across topics.

use crate::scenario::check;

const TYPES: &str = "
        topic orders                              -> created
        topic others                              -> created
        type placed topic=orders schema={\"required\":[\"n\"]} -> created
        type other topic=others                   -> created
";

fn with_types(text: &str) {
    check(&format!("{TYPES}{text}"));
}

#[test]
fn one_refused_event_aborts_its_topic_and_no_other() {
    with_types(
        r#"
        batch placed a data={"n":1} ; other x ; placed a data={} ; placed b data={"n":1} -> BATCH_ABORTED | created 1 aggregate 1 | VALIDATION_ERROR /data | BATCH_ABORTED
        read orders                               -> next 0 tail 0
        publish placed a data={"n":1}             -> created 1 aggregate 1
    "#,
    );
}

#[test]
fn atomic_all_makes_the_request_one_unit() {
    with_types(
        r#"
        batch-all other x ; placed a data={}      -> BATCH_ABORTED | VALIDATION_ERROR /data
        batch-all other x ; unknown a             -> BATCH_ABORTED | VALIDATION_ERROR /type
        batch-all other x ; placed a data={"n":1} -> created 1 aggregate 1 | created 1 aggregate 1
        log                                       -> others/1 orders/1
    "#,
    );
}

#[test]
fn events_of_one_aggregate_build_on_each_other() {
    with_types(
        r"
        batch other a expected=0 ; other a expected=1 ; other b ; other a expected=2 -> created 1 aggregate 1 | created 2 aggregate 2 | created 3 aggregate 1 | created 4 aggregate 3
        batch other a expected=3 ; other a expected=3 -> BATCH_ABORTED | EXPECTED_SEQUENCE actual 4
        history others a                          -> 1@1 2@2 3@4 next 3 of 3
        publish other a expected=3 sequence=5     -> created 5 aggregate 4
    ",
    );
}

#[test]
fn duplicates_neither_abort_nor_are_undone() {
    with_types(
        r"
        publish other a id=1                      -> created 1 aggregate 1
        batch other a id=1 ; other b id=2         -> duplicate 1 | created 2 aggregate 1
        batch other a id=1 ; other c expected=7 ; other b id=2 ; other d -> duplicate 1 | EXPECTED_SEQUENCE actual 0 | duplicate 2 | BATCH_ABORTED
        batch other e id=5 ; other e id=5         -> created 3 aggregate 1 | duplicate 3
        batch other f id=6 ; other f id=6 ; other a expected=9 -> BATCH_ABORTED | BATCH_ABORTED | EXPECTED_SEQUENCE actual 1
        publish other f id=6                      -> created 4 aggregate 1
    ",
    );
}

#[test]
fn an_event_nobody_knows_where_to_put_aborts_no_topic() {
    with_types("batch unknown a ; other a -> VALIDATION_ERROR /type | created 1 aggregate 1");
}

#[test]
fn a_batch_must_not_be_empty_nor_too_large() {
    let many = vec!["other a"; 101].join(" ; ");
    let hundred = vec!["other a"; 100].join(" ; ");
    let answers: Vec<_> = (1..=100).map(|n| format!("created {n} aggregate {n}")).collect();
    let large = format!(r#"other a data={{"x":"{}"}}"#, "y".repeat(600_000));
    with_types(&format!(
        "
        batch                                     -> VALIDATION_ERROR /events
        batch {many}                              -> BATCH_TOO_LARGE
        batch {large} ; {large}                   -> BATCH_TOO_LARGE
        batch {hundred}                           -> {}
        reopen
        read others after=98                      -> 99 100 next 100 tail 100
    ",
        answers.join(" | ")
    ));
}
