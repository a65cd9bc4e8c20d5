//! Claims: taking events to work on them, one or several at a time, and saying what came of it.

use super::AppState;
use super::body::{self, BodyLimit};
use super::custom_methods;
use super::events::producer;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem, ProblemDocument};
use super::reply::{self, Reply};
use super::request::{ApiRequest, BodyLimitFn};
use axum::Router;
use axum::routing::{get, post};
use contract::{
    Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, Completion, Error, FencingToken, IdentifierProfile, Kind,
    NewClaim, Result, limits, under_profile,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// Claims and failures: a hundred of them, with long names.
const CLAIMS: BodyLimitFn = |_, _| BodyLimit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };
/// What was done, with as many events as a batch.
const DONE: BodyLimitFn = |app, _| {
    let bytes = app.options.batch_bytes_max.max(limits::EVENT_BYTES_MAX) + 64 * 1024;
    BodyLimit { bytes, too_large: Kind::PayloadTooLarge }
};

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/claims", get(list).post(idempotent(CLAIMS, create_claims)))
        .route("/v1/claims:done", post(idempotent(DONE, complete_batch)))
        .route(
            "/v1/claims/{id}",
            get(show).post(idempotent(DONE, custom_method)).fallback(custom_methods::other_methods("GET, HEAD")),
        )
}

/// Several things in one request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimBatch<T> {
    claims: Vec<T>,
}

/// Several things, if the body has any.
fn parse_claim_batch<T: DeserializeOwned>(profile: IdentifierProfile, bytes: &[u8]) -> Result<Option<Vec<T>>> {
    #[derive(Deserialize)]
    struct ClaimsMember {
        claims: Option<IgnoredAny>,
    }
    if let Ok(ClaimBatch { claims }) = under_profile(profile, || serde_json::from_slice(bytes)) {
        return Ok(Some(claims));
    }
    match serde_json::from_slice::<ClaimsMember>(bytes) {
        Ok(ClaimsMember { claims: Some(_) }) if !body::is_list(bytes) => {
            body::json::<ClaimBatch<T>>(profile, bytes).map(|several| Some(several.claims))
        }
        _ => Ok(None),
    }
}

/// `POST /v1/claims`, of one event or of several.
async fn create_claims(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?.check_sends_json()?;
    let body = asked.bytes().await?;
    let producer = producer(asked.headers())?;
    let profile = asked.app.profile();
    let Some(claims) = parse_claim_batch::<NewClaim>(profile, &body)? else {
        let claim: NewClaim = body::json(profile, &body)?;
        return asked.respond_with(Reply::ok, |keep| asked.writes().claim(claim, producer.as_ref(), keep)).await;
    };
    let told = |outcomes: &Vec<Result<ClaimOutcome>>| results_reply(outcomes, ClaimResultBody::Outcome);
    asked.respond_with(told, |keep| asked.writes().claim_batch(claims, producer.as_ref(), keep)).await
}

async fn complete_batch(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let ClaimBatch::<ClaimCompletion> { claims } = asked.json().await?;
    let producer = producer(asked.headers())?;
    let told = |outcomes: &Vec<Result<Claim>>| results_reply(outcomes, |claim| ClaimResultBody::Claim { claim });
    asked.respond_with(told, |keep| asked.writes().complete_claims(claims, producer.as_ref(), keep)).await
}

async fn list(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["handler", "limit", "cursor"])?.check_accepts_json()?;
    let wanted = PageQuery::of(&asked)?;
    let missing = || Error::invalid("/handler", "is missing: say whose claims");
    let handler = asked.params.one("handler")?.ok_or_else(missing)?;
    let page = asked.app.events().open_claims(handler, wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
}

async fn show(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    let piece = asked.path_param("id");
    if let (_, Some("heartbeat" | "done" | "fail" | "release")) = custom_methods::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    pages::json_response(&asked.app.events().open_claim(piece).await?)
}

/// What `:heartbeat` and `:release` take.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTokenBody {
    token: FencingToken,
}

/// `POST /v1/claims/{id}:heartbeat`, `:done`, `:fail` and `:release`.
async fn custom_method(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let piece = asked.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    match verb {
        Some("heartbeat") => {
            let ClaimTokenBody { token } = asked.json().await?;
            asked.respond_with(Reply::ok, |keep| asked.writes().heartbeat(id, token, keep)).await
        }
        Some("release") => {
            let ClaimTokenBody { token } = asked.json().await?;
            asked.respond_with(Reply::ok, |keep| asked.writes().release_claim(id, token, keep)).await
        }
        Some("done") => {
            let completion: Completion = asked.json().await?;
            let producer = producer(asked.headers())?;
            let producer = producer.as_ref();
            asked.respond_with(Reply::ok, |keep| asked.writes().complete_claim(id, completion, producer, keep)).await
        }
        Some("fail") => {
            let failure: ClaimFailure = asked.json().await?;
            asked.respond_with(Reply::ok, |keep| asked.writes().fail_claim(id, failure, keep)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

/// `{"results":[…]}`: what became of each, in the order they were sent.
#[derive(Serialize)]
struct ClaimResults<'a> {
    results: Vec<ClaimResultItem<'a>>,
}

#[derive(Serialize)]
struct ClaimResultItem<'a> {
    index: usize,
    status: u16,
    #[serde(flatten)]
    done: ClaimResultBody<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ClaimResultBody<'a> {
    Outcome(&'a ClaimOutcome),
    Claim { claim: &'a Claim },
    Refused { error: ProblemDocument<'a> },
}

fn results_reply<'a, T>(outcomes: &'a [Result<T>], done: impl Fn(&'a T) -> ClaimResultBody<'a>) -> Reply {
    let answers: Vec<_> = outcomes.iter().map(|it| it.as_ref().map_err(|error| Problem::from(error.clone()))).collect();
    let results = answers.iter().enumerate().map(|(index, answer)| match answer {
        Ok(outcome) => ClaimResultItem { index, status: 200, done: done(outcome) },
        Err(problem) => {
            let error = problem.document(None, None);
            ClaimResultItem { index, status: problem.status().as_u16(), done: ClaimResultBody::Refused { error } }
        }
    });
    let told = Reply::ok(&ClaimResults { results: results.collect() });
    // Where nothing came of any of them, and one may be told otherwise in a moment, all are.
    let is_passing = |problem: &Problem| !reply::is_final(problem.status());
    match answers.iter().all(Result::is_err) && answers.iter().filter_map(|it| it.as_ref().err()).any(is_passing) {
        true => told.without_storing(),
        false => told,
    }
}
