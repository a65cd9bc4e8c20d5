//! Handlers: how their work is to be tried, and how they stand.

use super::App;
use super::body::{self, Limit};
use super::negotiate;
use super::params::Params;
use super::problem::Answer;
use super::rows::{self, Wanted};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use contract::{Kind, NewHandler, Registered};
use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A handler's body.
const DEFINITION: Limit = Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/handlers", get(list)).route("/v1/handlers/{name}", get(show).put(put))
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let page = app.events().handlers(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(State(app): State<App>, Path(name): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    rows::shown(&app.events().handler(&name).await?)
}

async fn put(
    State(app): State<App>,
    Path(name): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let handler: NewHandler = body::json(&held.bytes)?;
    match app.events().put_handler(&name, handler).await? {
        Registered::Created(made) => {
            let location = format!("/v1/handlers/{}", utf8_percent_encode(&made.name, ESCAPED));
            Ok(rows::made(&made, &location))
        }
        Registered::Unchanged(known) => rows::shown(&known),
    }
}
