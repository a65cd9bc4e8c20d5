//! Dead letters: finding what was given up, trying it again, letting it be; one or many at a time.

use super::App;
use super::body::{self, Held, Limit};
use super::events::producer;
use super::negotiate;
use super::params::Params;
use super::problem::Answer;
use super::rows::{self, Wanted};
use super::verb;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use contract::{Error, Kind, LetterFilter, LetterOrder, LetterSource, Redrive, Result, TopicId, limits};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

/// An order, with the payload of an event.
const ORDER: Limit = Limit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/dead-letters", get(list))
        .route("/v1/dead-letters:redrive", post(redrive_all))
        .route("/v1/dead-letters:discard", post(discard_all))
        .route("/v1/dead-letters/summary", get(summary))
        .route("/v1/dead-letters/{id}", get(show).post(act).fallback(verb::other_methods("GET, HEAD")))
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["source", "name", "topic", "status", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let filter = LetterFilter {
        source: params.one("source")?.map(source).transpose()?,
        name: params.one("name")?.map(str::to_owned),
        topic: params.one("topic")?.map(TopicId::parse).transpose()?,
        resolved_too: match params.one("status")? {
            None | Some("open") => false,
            Some("all") => true,
            Some(_) => return Err(Error::invalid("/status", "must be `open` or `all`").into()),
        },
    };
    let page = app.events().dead_letters(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

fn source(text: &str) -> Result<LetterSource> {
    match text {
        "handler" => Ok(LetterSource::Handler),
        "subscription" => Ok(LetterSource::Subscription),
        _ => Err(Error::invalid("/source", "must be `handler` or `subscription`")),
    }
}

async fn summary(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    rows::shown(&app.events().dead_letter_summary().await?)
}

async fn show(State(app): State<App>, Path(piece): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    if let (_, Some("redrive" | "discard")) = verb::split(&piece) {
        return Ok(verb::not_allowed("POST"));
    }
    rows::shown(&app.events().dead_letter(id_of(&piece)?).await?)
}

/// `POST /v1/dead-letters/{id}:redrive` and `:discard`.
async fn act(
    State(app): State<App>,
    Path(piece): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    let (id, verb) = verb::split(&piece);
    let letter = match verb {
        Some("redrive") => {
            let (id, held) = (id_of(id)?, order(&app, &headers, body).await?);
            let redrive: Redrive = if_any(&held)?;
            app.events().redrive(id, redrive, producer(&headers)?.as_ref()).await?
        }
        Some("discard") => {
            let (id, held) = (id_of(id)?, order(&app, &headers, body).await?);
            app.events().discard(id, reason(&held)?, producer(&headers)?.as_ref()).await?
        }
        Some(_) => return Err(verb::unknown()),
        None => return Ok(verb::not_allowed("GET, HEAD")),
    };
    rows::shown(&letter)
}

async fn redrive_all(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    let held = order(&app, &headers, body).await?;
    let order: LetterOrder = if_any(&held)?;
    let count = app.events().redrive_all(order, producer(&headers)?.as_ref()).await?;
    rows::shown(&json!({"count": count}))
}

async fn discard_all(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    let held = order(&app, &headers, body).await?;
    let order: LetterOrder = if_any(&held)?;
    let count = app.events().discard_all(order, producer(&headers)?.as_ref()).await?;
    rows::shown(&json!({"count": count}))
}

async fn order(app: &App, headers: &HeaderMap, body: Body) -> Answer<Held> {
    let held = body::take(app, headers, body, ORDER).await?;
    if !held.bytes.is_empty() {
        negotiate::expect_json(headers)?;
    }
    Ok(held)
}

/// What an order says; one without a body says nothing.
fn if_any<T: Default + serde::de::DeserializeOwned>(held: &Held) -> Result<T> {
    if held.bytes.is_empty() { Ok(T::default()) } else { body::json(&held.bytes) }
}

/// `{reason}`.
fn reason(held: &Held) -> Result<String> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Discard {
        #[serde(default)]
        reason: String,
    }
    let Discard { reason } = if_any(held)?;
    Ok(reason)
}

fn id_of(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("dead letter"))
}
