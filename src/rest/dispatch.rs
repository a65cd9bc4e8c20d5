//! Dispatch as a whole: resuming it after a restore.

use super::App;
use super::asked::{Asked, NO_BODY};
use super::events::producer;
use super::once::once;
use super::problem::Answer;
use super::told::Told;
use axum::Router;
use axum::routing::post;
use contract::SubscriptionStatus;
use serde_json::json;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/server/dispatch:resume", post(once(NO_BODY, resume)))
}

/// `POST /v1/server/dispatch:resume`.
async fn resume(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let by = producer(asked.headers())?;
    let by = by.as_ref().map_or("unknown", |by| by.0.as_str());
    asked.app.broker.caught_up().await?;
    let writes = asked.writes();
    let resumed = |(): &()| Told::shown(&json!({"status": SubscriptionStatus::Active}));
    asked.tell(resumed, |keep| writes.resume_dispatch(by, keep)).await
}
