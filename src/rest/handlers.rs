//! Handlers: how their work is to be tried, and how they stand.

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

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A handler's body.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/handlers", get(list))
        .route("/v1/handlers/{name}", get(show).put(idempotent(DEFINITION, put)).delete(idempotent(NO_BODY, remove)))
}

async fn list(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let wanted = PageQuery::of(&asked)?;
    let page = asked.app.events().handlers(wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
}

async fn show(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&asked.app.events().handler(asked.path_param("name")).await?)
}

async fn remove(asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    asked.respond_with(Reply::no_content, |keep| asked.writes().delete_handler(asked.path_param("name"), keep)).await
}

async fn put(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let handler: NewHandler = asked.json().await?;
    asked
        .respond_with(registered_reply, |keep| asked.writes().put_handler(asked.path_param("name"), handler, keep))
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
