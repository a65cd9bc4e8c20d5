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
use axum::routing::{get, post};
use contract::{
    Error, EventTypeId, Kind, NewEventType, NewVersion, Registered, Result, SchemaVersion, TopicId, limits,
};
use http::HeaderMap;

/// A definition's body: a schema, escaped as JSON may have to be, and what stands around it.
const DEFINITION: Limit = Limit { bytes: 2 * limits::SCHEMA_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/event-types", get(list).post(register))
        .route("/v1/event-types/{id}", get(show).post(act).fallback(verb::other_methods("GET, HEAD")))
        .route("/v1/event-types/{id}/versions", post(add_version))
        .route(
            "/v1/event-types/{id}/versions/{version}",
            get(show_version).post(act_on_version).fallback(verb::other_methods("GET, HEAD")),
        )
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["type", "topic", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let pattern = params.pattern("type")?;
    let topic = params.one("topic")?.map(TopicId::parse).transpose()?;
    let (cursor, limit) = (wanted.cursor.as_ref(), wanted.limit);
    let page = app.events().event_types(pattern.as_ref(), topic.as_ref(), cursor, limit).await?;
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
        (id, Some("archive")) => rows::shown(&app.events().archive_event_type(&EventTypeId::parse(id)?).await?),
        (_, None) => Ok(verb::not_allowed("GET, HEAD")),
        (_, Some(_)) => Err(verb::unknown()),
    }
}

async fn add_version(
    State(app): State<App>,
    Path(id): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let id = EventTypeId::parse(&id)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let version: NewVersion = body::json(&held.bytes)?;
    let location = format!("/v1/event-types/{id}/versions/{}", version.version);
    match app.events().add_version(&id, version).await? {
        Registered::Created(version) => Ok(rows::made(&version, &location)),
        Registered::Unchanged(version) => rows::shown(&version),
    }
}

async fn show_version(
    State(app): State<App>,
    Path((id, version)): Path<(String, String)>,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    if let (_, Some("finalise" | "deprecate")) = verb::split(&version) {
        return Ok(verb::not_allowed("POST"));
    }
    let event_type = app.events().event_type(&EventTypeId::parse(&id)?).await?;
    let wanted = version_of(&version)?;
    let found = event_type.versions.iter().find(|known| known.definition.version == wanted);
    rows::shown(found.ok_or_else(|| Error::not_found("version"))?)
}

/// `POST …/versions/{version}:finalise` and `:deprecate`.
async fn act_on_version(State(app): State<App>, Path((id, piece)): Path<(String, String)>, params: Params) -> Answer {
    params.only(&[])?;
    let id = EventTypeId::parse(&id)?;
    match verb::split(&piece) {
        (version, Some("finalise")) => rows::shown(&app.events().finalise_version(&id, version_of(version)?).await?),
        (version, Some("deprecate")) => rows::shown(&app.events().deprecate_version(&id, version_of(version)?).await?),
        (_, None) => Ok(verb::not_allowed("GET, HEAD")),
        (_, Some(_)) => Err(verb::unknown()),
    }
}

/// A version that is none cannot be there.
fn version_of(text: &str) -> Result<SchemaVersion> {
    text.parse().map_err(|_| Error::not_found("version"))
}
