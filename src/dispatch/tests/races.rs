//! Decisions of a person while a job is in flight: the log decides, and the worker follows.

use super::check;

/// The job was cancelled after it was sent and before its failure was recorded. The worker blocked the group for ever,
/// although the log did not.
#[test]
fn a_job_that_is_cancelled_or_completed_while_it_fails_does_not_hold_its_group() {
    for (verb, attempts) in [("cancel", 1), ("cancel", 5)] {
        check(&format!(
            "
            subscribe mail mode=BLOCK_ON_ERROR attempts={attempts}
            publish a a
            answer mail/1 500
            turn
            {verb} mail/1
            turn
            run                         -> mail/1:500 mail/2:200
            groups mail                 ->
            letters                     ->
        "
        ));
    }
}

/// The retry was decided after the job reached its maximum age and before that was recorded. The worker treated the job
/// as given up.
#[test]
fn a_job_that_is_retried_while_it_expires_is_delivered() {
    for mode in ["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"] {
        check(&format!(
            "
            subscribe mail mode={mode} age=10 retry=PT10M
            publish a
            answer mail/1 500
            run                         -> mail/1:500
            advance 10000
            turn
            retry mail/1                -> QUEUED
            turn
            run                         -> mail/1:200
            job mail/1                  -> COMPLETED tried 2
            letters                     ->
        "
        ));
    }
}
