//! The broker's own entries are reclaimed: no client sees a difference, on any engine, and the log does not grow.

mod process;
mod shared;
mod steady;

use crate::scenario::check_with;
use event_broker::Config;

/// Entries may be reclaimed at once.
fn at_once() -> Config {
    let mut config = Config::default();
    config.maintenance.reclaim_after_secs = 0;
    config
}

#[test]
fn what_entries_said_stays_true_when_they_are_gone() {
    check_with(
        &at_once(),
        "
        topic brief retention=PT1H window=PT10H     -> created
        type placed topic=brief                     -> created
        type kept                                   -> created
        publish placed a id=1                       -> created 1 aggregate 1
        publish placed b                            -> created 2 aggregate 1
        publish kept a                              -> created 1 aggregate 1
        reclaim                                     -> removed
        publish placed a expected=1                 -> created 3 aggregate 2
        reopen
        publish placed a id=1                       -> duplicate 1
        advance 3600001
        expire                                      -> removed 3
        reclaim                                     -> removed
        reclaim                                     -> removed
        rebuild
        aggregate brief a                           -> 2 at 3 gone
        publish placed a id=1                       -> TRIMMED earliest 4
        publish placed b expected=1                 -> created 4 aggregate 2
        crash
        publish placed a                            -> created 5 aggregate 3
        log                                         -> default/1 brief/4 brief/5
    ",
    );
}

#[test]
fn a_claim_that_is_done_stays_done_and_one_that_is_open_keeps_its_token() {
    check_with(
        &at_once(),
        "
        type placed                                 -> created
        publish placed a                            -> created 1 aggregate 1
        publish placed b                            -> created 2 aggregate 1
        claim billing default/1 as=a                -> claimed attempt 1 until 900000
        claim billing default/2 as=b                -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        reclaim                                     -> removed
        rebuild
        claim billing default/1                     -> done
        claim billing default/2 by=w2               -> held until 900000
        done b                                      -> done attempt 1
        done b                                      -> done attempt 1
        reclaim                                     -> removed
        done b                                      -> done attempt 1
        crash
        done a                                      -> done attempt 1
        claim billing default/2                     -> done
    ",
    );
}
