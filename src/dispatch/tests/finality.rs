//! A dead letter that was resolved with a corrected event is final for its subscription.

use super::check;
use contract::{RedriveOverride, RedriveRequest};

/// The request to publish a corrected event instead of retrying the old one.
pub(super) fn corrected() -> RedriveRequest {
    RedriveRequest { changes: Some(RedriveOverride { data: None, new_event_id: true }), ..RedriveRequest::default() }
}

/// The corrected event was delivered; a replay or a republish then delivered the replaced one too.
#[test]
fn an_event_that_a_correction_replaced_is_not_delivered_to_its_subscription_again() {
    check(
        "
        subscribe mail attempts=1
        subscribe log
        publish a b
        answer mail/1 500
        run-sorted                  -> log/1:200 log/2:200 mail/1:500 mail/2:200
        correct mail/1
        run-sorted                  -> log/3:200 mail/3:200
        replay mail 1 3 dry         -> 2
        replay mail 1 3             -> 2
        run-sorted                  -> mail/2:200 mail/3:200
        replay log 1 3              -> 3
        run-sorted                  -> log/1:200 log/2:200 log/3:200
        reopen
        republish 1 3               -> 5
        run-sorted                  -> log/1:200 log/2:200 log/3:200 mail/2:200 mail/3:200
        repeat 1 2                  -> 2
        run-sorted                  -> log/4:200 log/5:200 mail/5:200
    ",
    );
}

/// The correction of a copy's dead letter was recorded for that copy alone, and the next copy was delivered.
#[test]
fn a_correction_of_a_copy_is_final_for_all_copies() {
    check(
        "
        subscribe mail attempts=1
        publish a
        run                         -> mail/1:200
        repeat 1 1                  -> 1
        answer mail/2 500
        run                         -> mail/2:500
        correct mail/2
        run                         -> mail/3:200
        repeat 2 2                  -> 1
        run                         ->
        reopen
        repeat 1 1                  -> 1
        run                         ->
        replay mail 1 5 dry         -> 1
    ",
    );
}

/// The replay had read the event and waited for its group behind the dead letter; then it delivered the replaced event.
#[test]
fn a_replay_that_waits_for_a_letter_does_not_deliver_what_a_correction_replaced() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR attempts=1
        publish a a
        answer mail/1 500
        run                         -> mail/1:500
        replay mail 1 2             -> 2
        run                         ->
        correct mail/1
        run                         -> mail/2:200 mail/2:200 mail/3:200
    ",
    );
}
