//! Claims: taking events to work on them, one or several at a time, and saying what came of it.

use super::App;
use super::body::{self, Held, Limit};
use super::events::producer;
use super::negotiate;
use super::params::Params;
use super::problem::{Answer, Document, Problem};
use super::rows::{self, Wanted};
use super::verb;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use contract::{
    Claim, ClaimCompletion, ClaimOutcome, Completion, Error, Failure, Kind, NewClaim, Result, Token, limits,
};
use http::HeaderMap;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// Claims and failures: a hundred of them, with long names.
const CLAIMS: Limit = Limit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/claims", get(list).post(take))
        .route("/v1/claims:done", post(complete_several))
        .route("/v1/claims/{id}", get(show).post(act).fallback(verb::other_methods("GET, HEAD")))
}

/// Several things in one request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Several<T> {
    claims: Vec<T>,
}

/// Several things, if the body has any.
fn several<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<Vec<T>>> {
    #[derive(Deserialize)]
    struct Any {
        claims: Option<IgnoredAny>,
    }
    if let Ok(Several { claims }) = serde_json::from_slice(bytes) {
        return Ok(Some(claims));
    }
    match serde_json::from_slice::<Any>(bytes) {
        Ok(Any { claims: Some(_) }) if !body::is_list(bytes) => {
            body::json::<Several<T>>(bytes).map(|several| Some(several.claims))
        }
        _ => Ok(None),
    }
}

/// `POST /v1/claims`, of one event or of several.
async fn take(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, CLAIMS).await?;
    let producer = producer(&headers)?;
    let Some(claims) = several::<NewClaim>(&held.bytes)? else {
        let claim: NewClaim = body::json(&held.bytes)?;
        return rows::shown(&app.events().claim(claim, producer.as_ref()).await?);
    };
    let outcomes = app.events().claim_batch(claims, producer.as_ref()).await?;
    results(&outcomes, |outcome: &ClaimOutcome| Done::Outcome(outcome))
}

async fn complete_several(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    let held = with_events(&app, &headers, body).await?;
    let Several::<ClaimCompletion> { claims } = body::json(&held.bytes)?;
    let producer = producer(&headers)?;
    let outcomes = app.events().complete_claims(claims, producer.as_ref()).await?;
    results(&outcomes, |claim: &Claim| Done::Claim { claim })
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["handler", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let missing = || Error::invalid("/handler", "is missing: say whose claims");
    let handler = params.one("handler")?.ok_or_else(missing)?;
    let page = app.events().open_claims(handler, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(State(app): State<App>, Path(piece): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    if let (_, Some("heartbeat" | "done" | "fail")) = verb::split(&piece) {
        return Ok(verb::not_allowed("POST"));
    }
    rows::shown(&app.events().open_claim(&piece).await?)
}

/// `POST /v1/claims/{id}:heartbeat`, `:done` and `:fail`.
async fn act(
    State(app): State<App>,
    Path(piece): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    let (id, verb) = verb::split(&piece);
    let claim = match verb {
        Some("heartbeat") => app.events().heartbeat(id, token(&app, &headers, body).await?).await?,
        Some("done") => complete(&app, id, &headers, body).await?,
        Some("fail") => fail(&app, id, &headers, body).await?,
        Some(_) => return Err(verb::unknown()),
        None => return Ok(verb::not_allowed("GET, HEAD")),
    };
    rows::shown(&claim)
}

async fn token(app: &App, headers: &HeaderMap, body: Body) -> Answer<Token> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Heartbeat {
        token: Token,
    }
    negotiate::expect_json(headers)?;
    let held = body::take(app, headers, body, CLAIMS).await?;
    let Heartbeat { token } = body::json(&held.bytes)?;
    Ok(token)
}

async fn complete(app: &App, id: &str, headers: &HeaderMap, body: Body) -> Answer<Claim> {
    let held = with_events(app, headers, body).await?;
    let completion: Completion = body::json(&held.bytes)?;
    let producer = producer(headers)?;
    Ok(app.events().complete_claim(id, completion, producer.as_ref()).await?)
}

async fn fail(app: &App, id: &str, headers: &HeaderMap, body: Body) -> Answer<Claim> {
    negotiate::expect_json(headers)?;
    let held = body::take(app, headers, body, CLAIMS).await?;
    let failure: Failure = body::json(&held.bytes)?;
    Ok(app.events().fail_claim(id, failure).await?)
}

/// A body that may hold as many events as a batch.
async fn with_events(app: &App, headers: &HeaderMap, body: Body) -> Answer<Held> {
    negotiate::expect_json(headers)?;
    let bytes = app.options.batch_bytes_max.max(limits::EVENT_BYTES_MAX) + 64 * 1024;
    body::take(app, headers, body, Limit { bytes, too_large: Kind::PayloadTooLarge }).await
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

fn results<'a, T>(outcomes: &'a [Result<T>], done: impl Fn(&'a T) -> Done<'a>) -> Answer {
    let answers: Vec<_> = outcomes.iter().map(|it| it.as_ref().map_err(|error| Problem::from(error.clone()))).collect();
    let results = answers.iter().enumerate().map(|(index, answer)| match answer {
        Ok(outcome) => OneOf { index, status: 200, done: done(outcome) },
        Err(problem) => {
            let error = problem.document(None, None);
            OneOf { index, status: problem.status().as_u16(), done: Done::Refused { error } }
        }
    });
    rows::shown(&Results { results: results.collect() })
}
