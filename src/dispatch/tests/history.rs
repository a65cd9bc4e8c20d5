//! What remains of jobs and dead letters after a trim, after the deletion of their subscription, and after a change of
//! its filter.

use super::check;

const THREE_LETTERS: &str = "
        subscribe mail attempts=1
        answer mail/1 500
        answer mail/2 500
        answer mail/3 500
        publish a
        run                         -> mail/1:500
        advance 1
        publish b
        run                         -> mail/2:500
        advance 1
        publish c
        run                         -> mail/3:500
        advance 1
";

#[test]
fn a_bulk_redrive_leaves_letters_open_whose_events_are_gone() {
    check(&format!(
        "{THREE_LETTERS}
        trim 2
        redrive mail/1              -> TRIMMED
        redrive-all mail dry        -> 1 skipped 2
        redrive-all mail            -> 1 skipped 2
        run                         -> mail/3:200
        letters                     -> mail/1 timeout tried 1 | mail/2 timeout tried 1
        discard mail/1
        discard mail/2
        status mail                 -> Active through 3 open 0
    "
    ));
}

#[test]
fn deleting_a_subscription_closes_its_letters_and_no_other() {
    check(&format!(
        "{THREE_LETTERS}
        subscribe other attempts=1
        publish d
        answer other/4 500
        run-sorted                  -> mail/4:200 other/4:500
        discard mail/2
        unsubscribe mail
        letters                     -> other/4 timeout tried 1
        letters-all                 -> mail/1 Discarded | mail/2 Discarded | mail/3 Discarded | other/4 Open
        why mail/1                  -> The subscription was deleted.
        why mail/2                  -> old
        trim 1
        redrive-closed mail/1       -> INVALID_STATE
        redrive-all mail            -> 0 skipped 0
        subscribe mail
        reopen
        letters                     -> other/4 timeout tried 1
        why mail/3                  -> The subscription was deleted.
    "
    ));
}

#[test]
fn a_letter_that_an_older_version_left_without_its_subscription_is_not_redriven() {
    check(&format!(
        "{THREE_LETTERS}
        old-unsubscribe mail
        redrive mail/1              -> INVALID_STATE
        redrive-all mail            -> 0 skipped 3
        discard mail/1
        letters                     -> mail/2 timeout tried 0 | mail/3 timeout tried 0
    "
    ));
}

#[test]
fn what_was_delivered_or_had_begun_under_an_old_filter_stays_a_job() {
    check(
        "
        subscribe mail types=placed
        publish a
        run                         -> mail/1:200
        publish b type=paid
        publish c
        answer mail/3 500
        run                         -> mail/3:500
        publish d e
        answer mail/4 hang
        run                         -> mail/5:200
        change mail types=paid
        jobs                        -> mail/1 mail/3 mail/5
        job mail/1                  -> COMPLETED tried 1
        job mail/2                  -> NOT_FOUND
        publish f
        publish g type=paid
        run                         -> mail/7:200
        release mail/4              -> mail/4:200
        advance 5000
        run                         -> mail/3:200
        jobs status=COMPLETED       -> mail/1 mail/3 mail/4 mail/5 mail/7
        change mail types=shipped
        reopen
        run                         ->
        jobs                        -> mail/1 mail/3 mail/4 mail/5 mail/7
        trim 4
        jobs                        -> mail/5 mail/7
    ",
    );
}

#[test]
fn a_job_that_has_not_begun_follows_the_new_filter() {
    check(
        "
        subscribe mail types=placed
        pause mail
        publish a
        publish b type=paid
        jobs                        -> mail/1
        change mail types=paid
        jobs                        ->
        publish c type=paid
        jobs                        -> mail/3
        resume mail
        run                         -> mail/3:200
        jobs                        -> mail/3
        change mail types=placed
        publish d
        jobs                        -> mail/3 mail/4
        run                         -> mail/4:200
    ",
    );
}

/// All events that the old filter had skipped were delivered, or those since the lane's progress was last recorded.
#[test]
fn a_changed_filter_delivers_no_events_of_the_past() {
    for between in ["", "restart", "reopen"] {
        check(&format!(
            "
            subscribe mail types=placed
            publish a b c type=paid
            run                         ->
            change mail types=paid
            {between}
            jobs                        ->
            run                         ->
            publish d type=paid
            run                         -> mail/4:200
            jobs                        -> mail/4
            change mail types=shipped
            change mail types=paid
            {between}
            run                         ->
            jobs                        -> mail/4
            status mail                 -> Active through 4 open 0
        "
        ));
    }
}
