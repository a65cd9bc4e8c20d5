//! The language of the tables itself: what makes a line fail.

use super::check_result;
use super::definitions::describe;
use contract::{Error, Kind};
use std::panic::catch_unwind;

#[test]
fn a_line_without_an_expectation_fails_whatever_the_refusal_is() {
    for kind in Kind::ALL {
        let refused = || Err(Error::new(*kind, "No."));
        assert!(check_result(refused(), None).is_err(), "{kind:?}");
        assert!(check_result(refused(), Some("")).is_err(), "{kind:?}");
        assert!(check_result(refused(), Some("PENDING tried 1")).is_err(), "{kind:?}");
        let expected = describe(&Error::new(*kind, "No."));
        assert_eq!(check_result(refused(), Some(&expected)), Ok(()), "{kind:?}");
        assert!(check_result(Ok("mail/1:200".to_owned()), Some(&expected)).is_err(), "{kind:?}");
    }
    assert_eq!(check_result(Ok("mail/1:200".to_owned()), None), Ok(()));
    assert_eq!(check_result(Ok(" mail/1:200 ".to_owned()), Some("mail/1:200")), Ok(()));
    assert!(check_result(Ok("mail/1:200".to_owned()), Some("mail/1:500")).is_err());
}

/// Refusals of one word once passed as results.
#[test]
fn a_table_fails_at_a_step_that_was_refused() {
    for (table, code) in [
        ("subscribe mail\n pause nobody", "NOT_FOUND"),
        ("subscribe mail\n publish a\n key other\n rotate mail", "UNAVAILABLE"),
        ("subscribe mail attempts=1\n answer mail/1 500\n publish a\n run\n trim 1\n redrive mail/1", "TRIMMED"),
    ] {
        // The table itself is right: with the expectation it passes.
        super::check(&format!("{table} -> {code}"));
        assert!(catch_unwind(|| super::check(table)).is_err(), "{table}");
    }
}
