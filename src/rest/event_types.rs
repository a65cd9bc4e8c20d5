//! Event types and the versions of their schemas.

use super::App;
use super::body::{self, Limit};
use super::negotiate;
use super::params::Params;
use super::problem::Answer;
use super::rows::{self, Wanted};
use super::verb;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use contract::{EventTypeId, Kind, NewEventType, Registered, TopicId, limits};
use http::HeaderMap;

/// A definition's body: a schema, escaped as JSON may have to be, and what stands around it.
const DEFINITION: Limit = Limit { bytes: 2 * limits::SCHEMA_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/event-types", get(list).post(register))
        .route("/v1/event-types/{id}", get(show).post(act).fallback(verb::other_methods("GET, HEAD")))
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["type", "topic", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let pattern = params.pattern("type")?;
    let _topic = params.one("topic")?.map(TopicId::parse).transpose()?;
    let (cursor, limit) = (wanted.cursor.as_ref(), wanted.limit);
    let page = app.events().event_types(pattern.as_ref(), cursor, limit).await?;
    rows::list(&page, limit)
}

async fn register(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let event_type: NewEventType = body::json(&held.bytes)?;
    let location = format!("/v1/event-types/{}", event_type.id);
    match app.events().register_event_type(event_type).await? {
        Registered::Created(event_type) => Ok(rows::made(&event_type, &location)),
        Registered::Unchanged(event_type) => rows::shown(&event_type),
    }
}

async fn show(State(app): State<App>, Path(id): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    if id.ends_with(":archive") {
        return Ok(verb::not_allowed("POST"));
    }
    rows::shown(&app.events().event_type(&EventTypeId::parse(&id)?).await?)
}

/// `POST /v1/event-types/{id}:archive`.
async fn act(State(app): State<App>, Path(piece): Path<String>, params: Params) -> Answer {
    params.only(&[])?;
    match verb::split(&piece) {
        (_, Some("archive")) => {
            let _ = &app;
            Err(verb::unknown())
        }
        (_, None) => Ok(verb::not_allowed("GET, HEAD")),
        (_, Some(_)) => Err(verb::unknown()),
    }
}
