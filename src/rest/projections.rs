//! Projections: how far views have come, and waiting for them, by themselves or while publishing.

use super::App;
use super::body::{self, Limit};
use super::negotiate;
use super::params::Params;
use super::problem::Answer;
use super::rows::{self, Wanted};
use super::verb;
use crate::projections::Awaited;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use contract::{
    Error, Generation, Kind, NewCheckpoint, NewEvent, NewProjection, Offset, Registered, Result, StoredEvent,
};
use http::{HeaderMap, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A projection's body, CEL expression and all.
const DEFINITION: Limit = Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/projections", get(list)).route(
        "/v1/projections/{name}",
        get(show).put(put).delete(remove).post(act).fallback(|uri: Uri| async move { not_allowed(uri.path()) }),
    )
}

/// The answer to a method that a projection, or a verb of one, does not take.
fn not_allowed(path: &str) -> Response {
    verb::not_allowed(match verb::split(path).1 {
        Some("wait") => "GET, HEAD",
        Some(_) => "POST",
        None => "GET, HEAD, PUT, DELETE",
    })
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let page = app.events().projections(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn put(
    State(app): State<App>,
    Path(name): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    if is_verb(&name) {
        return Ok(not_allowed(&name));
    }
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let projection: NewProjection = body::json(&held.bytes)?;
    match app.events().put_projection(&name, projection).await? {
        Registered::Created(made) => Ok(rows::made(&made, &location(&made.name))),
        Registered::Unchanged(known) => rows::shown(&known),
    }
}

/// `GET /v1/projections/{name}` and `GET /v1/projections/{name}:wait`.
async fn show(State(app): State<App>, Path(piece): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    match verb::split(&piece) {
        (name, Some("wait")) => return wait(&app, name, &params, &headers).await,
        (_, Some(_)) if is_verb(&piece) => return Ok(not_allowed(&piece)),
        _ => (),
    }
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    rows::shown(&app.events().projection(&piece).await?)
}

async fn wait(app: &App, name: &str, params: &Params, headers: &HeaderMap) -> Answer {
    params.only(&["offset", "timeout"])?;
    negotiate::expect_json_taken(headers)?;
    let (offset, timeout) = (params.offset()?, params.timeout(app.options.wait_default)?);
    let projection = tokio::select! {
        projection = app.events().wait_for_projection(name, offset, timeout) => projection?,
        // Who has no more time to wait still learns whether it is there.
        () = app.drained() => app.events().wait_for_projection(name, offset, Duration::ZERO).await?,
    };
    rows::shown(&projection)
}

async fn remove(State(app): State<App>, Path(name): Path<String>, params: Params) -> Answer {
    if is_verb(&name) {
        return Ok(not_allowed(&name));
    }
    params.only(&[])?;
    app.events().delete_projection(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/projections/{name}:checkpoint` and `:reset`.
async fn act(
    State(app): State<App>,
    Path(piece): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (name, verb) = verb::split(&piece);
    if !matches!(verb, Some("checkpoint" | "reset")) {
        return if verb.is_some() && !is_verb(&piece) { Err(verb::unknown()) } else { Ok(not_allowed(&piece)) };
    }
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let projection = match verb {
        Some("checkpoint") => app.events().move_checkpoint(name, checkpoint(&held.bytes)?).await?,
        _ => app.events().reset_projection(name, reset(&held.bytes)?).await?,
    };
    rows::shown(&projection)
}

/// Whether a piece of path is a verb of a projection: no name has a colon in it.
fn is_verb(piece: &str) -> bool {
    matches!(verb::split(piece).1, Some("wait" | "checkpoint" | "reset"))
}

/// `{offset, expected?, generation?}`.
fn checkpoint(bytes: &[u8]) -> Result<NewCheckpoint> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Checkpoint {
        offset: Value,
        expected: Option<Offset>,
        generation: Option<Generation>,
    }
    let Checkpoint { offset, expected, generation } = body::json(bytes)?;
    Ok(NewCheckpoint { offset: whole(&offset)?, expected, generation })
}

/// `{offset}`.
fn reset(bytes: &[u8]) -> Result<Offset> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Reset {
        offset: Value,
    }
    let Reset { offset } = body::json(bytes)?;
    whole(&offset)
}

fn whole(offset: &Value) -> Result<Offset> {
    offset.as_u64().map(Offset).ok_or_else(|| {
        let detail = "`offset` must be a whole number, 0 or more: the last sequence (of the log: position) applied.";
        Error::new(Kind::InvalidOffset, detail)
    })
}

fn location(name: &str) -> String {
    format!("/v1/projections/{}", utf8_percent_encode(name, ESCAPED))
}

/// `?waitFor=a,b&timeout=s`: what a publisher wants to see applied before it is answered.
pub(super) struct WaitFor {
    awaited: Vec<Awaited>,
    timeout: Duration,
}

impl WaitFor {
    /// What the query asks for; names nobody knows are refused.
    pub(super) fn of(app: &App, params: &Params) -> Result<Self> {
        let longest = app.broker.config().polling.max_timeout_secs;
        let timeout = params.timeout(app.options.wait_default)?;
        if timeout.as_secs() > longest {
            return Err(Error::invalid("/timeout", format!("must be between 0 and {longest} seconds")));
        }
        let names = params.one("waitFor")?.map(|names| names.split(','));
        let awaited = names.map(|names| app.broker.projections().awaited(names)).transpose()?;
        Ok(Self { awaited: awaited.unwrap_or_default(), timeout })
    }

    /// Refuses projections that a single event would never reach.
    pub(super) fn check(&self, app: &App, event: &NewEvent) -> Result<()> {
        if self.awaited.is_empty() {
            return Ok(());
        }
        app.broker.projections().check_reached(&self.awaited, event)
    }

    /// Answers when every projection has applied what concerns it.
    pub(super) async fn applied(&self, app: &App, events: &[&StoredEvent]) -> Result<()> {
        if self.awaited.is_empty() {
            return Ok(());
        }
        let projections = app.broker.projections();
        // Boxed: those who wait for nothing, and they are many, carry no room for it.
        let applied = Box::pin(projections.applied(&self.awaited, events, self.timeout));
        tokio::select! {
            applied = applied => applied,
            () = app.drained() => Box::pin(projections.applied(&self.awaited, events, Duration::ZERO)).await,
        }
    }
}
