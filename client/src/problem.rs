//! Reading problem documents into errors.

use contract::{Error, Kind, Sequence, Violation};
use serde::Deserialize;
use uuid::Uuid;

/// RFC 9457, with the broker's own members.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProblemBody {
    #[serde(rename = "type")]
    problem_type: String,
    detail: Option<String>,
    errors: Vec<ProblemReason>,
    actual: Option<u64>,
    earliest: Option<Sequence>,
    event_id: Option<Uuid>,
    sequence: Option<Sequence>,
}

#[derive(Deserialize)]
struct ProblemReason {
    pointer: String,
    detail: String,
}

/// The error that a problem document describes.
pub(crate) fn read(status: u16, body: &[u8], retry_after: Option<u32>) -> Error {
    let problem: ProblemBody = serde_json::from_slice(body).unwrap_or_default();
    let code = problem.problem_type.rsplit('/').next().unwrap_or_default();
    let kind = Kind::ALL.iter().copied().find(|kind| kind.code() == code).unwrap_or_else(|| kind_of(status));
    let detail =
        problem.detail.unwrap_or_else(|| format!("The broker, or a proxy before it, responded with {status}."));
    let reasons = problem.errors.into_iter().map(|it| Violation::new(it.pointer, it.detail)).collect();
    let mut error = Error::new(kind, detail).with_violations(reasons);
    if let Some(actual) = problem.actual {
        error = error.with_actual(actual);
    }
    if let Some(earliest) = problem.earliest {
        error = error.with_earliest(earliest);
    }
    if let (Some(id), Some(sequence)) = (problem.event_id, problem.sequence) {
        error = error.with_stored(id, sequence);
    }
    match retry_after {
        Some(seconds) => error.with_retry_after(seconds),
        None => error,
    }
}

/// The kind of a status without a known code: the response of a proxy, or of a newer broker.
const fn kind_of(status: u16) -> Kind {
    match status {
        401 => Kind::Unauthenticated,
        403 => Kind::Forbidden,
        404 => Kind::NotFound,
        409 => Kind::InvalidState,
        413 => Kind::PayloadTooLarge,
        421 => Kind::Misdirected,
        422 => Kind::Validation,
        429 => Kind::Overloaded,
        400..=499 => Kind::Malformed,
        _ => Kind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_the_error_said() {
        let body = br#"{"type":"https://errors.hyperspot.com/EVENT_BROKER_PROJECTION_TIMEOUT","title":"t","status":504,
            "detail":"d","errors":[{"pointer":"/a","detail":"b"}],"actual":4,"earliest":7,
            "eventId":"550e8400-e29b-41d4-a716-446655440000","sequence":9}"#;
        let error = read(504, body, Some(3));
        assert_eq!((error.kind(), error.detail()), (Kind::ProjectionTimeout, "d"));
        assert_eq!(error.violations(), [Violation::new("/a", "b")]);
        assert_eq!((error.actual(), error.earliest()), (Some(4), Some(Sequence(7))));
        let id = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        assert_eq!((error.stored(), error.retry_after_seconds()), (Some((id, Sequence(9))), Some(3)));
    }

    #[test]
    fn an_answer_without_a_code_is_known_by_its_status() {
        for (status, kind) in [(429, Kind::Overloaded), (502, Kind::Unavailable), (404, Kind::NotFound)] {
            assert_eq!(read(status, b"<html>", None).kind(), kind, "{status}");
        }
    }
}
