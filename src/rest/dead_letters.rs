//! Dead letters: listing, redriving and discarding them, one or many at a time.

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

/// A redrive, with the payload of a corrected event.
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

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["source", "name", "topic", "status", "limit", "cursor"])?.check_accepts_json()?;
    let (wanted, params) = (PageQuery::of(&request)?, &request.params);
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
    let page = request.app.events().dead_letters(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
}

fn source(text: &str) -> Result<DeadLetterSource> {
    match text {
        "handler" => Ok(DeadLetterSource::Handler),
        "subscription" => Ok(DeadLetterSource::Subscription),
        _ => Err(Error::invalid("/source", "must be `handler` or `subscription`")),
    }
}

async fn summary(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().dead_letter_summary().await?)
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    let piece = request.path_param("id");
    if let (_, Some("redrive" | "discard")) = custom_methods::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    pages::json_response(&request.app.events().dead_letter(id_of(piece)?).await?)
}

/// `{reason}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiscardBody {
    #[serde(default)]
    reason: String,
}

/// `POST /v1/dead-letters/{id}:redrive` and `:discard`.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let piece = request.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    let by = producer(request.headers());
    match verb {
        Some("redrive") => {
            let (id, redrive): (_, RedriveRequest) = (id_of(id)?, optional_body(&mut request).await?);
            let by = by?;
            request
                .respond_with(Reply::ok, |recorder| request.writes().redrive(id, redrive, by.as_ref(), recorder))
                .await
        }
        Some("discard") => {
            let (id, DiscardBody { reason }) = (id_of(id)?, optional_body(&mut request).await?);
            let by = by?;
            request
                .respond_with(Reply::ok, |recorder| request.writes().discard(id, reason, by.as_ref(), recorder))
                .await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

async fn redrive_all(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let order: BulkResolveRequest = optional_body(&mut request).await?;
    let by = producer(request.headers())?;
    request.respond_with(Reply::ok, |recorder| request.writes().redrive_all(order, by.as_ref(), recorder)).await
}

async fn discard_all(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let order: BulkResolveRequest = optional_body(&mut request).await?;
    let by = producer(request.headers())?;
    request.respond_with(Reply::ok, |recorder| request.writes().discard_all(order, by.as_ref(), recorder)).await
}

/// The body of a request; the default if there is none.
async fn optional_body<T: Default + DeserializeOwned>(request: &mut ApiRequest) -> HandlerResult<T> {
    if request.bytes().await?.is_empty() { Ok(T::default()) } else { request.json().await }
}

fn id_of(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("dead letter"))
}
