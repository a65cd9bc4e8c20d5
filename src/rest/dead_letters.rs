//! Dead letters: finding what was given up, trying it again, letting it be; one or many at a time.

use super::AppState;
use super::body::BodyLimit;
use super::custom_methods;
use super::events::producer;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn};
use axum::Router;
use axum::routing::{get, post};
use contract::{BulkResolveRequest, DeadLetterFilter, DeadLetterSource, Error, Kind, RedriveRequest, Result, limits};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// An order, with the payload of an event.
const ORDER: BodyLimitFn =
    |_, _| BodyLimit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/dead-letters", get(list))
        .route("/v1/dead-letters:redrive", post(idempotent(ORDER, redrive_all)))
        .route("/v1/dead-letters:discard", post(idempotent(ORDER, discard_all)))
        .route("/v1/dead-letters/summary", get(summary))
        .route(
            "/v1/dead-letters/{id}",
            get(show).post(idempotent(ORDER, custom_method)).fallback(custom_methods::other_methods("GET, HEAD")),
        )
}

async fn list(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["source", "name", "topic", "status", "limit", "cursor"])?.check_accepts_json()?;
    let (wanted, params) = (PageQuery::of(&asked)?, &asked.params);
    let filter = DeadLetterFilter {
        source: params.one("source")?.map(source).transpose()?,
        name: params.one("name")?.map(str::to_owned),
        topic: params.identifier("topic")?,
        resolved_too: match params.one("status")? {
            None | Some("open") => false,
            Some("all") => true,
            Some(_) => return Err(Error::invalid("/status", "must be `open` or `all`").into()),
        },
    };
    let page = asked.app.events().dead_letters(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
}

fn source(text: &str) -> Result<DeadLetterSource> {
    match text {
        "handler" => Ok(DeadLetterSource::Handler),
        "subscription" => Ok(DeadLetterSource::Subscription),
        _ => Err(Error::invalid("/source", "must be `handler` or `subscription`")),
    }
}

async fn summary(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&asked.app.events().dead_letter_summary().await?)
}

async fn show(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    let piece = asked.path_param("id");
    if let (_, Some("redrive" | "discard")) = custom_methods::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    pages::json_response(&asked.app.events().dead_letter(id_of(piece)?).await?)
}

/// `{reason}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiscardBody {
    #[serde(default)]
    reason: String,
}

/// `POST /v1/dead-letters/{id}:redrive` and `:discard`.
async fn custom_method(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let piece = asked.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    let by = producer(asked.headers());
    match verb {
        Some("redrive") => {
            let (id, redrive): (_, RedriveRequest) = (id_of(id)?, optional_body(&mut asked).await?);
            let by = by?;
            asked.respond_with(Reply::ok, |keep| asked.writes().redrive(id, redrive, by.as_ref(), keep)).await
        }
        Some("discard") => {
            let (id, DiscardBody { reason }) = (id_of(id)?, optional_body(&mut asked).await?);
            let by = by?;
            asked.respond_with(Reply::ok, |keep| asked.writes().discard(id, reason, by.as_ref(), keep)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

async fn redrive_all(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let order: BulkResolveRequest = optional_body(&mut asked).await?;
    let by = producer(asked.headers())?;
    asked.respond_with(Reply::ok, |keep| asked.writes().redrive_all(order, by.as_ref(), keep)).await
}

async fn discard_all(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let order: BulkResolveRequest = optional_body(&mut asked).await?;
    let by = producer(asked.headers())?;
    asked.respond_with(Reply::ok, |keep| asked.writes().discard_all(order, by.as_ref(), keep)).await
}

/// What an order says; one without a body says nothing.
async fn optional_body<T: Default + DeserializeOwned>(asked: &mut ApiRequest) -> HandlerResult<T> {
    if asked.bytes().await?.is_empty() { Ok(T::default()) } else { asked.json().await }
}

fn id_of(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("dead letter"))
}
