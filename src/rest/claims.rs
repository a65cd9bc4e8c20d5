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
/// A completion, with as many events as a batch.
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

/// Several claims in one request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimBatch<T> {
    claims: Vec<T>,
}

/// The claims of a batch; `None` if the body is a single claim.
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

/// `POST /v1/claims`, for one event or several.
async fn create_claims(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?.check_sends_json()?;
    let body = request.bytes().await?;
    let producer = producer(request.headers())?;
    let profile = request.app.profile();
    let Some(claims) = parse_claim_batch::<NewClaim>(profile, &body)? else {
        let claim: NewClaim = body::json(profile, &body)?;
        return request
            .respond_with(Reply::ok, |recorder| request.writes().claim(claim, producer.as_ref(), recorder))
            .await;
    };
    let reply = |outcomes: &Vec<Result<ClaimOutcome>>| results_reply(outcomes, ClaimResultBody::Outcome);
    request.respond_with(reply, |recorder| request.writes().claim_batch(claims, producer.as_ref(), recorder)).await
}

async fn complete_batch(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let ClaimBatch::<ClaimCompletion> { claims } = request.json().await?;
    let producer = producer(request.headers())?;
    let reply = |outcomes: &Vec<Result<Claim>>| results_reply(outcomes, |claim| ClaimResultBody::Claim { claim });
    request.respond_with(reply, |recorder| request.writes().complete_claims(claims, producer.as_ref(), recorder)).await
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["handler", "limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let missing = || Error::invalid("/handler", "is missing: name the handler");
    let handler = request.params.one("handler")?.ok_or_else(missing)?;
    let page = request.app.events().open_claims(handler, query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    let piece = request.path_param("id");
    if let (_, Some("heartbeat" | "done" | "fail" | "release")) = custom_methods::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    pages::json_response(&request.app.events().open_claim(piece).await?)
}

/// The body of `:heartbeat` and `:release`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTokenBody {
    token: FencingToken,
}

/// `POST /v1/claims/{id}:heartbeat`, `:done`, `:fail` and `:release`.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let piece = request.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    match verb {
        Some("heartbeat") => {
            let ClaimTokenBody { token } = request.json().await?;
            request.respond_with(Reply::ok, |recorder| request.writes().heartbeat(id, token, recorder)).await
        }
        Some("release") => {
            let ClaimTokenBody { token } = request.json().await?;
            request.respond_with(Reply::ok, |recorder| request.writes().release_claim(id, token, recorder)).await
        }
        Some("done") => {
            let completion: Completion = request.json().await?;
            let producer = producer(request.headers())?;
            let producer = producer.as_ref();
            request
                .respond_with(Reply::ok, |recorder| request.writes().complete_claim(id, completion, producer, recorder))
                .await
        }
        Some("fail") => {
            let failure: ClaimFailure = request.json().await?;
            request.respond_with(Reply::ok, |recorder| request.writes().fail_claim(id, failure, recorder)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

/// `{"results":[…]}`: the result of each, in the order of the request.
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
    let reply = Reply::ok(&ClaimResults { results: results.collect() });
    // If all of them failed, and one of the errors is temporary, the request is executed again when it is retried.
    let is_temporary = |problem: &Problem| !reply::is_final(problem.status());
    match answers.iter().all(Result::is_err) && answers.iter().filter_map(|it| it.as_ref().err()).any(is_temporary) {
        true => reply.without_storing(),
        false => reply,
    }
}
