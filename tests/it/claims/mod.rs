//! Claims: every result and every refusal, order, attempts, take-over of expired claims, and what a restart preserves.

mod crashes;
mod deletion;
mod finality;
mod known_pitfalls;
mod lag;
mod model;
mod offsets;
mod races;
mod release;

use crate::scenario::{check, check_alone, check_with};
use event_broker::Config;

/// Subject `a` has three events, `b` has one.
const EVENTS: &str = "
        topic orders                                -> created
        type placed topic=orders                    -> created
        type loose topic=orders subject-optional    -> created
        publish placed a id=11                      -> created 1 aggregate 1
        publish placed a id=12                      -> created 2 aggregate 2
        publish placed b id=13                      -> created 3 aggregate 1
        publish placed a id=14                      -> created 4 aggregate 3
";

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn an_event_is_claimed_once_and_done_once() {
    with_events(
        "
        claim billing orders/1 by=w1 as=a           -> claimed attempt 1 until 900000
        claim billing orders/1 by=w2                -> held until 900000
        claim billing #11 by=w2                     -> held until 900000
        claim mailing #11 by=w1 lease=PT1.5S        -> claimed attempt 1 until 1500
        advance 1000
        shown a                                     -> claimed attempt 1 until 899000
        open billing                                -> orders/1 claimed
        done a                                      -> done attempt 1
        done a                                      -> done attempt 1
        claim billing orders/1                      -> done
        open billing                                -> 
        shown a                                     -> NOT_FOUND
        beat a                                      -> CLAIM_LOST
        fail a                                      -> CLAIM_LOST
        open mailing                                -> orders/1 claimed
    ",
    );
}

#[test]
fn only_the_token_that_finished_a_claim_may_say_so_again() {
    with_events(
        "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        claim mailing orders/1 as=c                 -> claimed attempt 1 until 900000
        done a with=b                               -> CLAIM_LOST
        done a                                      -> done attempt 1
        done a with=b                               -> CLAIM_LOST
        done a with=c                               -> CLAIM_LOST
        done b with=a                               -> CLAIM_LOST
        done b                                      -> done attempt 1
        done a                                      -> done attempt 1
    ",
    );
}

#[test]
fn a_lease_that_ran_out_can_be_claimed_again_with_a_higher_token() {
    with_events(
        "
        claim billing orders/1 by=w1 lease=PT30S as=a   -> claimed attempt 1 until 30000
        advance 29999
        claim billing orders/1 by=w2                    -> held until 1
        advance 1
        beat a                                          -> claimed attempt 1 until 30000
        advance 30000
        claim billing orders/1 by=w2 lease=PT30S as=b   -> claimed attempt 2 until 30000
        higher b a                                      -> yes
        beat a                                          -> CLAIM_LOST
        done a                                          -> CLAIM_LOST
        fail a                                          -> CLAIM_LOST
        advance 40000
        done b                                          -> done attempt 2
        done b                                          -> done attempt 2
        done a                                          -> CLAIM_LOST
        claim billing orders/1                          -> done
    ",
    );
}

#[test]
fn what_failed_is_tried_again_after_a_wait_that_doubles_and_is_given_up_in_the_end() {
    with_events(
        "
        handler billing attempts=3 backoff=PT2S     -> created PT900S 3 PT2S latest
        claim billing orders/3 by=w1 as=a           -> claimed attempt 1 until 900000
        fail a class=Timeout                        -> failed attempt 1 again 2000
        fail a class=Other                          -> failed attempt 1 again 2000
        done a                                      -> CLAIM_LOST
        beat a                                      -> CLAIM_LOST
        claim billing orders/3                      -> held until 2000
        standing billing                            -> in flight 0 failed 1 dead 0 lag 4 since 0
        advance 1999
        claim billing orders/3                      -> held until 1
        advance 1
        claim billing orders/3 by=w2 as=b           -> claimed attempt 2 until 900000
        fail a                                      -> CLAIM_LOST
        fail b                                      -> failed attempt 2 again 4000
        advance 4000
        claim billing orders/3 by=w3 as=c           -> claimed attempt 3 until 900000
        fail c class=Refused                        -> dead attempt 3
        fail c class=Refused                        -> dead attempt 3
        done c                                      -> CLAIM_LOST
        claim billing orders/3                      -> held
        letters                                     -> billing orders/3 Refused attempts 3 open
        tried billing orders/3                      -> 1 w1 Timeout | 2 w2 Timeout | 3 w3 Refused
        standing billing                            -> in flight 0 failed 0 dead 1 lag 4 since -6000
    ",
    );
}

