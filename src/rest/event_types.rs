//! Event types and the versions of their schemas.

use super::App;
use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use axum::Router;
use axum::routing::{get, post};
use contract::{
    Error, EventType, EventTypeId, Kind, NewEventType, NewVersion, Registered, Result, SchemaVersion, TopicId, Version,
    limits,
};

/// A definition's body: a schema, escaped as JSON may have to be, and what stands around it.
const DEFINITION: Limits =
    |_, _| Limit { bytes: 2 * limits::SCHEMA_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

/// Methods of one event type.
const METHODS: &str = "GET, HEAD, DELETE";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/event-types", get(list).post(once(DEFINITION, register)))
        .route(
            "/v1/event-types/{id}",
            get(show)
                .delete(once(NO_BODY, remove))
                .post(once(NO_BODY, act))
                .fallback(verb::other_methods_of_identifier(METHODS, verb::OF_EVENT_TYPE)),
        )
        .route("/v1/event-types/{id}/versions", post(once(DEFINITION, add_version)))
        .route(
            "/v1/event-types/{id}/versions/{version}",
            get(show_version).post(once(NO_BODY, act_on_version)).fallback(verb::other_methods("GET, HEAD")),
        )
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["type", "topic", "limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let pattern = asked.params.pattern("type")?;
    let topic = asked.params.identifier::<TopicId>("topic")?;
    let (cursor, limit) = (wanted.cursor.as_ref(), wanted.limit);
    let page = asked.app.events().event_types(pattern.as_ref(), topic.as_ref(), cursor, limit).await?;
    rows::list(&page, limit)
}

async fn register(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let event_type: NewEventType = asked.json().await?;
    asked.tell(registered, |keep| asked.writes().register_event_type(event_type, keep)).await
}

fn registered(registered: &Registered<EventType>) -> Told {
    match registered {
        Registered::Created(made) => {
            let piece = verb::identifier_piece(made.definition.id.as_str(), verb::OF_EVENT_TYPE);
            Told::made(made, &format!("/v1/event-types/{piece}"))
        }
        Registered::Unchanged(known) => Told::shown(known),
    }
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().event_type(&id_of(&asked)?).await?)
}

async fn remove(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let id = id_of(&asked)?;
    asked.tell(Told::done, |keep| asked.writes().delete_event_type(&id, keep)).await
}

/// The event type a path names. A verb of one is not read or deleted, but posted.
fn id_of(asked: &Asked) -> Answer<EventTypeId> {
    match asked.identifier_and_verb(verb::OF_EVENT_TYPE) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(asked.parse_identifier(&id)?),
    }
}

/// `POST /v1/event-types/{id}:archive`.
async fn act(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    match asked.identifier_and_verb(verb::OF_EVENT_TYPE) {
        (id, Some(_)) => {
            let id = asked.parse_identifier(&id)?;
            asked.tell(Told::shown, |keep| asked.writes().archive_event_type(&id, keep)).await
        }
        (id, None) => Err(verb::none_of_identifier(&id, METHODS)),
    }
}

async fn add_version(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let id: EventTypeId = asked.identifier("id")?;
    let version: NewVersion = asked.json().await?;
    let versions = format!("/v1/event-types/{id}/versions");
    let added = move |added: &Registered<Version>| match added {
        Registered::Created(made) => Told::made(made, &format!("{versions}/{}", made.definition.version)),
        Registered::Unchanged(known) => Told::shown(known),
    };
    asked.tell(added, |keep| asked.writes().add_version(&id, version, keep)).await
}

async fn show_version(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    let version = asked.piece("version");
    if let (_, Some("finalise" | "deprecate")) = verb::split(version) {
        return Err(Problem::not_allowed("POST"));
    }
    let event_type = asked.app.events().event_type(&asked.identifier("id")?).await?;
    let wanted = version_of(version)?;
    let found = event_type.versions.iter().find(|known| known.definition.version == wanted);
    rows::shown(found.ok_or_else(|| Error::not_found("version"))?)
}

/// `POST …/versions/{version}:finalise` and `:deprecate`.
async fn act_on_version(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let id: EventTypeId = asked.identifier("id")?;
    match verb::split(asked.piece("version")) {
        (version, Some("finalise")) => {
            let version = version_of(version)?;
            asked.tell(Told::shown, |keep| asked.writes().finalise_version(&id, version, keep)).await
        }
        (version, Some("deprecate")) => {
            let version = version_of(version)?;
            asked.tell(Told::shown, |keep| asked.writes().deprecate_version(&id, version, keep)).await
        }
        (_, None) => Err(Problem::not_allowed("GET, HEAD")),
        (_, Some(_)) => Err(verb::unknown()),
    }
}

/// A version that is none cannot be there.
fn version_of(text: &str) -> Result<SchemaVersion> {
    text.parse().map_err(|_| Error::not_found("version"))
}
