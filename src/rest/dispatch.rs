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
async fn resume(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let by = producer(request.headers())?;
    let resumed = |(): &()| Reply::ok(&json!({"status": SubscriptionStatus::Active}));
    request.respond_with(resumed, |recorder| request.writes().resume_dispatch(by.as_ref(), recorder)).await
}
