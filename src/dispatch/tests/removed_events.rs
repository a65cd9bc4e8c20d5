//! Jobs whose events were removed from the topic, and message groups that such jobs block.

use super::check;

/// The group of a job is in its event. When that was removed, nothing showed why the group did not move, and after a restart
/// the jobs behind it were delivered though the dead letter was open.
#[test]
fn a_group_stays_blocked_and_visible_when_the_event_of_its_head_is_removed() {
    for between in ["", "restart", "reopen"] {
        for verb in ["cancel", "complete", "discard"] {
            check(&format!(
                "
                subscribe mail mode=BLOCK_ON_ERROR attempts=1
                publish a a a
                answer mail/1 500
                run                         -> mail/1:500
                trim 1
                {between}
                run                         ->
                groups mail                 -> mail:gts.vendor.app.order.v1/a by 1 for 0 waiting 2
                verbs mail                  -> cancel complete
                jobs status=ERROR           -> mail/1
                jobs                        -> mail/1 mail/2 mail/3
                job mail/1                  -> ERROR tried 1
                retry mail/1                -> INVALID_STATE
                redrive mail/1              -> TRIMMED
                {verb} mail/1
                letters                     ->
                groups mail                 ->
                run                         -> mail/2:200 mail/3:200
            "
            ));
        }
    }
}

#[test]
fn a_job_that_expired_before_its_event_was_removed_blocks_its_group_after_a_restart_too() {
    check(
        "
        subscribe mail mode=BLOCK_ON_ERROR age=10
        pause mail
        publish a
        advance 10000
        run                         ->
        publish a
        resume mail
        trim 1
        restart
        run                         ->
        groups mail                 -> mail:gts.vendor.app.order.v1/a by 1 for 0 waiting 1
        discard mail/1
        run                         -> mail/2:200
    ",
    );
}

/// On later pages the second, third and fourth job of a group were named as its head.
#[test]
fn a_group_is_listed_once_however_long_its_pages_are() {
    for limit in [1, 2, 100] {
        check(&format!(
            "
            subscribe mail mode=BLOCK_ON_ERROR age=10
            pause mail
            publish a b a a b a
            advance 10000
            run                         ->
            groups mail limit={limit}   -> mail:gts.vendor.app.order.v1/a by 1 for 0 waiting 3 | mail:gts.vendor.app.order.v1/b by 2 for 0 waiting 1
        "
        ));
    }
}
