//! The time of a log, by lines such as `step 5` and `now -> 5`.

use super::*;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const DAY: i64 = 24 * 60 * MINUTE;

/// Runs lines such as `step 5` and `now -> 5` on a clock that shows 0, with a bound of five minutes; in seconds.
fn check(lines: &str) {
    let clock = Arc::new(ManualClock::at(0));
    let start = || Arc::new(TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300)));
    let mut trusted = start();
    let (mut log, mut last) = (LogClock::new(Arc::clone(&trusted)), 0);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, expected) = line.split_once("->").unwrap_or((line, ""));
        let words: Vec<_> = command.split_whitespace().collect();
        let seconds = || words[1].parse::<i64>().unwrap() * SECOND;
        match words[0] {
            "step" => clock.step(seconds()),
            "advance" => clock.advance(seconds()),
            // A record of another process.
            "record" => {
                last = seconds();
                log.observe(last);
            }
            "write" => {
                last = log.now();
                log.observe(last);
            }
            // The log is opened again, in the same process or in a new one.
            "reopen" | "restart" => {
                if words[0] == "restart" {
                    trusted = start();
                }
                log = LogClock::new(Arc::clone(&trusted));
                log.start_after(last);
                log.observe(last);
            }
            // A broker starts on a database whose server shows this time.
            "restart-on-server" => {
                trusted = start();
                trusted.note_server_time(seconds());
                log = LogClock::new(Arc::clone(&trusted));
                log.start_after(last);
                log.observe(last);
            }
            "server" => trusted.note_server_time(seconds()),
            // The time that decides whether something that was stored then has expired.
            "ends" => {
                let ends = log.hold().time_for(seconds(), log.now()) / SECOND;
                assert_eq!(ends, expected.trim().parse::<i64>().unwrap(), "{line} in {lines}");
            }
            // Another log of the same broker.
            "other" => {
                let other = LogClock::new(Arc::clone(&trusted)).now();
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
fn a_jump_that_passes_is_never_trusted() {
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
fn a_jump_that_lasts_is_trusted_as_after_a_suspension() {
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
fn a_broker_that_starts_trusts_its_clock_however_long_nothing_was_written() {
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
    let trusted = TrustedClock::new(Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(300));
    let log = LogClock::new(Arc::new(trusted));
    log.observe(47_000 * DAY);
    assert_eq!(log.now(), 47_000 * DAY);
    clock.advance(2 * MINUTE);
    assert_eq!(log.now(), 47_000 * DAY + 2 * MINUTE);
    log.observe(i64::MAX);
    assert_eq!(log.now(), i64::MAX);
}

/// Retention deleted everything within a second of a start with a clock that was ten years ahead.
#[test]
fn a_start_far_behind_the_last_record_ends_nothing_until_the_clock_has_lasted() {
    check(
        "
        advance 100
        write
        step 864000
        restart
        now -> 864100
        ends 100 -> 100
        advance 299
        ends 100 -> 399
        write
        ends 864399 -> 864399
        advance 1
        ends 100 -> 864400
    ",
    );
}

#[test]
fn a_clock_that_is_set_right_after_the_start_has_ended_nothing() {
    check(
        "
        advance 100
        write
        step 864000
        restart
        write
        advance 60
        step -864000
        ends 100 -> 160
        advance 600
        now -> 864760
        ends 100 -> 760
        ends 864100 -> 864760
    ",
    );
}

#[test]
fn a_start_soon_after_the_last_record_holds_nothing() {
    check(
        "
        advance 100
        write
        advance 300
        restart
        ends 100 -> 400
    ",
    );
}

/// One broker whose clock was two days ahead ended the sessions and windows of all brokers of its database.
#[test]
fn a_server_that_denies_the_clock_at_the_start_gives_the_time() {
    check(
        "
        advance 100
        write
        step 172800
        restart-on-server 110
        now -> 110
        ends 100 -> 110
        advance 400
        now -> 510
        doubt -> 172790
        server 510
        now -> 510
        step -172800
        now -> 510
        doubt -> none
    ",
    );
}

#[test]
fn a_server_that_confirms_the_clock_at_the_start_ends_what_is_over() {
    check(
        "
        advance 100
        write
        step 172800
        restart-on-server 172890
        now -> 172900
        ends 100 -> 172900
    ",
    );
}

#[test]
fn a_server_that_confirms_a_jump_of_the_clock_ends_the_doubt() {
    check(
        "
        advance 100
        restart-on-server 100
        step 28800
        now -> 100
        doubt -> 28800
        server 28900
        now -> 28900
    ",
    );
}
