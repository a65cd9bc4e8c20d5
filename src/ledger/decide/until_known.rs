//! Decide, read what the decision did not know, decide again.
//!
//! A decision looks at the state alone: it reads no log, compiles no schema and waits for nothing. If the state is not
//! sufficient, or if what the caller prepared is outdated, the decision changes nothing and says so; the caller reads
//! or prepares again.

use contract::{Error, Kind, Result};
use std::ops::ControlFlow;

/// How often a request is decided again before it is refused.
const TRIES_MAX: usize = 8;

/// Decides until there is an answer: `decide` breaks with it, or continues with what it knows now. Refused if that does
/// not end, because other requests keep changing what this one depends on.
pub(crate) async fn decide_until_known<S, A, F>(known: S, decide: impl Fn(S) -> F) -> Result<A>
where
    F: Future<Output = Result<ControlFlow<A, S>>>,
{
    match decide_while_unknown(known, decide).await? {
        ControlFlow::Break(answer) => Ok(answer),
        ControlFlow::Continue(_) => Err(changed_concurrently()),
    }
}

/// The same; if it does not end, the caller gets back what it knows.
pub(crate) async fn decide_while_unknown<S, A, F>(mut known: S, decide: impl Fn(S) -> F) -> Result<ControlFlow<A, S>>
where
    F: Future<Output = Result<ControlFlow<A, S>>>,
{
    for _ in 0..TRIES_MAX {
        match decide(known).await? {
            ControlFlow::Break(answer) => return Ok(ControlFlow::Break(answer)),
            ControlFlow::Continue(more) => known = more,
        }
    }
    Ok(ControlFlow::Continue(known))
}

/// Converts the result of a decision that returns no answer if it must be repeated.
pub(crate) fn answer_or_repeat<A>(answer: Option<A>) -> ControlFlow<A, ()> {
    answer.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// The refusal of a request whose preconditions keep changing.
pub(crate) fn changed_concurrently() -> Error {
    let detail = "What this request depends on, such as topics or types, keeps changing; try again.";
    Error::new(Kind::Overloaded, detail).with_retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_decision_is_repeated_until_it_has_an_answer_and_refused_in_the_end() {
        for (needed, expected) in [(1, Ok(1)), (8, Ok(8)), (9, Err(Kind::Overloaded))] {
            let decided = decide_until_known(1, async |tries| match tries == needed {
                true => Ok(ControlFlow::Break(tries)),
                false => Ok(ControlFlow::Continue(tries + 1)),
            });
            assert_eq!(decided.await.map_err(|error| error.kind()), expected, "{needed}");
        }
        let failed = decide_until_known((), async |()| Err::<ControlFlow<()>, _>(Error::not_found("event")));
        assert_eq!(failed.await.map_err(|error| error.kind()), Err(Kind::NotFound));
    }
}
