//! Handlers: their policies of retrying, and their progress.

use super::AppState;
use super::body::BodyLimit;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::HandlerResult;
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use axum::Router;
use axum::routing::get;
use contract::{Handler, Kind, NewHandler, RegisterOutcome};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are percent-encoded in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The body of a definition.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/handlers", get(list))
        .route("/v1/handlers/{name}", get(show).put(idempotent(DEFINITION, put)).delete(idempotent(NO_BODY, remove)))
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let page = request.app.events().handlers(query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().handler(request.path_param("name")).await?)
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    request
        .respond_with(Reply::no_content, |recorder| {
            request.writes().delete_handler(request.path_param("name"), recorder)
        })
        .await
}

async fn put(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let handler: NewHandler = request.json().await?;
    request
        .respond_with(registered_reply, |recorder| {
            request.writes().put_handler(request.path_param("name"), handler, recorder)
        })
        .await
}

fn registered_reply(registered: &RegisterOutcome<Handler>) -> Reply {
    match registered {
        RegisterOutcome::Created(made) => {
            let location = format!("/v1/handlers/{}", utf8_percent_encode(&made.name, ESCAPED));
            Reply::created(made, &location)
        }
        RegisterOutcome::Unchanged(known) => Reply::ok(known),
    }
}
