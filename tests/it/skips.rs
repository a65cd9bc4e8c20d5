//! Tests that this machine cannot run: each says so in the output of the whole run.

use std::io::{Write, stderr};
use std::process::Command;

/// Says that a test was not run, and why: one line that begins with `SKIPPED`, which `scripts/test` repeats at its end.
///
/// It is written to standard error, since the harness captures what a passing test prints. It begins with a new line: with
/// one thread the harness has written `test name ... ` by then.
pub(crate) fn report_skip(test: &str, why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = stderr().write_all(format!("\nSKIPPED {test}: {why}\n").as_bytes());
}

/// Set for the process in which the test below runs this one.
const IS_SKIPPED: &str = "EVENT_BROKER_TEST_IS_SKIPPED";

#[test]
fn a_skipped_test() {
    if std::env::var_os(IS_SKIPPED).is_some() {
        report_skip("a_skipped_test", "the reason\nin two lines");
    }
}

/// On a machine with one core the line did not begin with `SKIPPED`, and was not found.
#[test]
fn a_skipped_test_has_a_line_of_its_own_however_many_threads_run_tests() {
    for threads in ["1", "2"] {
        let output = tempfile::tempfile().unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "skips::a_skipped_test", "--test-threads", threads])
            .env(IS_SKIPPED, "1")
            .stdout(output.try_clone().unwrap())
            .stderr(output.try_clone().unwrap())
            .status();
        assert!(status.unwrap().success());
        let mut output = output;
        std::io::Seek::rewind(&mut output).unwrap();
        let written = std::io::read_to_string(output).unwrap();
        let lines: Vec<_> = written.lines().filter(|line| line.starts_with("SKIPPED")).collect();
        assert_eq!(lines, ["SKIPPED a_skipped_test: the reason in two lines"], "{threads} threads: {written}");
    }
}
