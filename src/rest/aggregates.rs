//! Aggregates: where one stands, and its events in its own order.

use super::App;
use super::negotiate::{self, JSON};
use super::params::Params;
use super::problem::Answer;
use super::read::{answer, with_items};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use contract::{AggregateRead, AggregateSequence, Result, SubjectTypeId};
use http::HeaderMap;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/aggregates/{subject_type}/{subject}", get(show))
        .route("/v1/aggregates/{subject_type}/{subject}/events", get(list))
}

async fn show(
    State(app): State<App>,
    Path(path): Path<(String, String)>,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    params.only(&["topic"])?;
    negotiate::expect_json_taken(&headers)?;
    let aggregate = app.events().aggregate(asked(&app, path, &params)?).await?;
    let mut body = format!(
        r#"{{"aggregateSequence":{},"sequence":{},"lastEvent":"#,
        aggregate.aggregate_sequence, aggregate.sequence
    )
    .into_bytes();
    body.extend_from_slice(aggregate.last_event.as_ref().map_or(b"null", |event| &event.text));
    body.push(b'}');
    Ok(answer(JSON, Body::from(body)))
}

async fn list(
    State(app): State<App>,
    Path(path): Path<(String, String)>,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    params.only(&["topic", "after", "limit"])?;
    negotiate::expect_json_taken(&headers)?;
    let page = app.events().read_aggregate(asked(&app, path, &params)?).await?;
    let rest = format!(r#""nextAfter":{},"aggregateSequence":{}"#, page.next_after, page.aggregate_sequence);
    Ok(answer(JSON, Body::from(with_items(&page.items, &rest))))
}

fn asked(app: &App, (subject_type, subject): (String, String), params: &Params) -> Result<AggregateRead> {
    Ok(AggregateRead {
        topic: params.topic()?,
        subject_type: SubjectTypeId::parse(&subject_type)?,
        subject,
        after: AggregateSequence(params.after()?),
        limit: params.limit(app.options.limit_default)?,
    })
}
