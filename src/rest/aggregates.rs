//! Aggregates: where one stands, and its events in its own order.
//!
//! In a path `-` is the subject type of events that name none. It is no identifier, so it stands for nothing else.

use super::App;
use super::asked::Asked;
use super::negotiate::JSON;
use super::problem::Answer;
use super::read::{answer, with_items};
use super::sending;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use contract::{Aggregate, AggregateRead, AggregateSequence, Result};

/// The subject type of events that name none.
const NO_SUBJECT_TYPE: &str = "-";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/aggregates/{subject_type}/{subject}", get(show))
        .route("/v1/aggregates/{subject_type}/{subject}/events", get(list))
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&["topic"])?.wants_json()?;
    sending::event(&asked.app, asked.app.events().aggregate(wanted(&asked)?), |aggregate| Ok(shown(aggregate))).await
}

fn shown(aggregate: &Aggregate) -> Response {
    let mut body = format!(
        r#"{{"aggregateSequence":{},"sequence":{},"lastEvent":"#,
        aggregate.aggregate_sequence, aggregate.sequence
    )
    .into_bytes();
    body.extend_from_slice(aggregate.last_event.as_ref().map_or(b"null", |event| &event.text));
    body.push(b'}');
    answer(JSON, Body::from(body))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["topic", "after", "limit"])?.wants_json()?;
    sending::page(&asked.app, asked.app.events().read_aggregate(wanted(&asked)?), |page| {
        let rest = format!(r#""nextAfter":{},"aggregateSequence":{}"#, page.next_after, page.aggregate_sequence);
        Ok(answer(JSON, Body::from(with_items(&page.items, &[], &rest))))
    })
    .await
}

fn wanted(asked: &Asked) -> Result<AggregateRead> {
    let params = &asked.params;
    Ok(AggregateRead {
        topic: params.topic()?,
        subject_type: match asked.piece("subject_type") {
            NO_SUBJECT_TYPE => None,
            _ => Some(asked.identifier("subject_type")?),
        },
        subject: asked.piece("subject").to_owned(),
        after: AggregateSequence(params.after()?),
        limit: params.limit(asked.app.options.limit_default)?,
    })
}
