//! Event types and the versions of their schemas.

use super::AppState;
use super::body::BodyLimit;
use super::custom_methods;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use super::response_budget;
use axum::Router;
use axum::routing::{get, post};
use contract::{
    Error, EventType, EventTypeId, Kind, NewEventType, NewVersion, RegisterOutcome, RegisteredVersion, Result,
    SchemaVersion, limits,
};

/// What a page of event types may need: at least one type with all its versions.
const LIST_ROOM: usize = limits::LIST_BYTES_MAX + limits::VERSIONS_BYTES_MAX;
/// The body of a definition: a schema, which may be twice as long when it is escaped in JSON, and the other members.
const DEFINITION: BodyLimitFn =
    |_, _| BodyLimit { bytes: 2 * limits::SCHEMA_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

/// Methods of one event type.
const METHODS: &str = "GET, HEAD, DELETE";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/event-types", get(list).post(idempotent(DEFINITION, register)))
        .route(
            "/v1/event-types/{id}",
            get(show)
                .delete(idempotent(NO_BODY, remove))
                .post(idempotent(NO_BODY, custom_method))
                .fallback(custom_methods::other_methods_of_identifier(METHODS, custom_methods::OF_EVENT_TYPE)),
        )
        .route("/v1/event-types/{id}/versions", post(idempotent(DEFINITION, add_version)))
        .route(
            "/v1/event-types/{id}/versions/{version}",
            get(show_version)
                .post(idempotent(NO_BODY, version_custom_method))
                .fallback(custom_methods::other_methods("GET, HEAD")),
        )
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["type", "topic", "limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let pattern = request.params.pattern("type")?;
    let topic = request.params.pattern("topic")?;
    let (cursor, limit) = (query.cursor.as_ref(), query.limit);
    let page = request.app.events().event_types(pattern.as_ref(), topic.as_ref(), cursor, limit);
    response_budget::budgeted(&request.app, LIST_ROOM, page, |page| pages::page_response(page, limit)).await
}

async fn register(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let event_type: NewEventType = request.json().await?;
    request.respond_with(registered_reply, |recorder| request.writes().register_event_type(event_type, recorder)).await
}

fn registered_reply(registered: &RegisterOutcome<EventType>) -> Reply {
    match registered {
        RegisterOutcome::Created(made) => {
            let piece = custom_methods::identifier_piece(made.definition.id.as_str(), custom_methods::OF_EVENT_TYPE);
            Reply::created(made, &format!("/v1/event-types/{piece}"))
        }
        RegisterOutcome::Unchanged(known) => Reply::ok(known),
    }
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().event_type(&id_of(&request)?).await?)
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let id = id_of(&request)?;
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_event_type(&id, recorder)).await
}

/// The event type that a path names. A custom method of an event type is only posted.
fn id_of(request: &ApiRequest) -> HandlerResult<EventTypeId> {
    match request.identifier_and_method(custom_methods::OF_EVENT_TYPE) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(request.parse_identifier(&id)?),
    }
}

/// `POST /v1/event-types/{id}:archive`.
async fn custom_method(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    match request.identifier_and_method(custom_methods::OF_EVENT_TYPE) {
        (id, Some(_)) => {
            let id = request.parse_identifier(&id)?;
            request.respond_with(Reply::ok, |recorder| request.writes().archive_event_type(&id, recorder)).await
        }
        (id, None) => Err(custom_methods::unknown_for_identifier(&id, METHODS)),
    }
}

async fn add_version(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let id: EventTypeId = request.identifier("id")?;
    let version: NewVersion = request.json().await?;
    let versions = format!("/v1/event-types/{id}/versions");
    let added = move |added: &RegisterOutcome<RegisteredVersion>| match added {
        RegisterOutcome::Created(made) => Reply::created(made, &format!("{versions}/{}", made.definition.version)),
        RegisterOutcome::Unchanged(known) => Reply::ok(known),
    };
    request.respond_with(added, |recorder| request.writes().add_version(&id, version, recorder)).await
}

async fn show_version(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    let version = request.path_param("version");
    if let (_, Some("finalise" | "deprecate")) = custom_methods::split(version) {
        return Err(Problem::not_allowed("POST"));
    }
    let event_type = request.app.events().event_type(&request.identifier("id")?).await?;
    let query = version_of(version)?;
    let found = event_type.versions.iter().find(|known| known.definition.version == query);
    pages::json_response(found.ok_or_else(|| Error::not_found("version"))?)
}

/// `POST …/versions/{version}:finalise` and `:deprecate`.
async fn version_custom_method(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let id: EventTypeId = request.identifier("id")?;
    match custom_methods::split(request.path_param("version")) {
        (version, Some("finalise")) => {
            let version = version_of(version)?;
            request.respond_with(Reply::ok, |recorder| request.writes().finalise_version(&id, version, recorder)).await
        }
        (version, Some("deprecate")) => {
            let version = version_of(version)?;
            request.respond_with(Reply::ok, |recorder| request.writes().deprecate_version(&id, version, recorder)).await
        }
        (_, None) => Err(Problem::not_allowed("GET, HEAD")),
        (_, Some(_)) => Err(custom_methods::unknown()),
    }
}

/// The version that a path names; an invalid one is not found.
fn version_of(text: &str) -> Result<SchemaVersion> {
    text.parse().map_err(|_| Error::not_found("version"))
}
