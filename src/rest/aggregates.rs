//! Aggregates: the state of one, and its events in their own order.
//!
//! In a path, `-` is the subject type of events without one. It is not an identifier, so it is not ambiguous.

use super::AppState;
use super::negotiate::JSON;
use super::problem::HandlerResult;
use super::read::{ok_response, with_items};
use super::request::ApiRequest;
use super::response_budget;
use crate::memory::PAGE_ROOM_MIN;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use contract::{Aggregate, AggregateRead, AggregateSequence, Result};

/// The subject type of events without one.
const NO_SUBJECT_TYPE: &str = "-";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/aggregates/{subject_type}/{subject}", get(show))
        .route("/v1/aggregates/{subject_type}/{subject}/events", get(list))
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["topic"])?.check_accepts_json()?;
    response_budget::budgeted(
        &request.app,
        PAGE_ROOM_MIN,
        request.app.events().aggregate(aggregate_query(&request)?),
        |aggregate| Ok(aggregate_response(aggregate)),
    )
    .await
}

fn aggregate_response(aggregate: &Aggregate) -> Response {
    let mut body = format!(
        r#"{{"aggregateSequence":{},"sequence":{},"lastEvent":"#,
        aggregate.aggregate_sequence, aggregate.sequence
    )
    .into_bytes();
    body.extend_from_slice(aggregate.last_event.as_ref().map_or(b"null", |event| &event.text));
    body.push(b'}');
    ok_response(JSON, Body::from(body))
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["topic", "after", "limit"])?.check_accepts_json()?;
    response_budget::budgeted_page(
        &request.app,
        request.app.events().read_aggregate(aggregate_query(&request)?),
        |page| {
            let rest = format!(r#""nextAfter":{},"aggregateSequence":{}"#, page.next_after, page.aggregate_sequence);
            Ok(ok_response(JSON, Body::from(with_items(&page.items, &[], &rest))))
        },
    )
    .await
}

fn aggregate_query(request: &ApiRequest) -> Result<AggregateRead> {
    let params = &request.params;
    Ok(AggregateRead {
        topic: params.topic()?,
        subject_type: match request.path_param("subject_type") {
            NO_SUBJECT_TYPE => None,
            _ => Some(request.identifier("subject_type")?),
        },
        subject: request.path_param("subject").to_owned(),
        after: AggregateSequence(params.after()?),
        limit: params.limit(request.app.options.limit_default)?,
    })
}
