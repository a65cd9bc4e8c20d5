//! Claims: taking events to work on them, one or several at a time, and saying what came of it.

use super::App;
use super::asked::{Asked, Limits};
use super::body::{self, Limit};
use super::events::producer;
use super::once::once;
use super::problem::{Answer, Document, Problem};
use super::rows::{self, Wanted};
use super::told::{self, Told};
use super::verb;
use axum::Router;
use axum::routing::{get, post};
use contract::{
    Claim, ClaimCompletion, ClaimOutcome, Completion, Error, Failure, Kind, NewClaim, Profile, Result, Token, limits,
    under_profile,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// Claims and failures: a hundred of them, with long names.
const CLAIMS: Limits = |_, _| Limit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };
/// What was done, with as many events as a batch.
const DONE: Limits = |app, _| {
    let bytes = app.options.batch_bytes_max.max(limits::EVENT_BYTES_MAX) + 64 * 1024;
    Limit { bytes, too_large: Kind::PayloadTooLarge }
};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/claims", get(list).post(once(CLAIMS, take)))
        .route("/v1/claims:done", post(once(DONE, complete_several)))
        .route("/v1/claims/{id}", get(show).post(once(DONE, act)).fallback(verb::other_methods("GET, HEAD")))
}

/// Several things in one request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Several<T> {
    claims: Vec<T>,
}

/// Several things, if the body has any.
fn several<T: DeserializeOwned>(profile: Profile, bytes: &[u8]) -> Result<Option<Vec<T>>> {
    #[derive(Deserialize)]
    struct Any {
        claims: Option<IgnoredAny>,
    }
    if let Ok(Several { claims }) = under_profile(profile, || serde_json::from_slice(bytes)) {
        return Ok(Some(claims));
    }
    match serde_json::from_slice::<Any>(bytes) {
        Ok(Any { claims: Some(_) }) if !body::is_list(bytes) => {
            body::json::<Several<T>>(profile, bytes).map(|several| Some(several.claims))
        }
        _ => Ok(None),
    }
}

/// `POST /v1/claims`, of one event or of several.
async fn take(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?.sends_json()?;
    let body = asked.bytes().await?;
    let producer = producer(asked.headers())?;
    let profile = asked.app.profile();
    let Some(claims) = several::<NewClaim>(profile, &body)? else {
        let claim: NewClaim = body::json(profile, &body)?;
        return asked.tell(Told::shown, |keep| asked.writes().claim(claim, producer.as_ref(), keep)).await;
    };
    let told = |outcomes: &Vec<Result<ClaimOutcome>>| results(outcomes, Done::Outcome);
    asked.tell(told, |keep| asked.writes().claim_batch(claims, producer.as_ref(), keep)).await
}

async fn complete_several(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let Several::<ClaimCompletion> { claims } = asked.json().await?;
    let producer = producer(asked.headers())?;
    let told = |outcomes: &Vec<Result<Claim>>| results(outcomes, |claim| Done::Claim { claim });
    asked.tell(told, |keep| asked.writes().complete_claims(claims, producer.as_ref(), keep)).await
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["handler", "limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let missing = || Error::invalid("/handler", "is missing: say whose claims");
    let handler = asked.params.one("handler")?.ok_or_else(missing)?;
    let page = asked.app.events().open_claims(handler, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    let piece = asked.piece("id");
    if let (_, Some("heartbeat" | "done" | "fail" | "release")) = verb::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    rows::shown(&asked.app.events().open_claim(piece).await?)
}

/// What `:heartbeat` and `:release` take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    token: Token,
}

/// `POST /v1/claims/{id}:heartbeat`, `:done`, `:fail` and `:release`.
async fn act(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let piece = asked.piece("id").to_owned();
    let (id, verb) = verb::split(&piece);
    match verb {
        Some("heartbeat") => {
            let TokenBody { token } = asked.json().await?;
            asked.tell(Told::shown, |keep| asked.writes().heartbeat(id, token, keep)).await
        }
        Some("release") => {
            let TokenBody { token } = asked.json().await?;
            asked.tell(Told::shown, |keep| asked.writes().release_claim(id, token, keep)).await
        }
        Some("done") => {
            let completion: Completion = asked.json().await?;
            let producer = producer(asked.headers())?;
            let producer = producer.as_ref();
            asked.tell(Told::shown, |keep| asked.writes().complete_claim(id, completion, producer, keep)).await
        }
        Some("fail") => {
            let failure: Failure = asked.json().await?;
            asked.tell(Told::shown, |keep| asked.writes().fail_claim(id, failure, keep)).await
        }
        Some(_) => Err(verb::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

/// `{"results":[…]}`: what became of each, in the order they were sent.
#[derive(Serialize)]
struct Results<'a> {
    results: Vec<OneOf<'a>>,
}

#[derive(Serialize)]
struct OneOf<'a> {
    index: usize,
    status: u16,
    #[serde(flatten)]
    done: Done<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Done<'a> {
    Outcome(&'a ClaimOutcome),
    Claim { claim: &'a Claim },
    Refused { error: Document<'a> },
}

fn results<'a, T>(outcomes: &'a [Result<T>], done: impl Fn(&'a T) -> Done<'a>) -> Told {
    let answers: Vec<_> = outcomes.iter().map(|it| it.as_ref().map_err(|error| Problem::from(error.clone()))).collect();
    let results = answers.iter().enumerate().map(|(index, answer)| match answer {
        Ok(outcome) => OneOf { index, status: 200, done: done(outcome) },
        Err(problem) => {
            let error = problem.document(None, None);
            OneOf { index, status: problem.status().as_u16(), done: Done::Refused { error } }
        }
    });
    let told = Told::shown(&Results { results: results.collect() });
    // Where nothing came of any of them, and one may be told otherwise in a moment, all are.
    let is_passing = |problem: &Problem| !told::is_decision(problem.status());
    match answers.iter().all(Result::is_err) && answers.iter().filter_map(|it| it.as_ref().err()).any(is_passing) {
        true => told.not_kept(),
        false => told,
    }
}
