//! Dispatch as a whole: resuming it after a restore.

use super::AppState;
use super::events::producer;
use super::idempotency::idempotent;
use super::problem::HandlerResult;
use super::reply::Reply;
use super::request::{ApiRequest, NO_BODY};
use axum::Router;
use axum::routing::post;
use contract::SubscriptionStatus;
use serde_json::json;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/server/dispatch:resume", post(idempotent(NO_BODY, resume)))
}

/// `POST /v1/server/dispatch:resume`.
async fn resume(asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let by = producer(asked.headers())?;
    let by = by.as_ref().map_or("unknown", |by| by.0.as_str());
    asked.app.broker.refresh().await?;
    let writes = asked.writes();
    let resumed = |(): &()| Reply::ok(&json!({"status": SubscriptionStatus::Active}));
    asked.respond_with(resumed, |keep| writes.resume_dispatch(by, keep)).await
}
