//! The time of a log, by lines such as `step 5` and `now -> 5`.

use super::*;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 24 * 60 * MINUTE;

/// Runs lines such as `step 5` and `now -> 5` on a clock that shows 0, with a bound of five minutes; in seconds.
fn check(lines: &str) {
    let clock = Arc::new(ManualClock::at(0));
    let start = || Arc::new(TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300)));
    let mut believed = start();
    let (mut log, mut last) = (LogClock::new(Arc::clone(&believed)), 0);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once("->").unwrap_or((line, ""));
        let words: Vec<_> = command.split_whitespace().collect();
        let seconds = || words[1].parse::<i64>().unwrap() * SECOND;
        match words[0] {
            "step" => clock.step(seconds()),
            "advance" => clock.advance(seconds()),
            // Somebody else's record.
            "record" => {
                last = seconds();
                log.observe(last);
            }
            "write" => {
                last = log.now();
                log.observe(last);
            }
            // In the same process, or in another one.
            "reopen" | "restart" => {
                if words[0] == "restart" {
                    believed = start();
                }
                log = LogClock::new(Arc::clone(&believed));
                log.observe(last);
            }
            // Another log of the same broker.
            "other" => {
                let other = LogClock::new(Arc::clone(&believed)).now();
                assert_eq!(other / SECOND, expected.trim().parse::<i64>().unwrap(), "{line} in {lines}");
            }
            "now" => assert_eq!(log.now() / SECOND, expected.trim().parse::<i64>().unwrap(), "{line} in {lines}"),
            "doubt" => {
                let jump = log.doubted_jump().map_or("none".to_owned(), |jump| (jump / SECOND).to_string());
                assert_eq!(jump, expected.trim(), "{line} in {lines}");
            }
            other => panic!("unknown {other}"),
        }
    }
}

#[test]
fn time_that_was_ahead_once_never_falls_and_goes_on_moving() {
    check(
        "
        step 200
        write
        step -200
        now -> 200
        advance 2
        now -> 202
        write
        reopen
        now -> 202
        restart
        now -> 202
        advance 2
        now -> 204
    ",
    );
}

#[test]
fn a_record_of_a_broker_whose_clock_is_ahead_is_where_time_goes_on_from() {
    check(
        "
        advance 10
        record 610
        now -> 610
        advance 2
        now -> 612
        record 605
        now -> 612
    ",
    );
}

#[test]
fn a_jump_that_passes_is_never_believed() {
    check(
        "
        write
        step 86400
        now -> 0
        doubt -> 86400
        advance 299
        now -> 299
        step -86400
        now -> 299
        doubt -> none
        advance 10
        step 86400
        now -> 309
        advance 300
        now -> 87009
    ",
    );
}

#[test]
fn a_jump_that_lasts_is_believed_as_after_a_suspension() {
    check(
        "
        write
        step 28800
        now -> 0
        advance 300
        now -> 29100
        doubt -> none
    ",
    );
}

#[test]
fn each_jump_has_its_own_time_to_last() {
    check(
        "
        step 86400
        now -> 0
        advance 200
        step 864000
        now -> 200
        advance 200
        now -> 400
        advance 100
        now -> 950900
    ",
    );
}

#[test]
fn a_broker_that_starts_believes_its_clock_however_long_nothing_was_written() {
    check(
        "
        write
        step 864000
        restart
        now -> 864000
    ",
    );
}

#[test]
fn a_jump_in_doubt_stays_so_for_a_broker_that_is_opened_again_and_for_a_log_that_is_opened_meanwhile() {
    check(
        "
        write
        step 864000
        now -> 0
        reopen
        now -> 0
        other -> 0
        doubt -> 864000
        advance 299
        reopen
        now -> 299
        advance 1
        now -> 864300
        other -> 864300
    ",
    );
}

#[test]
fn a_jump_that_hides_behind_a_time_that_was_ahead_is_in_doubt_for_logs_that_are_not() {
    check(
        "
        record 86400
        step 80000
        now -> 86400
        other -> 0
        doubt -> 80000
    ",
    );
}

#[test]
fn small_steps_are_followed_ahead_and_not_back() {
    check(
        "
        step 250
        now -> 250
        step -100
        now -> 250
        advance 50
        now -> 300
        step 100
        now -> 300
    ",
    );
}

#[test]
fn a_clock_that_said_2099_once_moves_on_from_there() {
    let clock = Arc::new(ManualClock::at(0));
    let believed = TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300));
    let log = LogClock::new(Arc::new(believed));
    log.observe(47_000 * DAY);
    assert_eq!(log.now(), 47_000 * DAY);
    clock.advance(2 * MINUTE);
    assert_eq!(log.now(), 47_000 * DAY + 2 * MINUTE);
    log.observe(i64::MAX);
    assert_eq!(log.now(), i64::MAX);
}