#[test]
fn what_cannot_succeed_is_given_up_at_once() {
    with_events(
        "
        claim billing orders/3 as=a                 -> claimed attempt 1 until 900000
        fail a class=Invalid final                  -> dead attempt 1
        claim billing orders/3                      -> held
        letters                                     -> billing orders/3 Invalid attempts 1 open
    ",
    );
}

#[test]
fn work_that_kills_its_worker_ends_as_a_dead_letter() {
    with_events(
        "
        handler billing lease=PT10S attempts=2      -> created PT10S 2 PT1S latest
        claim billing orders/3 by=w1 as=a           -> claimed attempt 1 until 10000
        advance 10000
        claim billing orders/3 by=w2 as=b           -> claimed attempt 2 until 10000
        advance 10000
        standing billing                            -> in flight 0 failed 1 dead 0 lag 4 since -10000
        claim billing orders/3 by=w3                -> held
        letters                                     -> billing orders/3 LeaseExpired attempts 2 open
        tried billing orders/3                      -> 1 w1 LeaseExpired | 2 w2 LeaseExpired
        done b                                      -> CLAIM_LOST
        claim billing orders/3                      -> held
    ",
    );
}

#[test]
fn latest_makes_stale_what_a_later_event_has_overtaken() {
    with_events(
        "
        claim billing orders/2 as=b                 -> claimed attempt 1 until 900000
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done b                                      -> done attempt 1
        claim billing orders/1                      -> held until 900000
        done a                                      -> done attempt 1
        claim billing orders/4 as=d                 -> claimed attempt 1 until 900000
        done d                                      -> done attempt 1
        claim billing orders/2                      -> done
        claim mailing orders/4 as=d                 -> claimed attempt 1 until 900000
        done d                                      -> done attempt 1
        claim mailing orders/1                      -> stale
        claim mailing orders/2                      -> stale
        claim mailing orders/2 order=gapless        -> held
        claim mailing orders/3 as=c                 -> claimed attempt 1 until 900000
        open mailing                                -> orders/3 claimed
        publish placed a                            -> created 5 aggregate 4
        claim mailing orders/5                      -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn gapless_passes_over_nothing() {
    with_events(
        "
        handler billing order=gapless attempts=1 lease=PT10S -> created PT10S 1 PT1S gapless
        claim billing orders/4                      -> held
        claim billing orders/2                      -> held
        claim billing orders/3 as=c                 -> claimed attempt 1 until 10000
        claim billing orders/1 as=a                 -> claimed attempt 1 until 10000
        claim billing orders/2                      -> held until 10000
        claim billing orders/2 order=latest as=x    -> claimed attempt 1 until 10000
        fail a                                      -> dead attempt 1
        done x                                      -> done attempt 1
        claim billing orders/4 as=d                 -> claimed attempt 1 until 10000
        done d                                      -> done attempt 1
    ",
    );
    with_events(
        "
        handler billing order=gapless backoff=PT5S attempts=2 -> created PT900S 2 PT5S gapless
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a                                      -> failed attempt 1 again 5000
        claim billing orders/2                      -> held until 5000
        advance 5000
        claim billing orders/2                      -> held
        claim billing orders/1 as=a                 -> claimed attempt 2 until 900000
        fail a                                      -> dead attempt 2
        claim billing orders/2                      -> held
        redrive billing orders/1                    -> redriven
        claim billing orders/2                      -> held
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a class=Invalid final                  -> dead attempt 1
        discard billing orders/1 reason=never       -> discarded
        claim billing orders/1                      -> done
        claim billing orders/2 as=b                 -> claimed attempt 1 until 900000
        done b                                      -> done attempt 1
        claim billing orders/4                      -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn an_event_without_a_subject_has_no_order_to_keep() {
    with_events(
        "
        publish loose -                             -> created 5
        publish loose -                             -> created 6
        claim billing orders/6 order=gapless as=f   -> claimed attempt 1 until 900000
        done f                                      -> done attempt 1
        claim billing orders/5                      -> claimed attempt 1 until 900000
    ",
    );
}

#[test]
fn a_hot_aggregate_is_read_a_page_at_a_time() {
    let many: String = (5..=300).map(|n| format!("publish placed a -> created {n} aggregate {}\n", n - 1)).collect();
    with_events(&format!(
        "{many}
        claim billing orders/3 as=c                 -> claimed attempt 1 until 900000
        done c                                      -> done attempt 1
        claim billing orders/2 as=b                 -> claimed attempt 1 until 900000
        claim billing orders/250 as=y               -> claimed attempt 1 until 900000
        done y                                      -> done attempt 1
        claim billing orders/1                      -> stale
        claim billing orders/249                    -> stale
        claim billing orders/251                    -> claimed attempt 1 until 900000
        claim billing orders/260                    -> claimed attempt 1 until 900000
        claim mailing orders/300 as=z               -> claimed attempt 1 until 900000
        claim mailing orders/1                      -> claimed attempt 1 until 900000
        done z                                      -> done attempt 1
        claim mailing orders/2                      -> stale
    "
    ));
}

#[test]
fn a_claim_that_breaks_a_rule_is_refused_and_leaves_nothing() {
    let long = "x".repeat(513);
    with_events(&format!(
        "
        claim (none) orders/1                       -> VALIDATION_ERROR /handler
        claim a(control)b orders/1                  -> VALIDATION_ERROR /handler
        claim {long} orders/1                       -> VALIDATION_ERROR /handler
        claim billing orders/1 by={long}            -> VALIDATION_ERROR /owner
        claim billing orders/1 lease=PT0S           -> VALIDATION_ERROR /lease
        claim billing orders/1 lease=PT24H0.001S    -> VALIDATION_ERROR /lease
        claim billing orders/0                      -> VALIDATION_ERROR /sequence
        claim billing orders/5                      -> NOT_FOUND
        claim billing nowhere/1                     -> VALIDATION_ERROR /topic
        claim billing #99                           -> NOT_FOUND
        handlers                                    -> 
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        fail a class=(none)                         -> VALIDATION_ERROR /error/class
        fail a class={long}                         -> VALIDATION_ERROR /error/class
        done a offset=5                             -> VALIDATION_ERROR /offset
        done a events: unknown x                    -> VALIDATION_ERROR /events/0/type
        shown a                                     -> claimed attempt 1 until 900000
        handler (none)                              -> VALIDATION_ERROR /name
        handler {long}                              -> VALIDATION_ERROR /name
        handler h attempts=0 lease=PT0S backoff=PT2H -> VALIDATION_ERROR /lease /maxAttempts /backoff
        handler h attempts=101                      -> VALIDATION_ERROR /maxAttempts
        handlers                                    -> billing
        standing nobody                             -> NOT_FOUND
    "
    ));
}

#[test]
fn done_produced_events_and_the_offset_are_one() {
    with_events(
        "
        type shipped topic=orders                   -> created
        topic parcels                               -> created
        type packed topic=parcels                   -> created
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a offset=3 events: shipped a id=21 ; packed p id=22 ; nonsense x -> VALIDATION_ERROR /events/2/type
        done a offset=3 events: shipped a id=21 ; shipped a expected=9        -> EXPECTED_SEQUENCE /events/1 actual 4
        done a offset=9 events: shipped a id=21     -> VALIDATION_ERROR /offset
        read orders                                 -> 1 2 3 4 next 4 tail 4
        group billing                               -> NOT_FOUND
        claim billing orders/1                      -> held until 900000
        done a offset=5 events: shipped a id=21 ; packed p id=22              -> done attempt 1
        read orders                                 -> 1 2 3 4 5 next 5 tail 5
        read parcels                                -> 1 next 1 tail 1
        group billing                               -> orders 5 of 5 lag 0
        done a offset=1 events: shipped a           -> done attempt 1
        read orders                                 -> 1 2 3 4 5 next 5 tail 5
        standing billing                            -> in flight 0 failed 0 dead 0 lag 0
        claim billing orders/3 as=b                 -> claimed attempt 1 until 900000
        done b offset=2 events: packed p id=22      -> done attempt 1
        read parcels                                -> 1 next 1 tail 1
        group billing                               -> orders 5 of 5 lag 0
    ",
    );
}

#[test]
fn several_claims_and_completions_share_a_decision_and_have_each_their_answer() {
    with_events(
        "
        claims billing orders/1 as=a ; billing orders/1 ; billing orders/9 ; mailing #13 as=b ; billing (none)/1 -> claimed attempt 1 until 900000 | held until 900000 | NOT_FOUND | claimed attempt 1 until 900000 | VALIDATION_ERROR /topic
        claims billing orders/3 as=c                -> claimed attempt 1 until 900000
        dones a b c a                               -> done attempt 1 | done attempt 1 | done attempt 1 | done attempt 1
        open billing                                -> 
    "
        .replace("(none)", "nowhere")
        .as_str(),
    );
}

#[test]
fn what_holds_for_a_handler_may_change_and_what_is_absent_is_the_default() {
    let mut config = Config::default();
    config.claims.lease_secs = 60;
    config.claims.backoff_secs = 3;
    config.claims.max_attempts = 2;
    check_with(
        &config,
        &format!(
            "{EVENTS}
        claim mailing orders/3 as=m                 -> claimed attempt 1 until 60000
        fail m                                      -> failed attempt 1 again 3000
        handler billing                             -> created PT60S 2 PT3S latest
        handler billing                             -> known PT60S 2 PT3S latest
        handler billing lease=PT1M order=gapless    -> known PT1M 2 PT3S gapless
        claim billing orders/2                      -> held
        claim billing orders/2 order=latest lease=PT2S -> claimed attempt 1 until 2000
        handlers                                    -> billing mailing
    "
        ),
    );
}

#[test]
fn claims_survive_a_restart_and_come_out_the_same_when_folded_anew() {
    for how in ["reopen", "crash", "rebuild"] {
        with_events(&format!(
            "
        handler billing attempts=2 backoff=PT7S     -> created PT900S 2 PT7S latest
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing orders/2 by=w1 as=b lease=PT10S -> claimed attempt 1 until 10000
        advance 10000
        claim billing orders/2 by=w2 as=c           -> claimed attempt 2 until 900000
        done c                                      -> done attempt 2
        claim billing orders/3 as=d                 -> claimed attempt 1 until 900000
        fail d                                      -> failed attempt 1 again 7000
        claim billing orders/4 as=e lease=PT20S     -> claimed attempt 1 until 20000
        claim mailing orders/3 as=f                 -> claimed attempt 1 until 900000
        fail f class=X final                        -> dead attempt 1
        claim mailing orders/1 as=g                 -> claimed attempt 1 until 900000
        fail g class=Y final                        -> dead attempt 1
        discard mailing orders/1 reason=why by=ops  -> discarded
        standing billing                            -> in flight 1 failed 1 dead 0 lag 2 since 0
        {how}
        standing billing                            -> in flight 1 failed 1 dead 0 lag 2 since 0
        open billing                                -> orders/3 failed | orders/4 claimed
        open mailing                                -> orders/3 dead
        letters all                                 -> mailing orders/3 X attempts 1 open | mailing orders/1 Y attempts 1 discarded
        resolved mailing orders/1                   -> by ops because why at 0
        done a                                      -> done attempt 1
        done b                                      -> CLAIM_LOST
        done c                                      -> done attempt 2
        claim mailing orders/1                      -> done
        claim billing orders/3                      -> held until 7000
        advance 7000
        claim billing orders/3                      -> claimed attempt 2 until 900000
        beat e                                      -> claimed attempt 1 until 20000
        done e                                      -> done attempt 1
        handler billing attempts=2 backoff=PT7S     -> known PT900S 2 PT7S latest
    "
        ));
    }
}

#[test]
fn what_was_finished_goes_with_its_events_and_stays_finished() {
    for how in ["reopen", "rebuild"] {
        with_events(&format!(
            "
        claim billing orders/1 as=a                 -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing orders/2 as=b lease=PT1S      -> claimed attempt 1 until 1000
        claim billing orders/3 as=c                 -> claimed attempt 1 until 900000
        claim mailing orders/2 as=d                 -> claimed attempt 1 until 900000
        fail d class=X final                        -> dead attempt 1
        claim mailing orders/3 as=e                 -> claimed attempt 1 until 900000
        fail e                                      -> failed attempt 1 again 1000
        advance 1000
        trim orders 3                               -> removed 3
        claim billing orders/1                      -> TRIMMED earliest 4
        claim billing #11                           -> NOT_FOUND
        open billing                                -> orders/3 claimed
        open mailing                                -> orders/2 dead
        done a                                      -> done attempt 1
        done c                                      -> done attempt 1
        done c                                      -> done attempt 1
        claim billing orders/4 order=gapless as=f   -> claimed attempt 1 until 900000
        letters                                     -> mailing orders/2 X attempts 1 open event gone
        {how}
        letters                                     -> mailing orders/2 X attempts 1 open event gone
        open billing                                -> orders/4 claimed
        redrive mailing orders/2                    -> TRIMMED earliest 4
        redrive-all name=mailing                    -> 0 skipped 1
        redrive-all name=mailing dry                -> 0 skipped 1
        discard mailing orders/2 reason=gone        -> discarded
        open mailing                                -> 
        done f                                      -> done attempt 1
        standing billing                            -> in flight 0 failed 0 dead 0 lag 0
    "
        ));
    }
}

#[test]
fn a_topic_in_a_log_of_its_own_has_its_claims_there() {
    check_alone(
        r#"
        topic orders streaming={"type":"memory","location":"memory://apart"} -> created
        topic parcels                               -> created
        type placed topic=orders                    -> created
        type packed topic=parcels                   -> created
        publish placed a id=11                      -> created 1 aggregate 1
        publish placed a id=12                      -> created 2 aggregate 2
        publish packed p id=13                      -> created 1 aggregate 1
        handler billing attempts=1 order=gapless lease=PT5S -> created PT5S 1 PT1S gapless
        claim billing #12                           -> held
        claim billing #11 as=a                      -> claimed attempt 1 until 5000
        claims billing #13 as=b ; billing orders/1  -> claimed attempt 1 until 5000 | held until 5000
        done a events: packed p                     -> VALIDATION_ERROR /events/0
        done b events: placed a                     -> VALIDATION_ERROR /events/0
        done a offset=1 events: placed a            -> done attempt 1
        group billing                               -> orders 1 of 3 lag 2
        dones a b                                   -> done attempt 1 | done attempt 1
        claim billing #12 as=c                      -> claimed attempt 1 until 5000
        fail c class=X                              -> dead attempt 1
        letters topic=orders                        -> billing orders/2 X attempts 1 open
        letters topic=parcels                       -> 
        redrive billing orders/2                    -> redriven
        claim billing orders/2                      -> claimed attempt 1 until 5000
        standing billing                            -> in flight 1 failed 0 dead 0 lag 2
        handlers                                    -> billing
    "#,
    );
}

#[test]
fn aggregates_are_told_apart_by_their_bytes_unless_the_topic_says_otherwise() {
    check(
        "
        topic exact                                 -> created
        topic loose normalise=caseFold normalise=nfc -> created
        topic odd normalise=trim normalise=trim     -> VALIDATION_ERROR /aggregateNormalisation
        type placed topic=exact                     -> created
        type packed topic=loose                     -> created
        publish placed A                            -> created 1 aggregate 1
        publish placed a                            -> created 2 aggregate 1
        publish placed a/b                          -> created 3 aggregate 1
        publish placed a%2Fb                        -> created 4 aggregate 1
        publish placed \u{e9}                       -> created 5 aggregate 1
        publish placed e\u{301}                     -> created 6 aggregate 1
        publish packed A                            -> created 1 aggregate 1
        publish packed a                            -> created 2 aggregate 2
        publish packed \u{c9}                       -> created 3 aggregate 1
        publish packed e\u{301}                     -> created 4 aggregate 2
        publish packed e                            -> created 5 aggregate 1
        claim billing exact/2 as=a                  -> claimed attempt 1 until 900000
        done a                                      -> done attempt 1
        claim billing exact/1                       -> claimed attempt 1 until 900000
        claim billing loose/2 as=b                  -> claimed attempt 1 until 900000
        done b                                      -> done attempt 1
        claim billing loose/1                       -> stale
        claim billing loose/4 order=gapless         -> held
        claim billing loose/3 as=c                  -> claimed attempt 1 until 900000
        reopen
        history loose a                             -> 1@1 2@2 next 2 of 2
        publish packed a expected=2                 -> created 6 aggregate 3
        event 9                                     -> NOT_FOUND
    ",
    );
}
