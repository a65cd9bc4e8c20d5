//! Health: whether a restart would help, and whether the server can take requests.
//!
//! - `/healthz` is for a process manager. It fails only if a new process may work better than this one: not while the broker
//!   reopens its log by itself, and not during an outage of a database.
//! - `/readyz` is for a load balancer. It fails while the server cannot take requests, and gives the reason. `degraded` is not
//!   a failure.

use super::ServerState;
use super::problem::Problem;
use super::tls::ServerTls;
use crate::broker::{Broker, BrokerOutage, SlotState};
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Json, Router};
use contract::{Error, Kind};
use serde_json::json;
use std::sync::Arc;

pub(super) fn routes(server: &Arc<ServerState>) -> Router {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/", get(|| async { Redirect::to("/docs/") }))
        .with_state(Arc::clone(server))
}

/// `ok` as long as a restart would not help.
async fn alive(State(common): State<Arc<ServerState>>) -> Result<Response, Problem> {
    match common.slot().state() {
        SlotState::Closed(BrokerOutage { error, restart_helps: true }) => Err(error.into()),
        SlotState::Open(broker) if !common.slot().is_supervised() => match broker.incident() {
            Some(incident) => Err(incident.into()),
            None => Ok(Json(json!({"status": "ok"})).into_response()),
        },
        _ => Ok(Json(json!({"status": "ok"})).into_response()),
    }
}

/// Ready while every log can be written and the server is not shutting down. `degraded` lists what an operator should check
/// anyway.
async fn ready(State(common): State<Arc<ServerState>>) -> Result<Response, Problem> {
    if common.is_draining() {
        return Err(Error::new(Kind::Unavailable, "The server is shutting down.").into());
    }
    match common.slot().state() {
        SlotState::Closed(outage) => Err(outage.error.into()),
        SlotState::Open(broker) => ready_broker(&broker, common.options.tls.as_deref()),
    }
}

fn ready_broker(broker: &Broker, tls: Option<&ServerTls>) -> Result<Response, Problem> {
    if let Some(failure) = broker.failures().into_iter().next() {
        let detail = format!("The log {} cannot be written: {}", failure.log, failure.error.detail());
        let retry_after = failure.error.retry_after_seconds().unwrap_or(5);
        let error = Error::new(Kind::Unavailable, detail).with_source(failure.error).with_retry_after(retry_after);
        return Err(error.into());
    }
    if let Some(incident) = broker.incident() {
        return Err(incident.into());
    }
    let mut degraded = broker.degradations();
    degraded.extend(tls.into_iter().flat_map(ServerTls::degradations));
    Ok(match degraded.is_empty() {
        true => Json(json!({"status": "ready"})).into_response(),
        false => Json(json!({"status": "ready", "degraded": degraded})).into_response(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::BrokerSlot;
    use crate::config::Config;
    use crate::rest::HttpOptions;
    use http::StatusCode;

    async fn health_of(common: &Arc<ServerState>) -> [(StatusCode, String); 2] {
        let result = |outcome: Result<Response, Problem>| match outcome {
            Ok(response) => (response.status(), String::new()),
            Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem.error().detail().to_owned()),
        };
        [result(alive(State(Arc::clone(common))).await), result(ready(State(Arc::clone(common))).await)]
    }

    #[tokio::test]
    async fn healthz_fails_only_if_a_restart_may_help_and_readyz_gives_the_reason() {
        let broker = Arc::new(Broker::open(Config::default()).await.unwrap());
        let slot = Arc::new(BrokerSlot::new(broker));
        let common = ServerState::new(Arc::clone(&slot), HttpOptions::default(), None);
        assert!(health_of(&common).await.iter().all(|(status, _)| status.is_success()));
        for (restart_helps, alive) in [(false, StatusCode::OK), (true, StatusCode::SERVICE_UNAVAILABLE)] {
            let error = Error::new(Kind::Unavailable, "The disk is full.");
            slot.close(BrokerOutage { error, restart_helps });
            let [health, readiness] = health_of(&common).await;
            assert_eq!(health.0, alive);
            assert_eq!(readiness, (StatusCode::SERVICE_UNAVAILABLE, "The disk is full.".to_owned()));
        }
    }
}
