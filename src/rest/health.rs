//! Health: whether the process lives, and whether it can be asked for work.

use super::App;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use contract::{Error, Kind};
use serde_json::json;

use super::problem::Problem;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/", get(|| async { Redirect::to("/docs/") }))
}

async fn alive() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// Ready while every log can be written and the server is not on its way out. What an operator should look at all the same
/// stands in `degraded`.
async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    if let Some(failure) = app.broker.failures().into_iter().next() {
        let detail = format!("The log {} keeps no promises any more: {}", failure.log, failure.error.detail());
        return Err(Error::new(Kind::Unavailable, detail).with_source(failure.error).into());
    }
    if app.is_draining() {
        return Err(Error::new(Kind::Unavailable, "The server is shutting down.").into());
    }
    let degraded = app.broker.degradations();
    Ok(match degraded.is_empty() {
        true => Json(json!({"status": "ready"})).into_response(),
        false => Json(json!({"status": "ready", "degraded": degraded})).into_response(),
    })
}
