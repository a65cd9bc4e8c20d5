//! Projections: how far views have come, and waiting for them, by themselves or while publishing.

use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::crowd::Member;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use super::{App, whole_numbers};
use crate::projections::Awaited;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use contract::{
    Error, Generation, Kind, NewCheckpoint, NewEvent, NewProjection, Offset, Projection, Registered, Result,
    StoredEvent,
};
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A projection's body, CEL expression and all.
const DEFINITION: Limits = |_, _| Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/projections", get(list)).route(
        "/v1/projections/{name}",
        get(show)
            .put(once(DEFINITION, put))
            .delete(once(NO_BODY, remove))
            .post(once(DEFINITION, act))
            .fallback(|uri: Uri| async move { not_allowed(uri.path()).into_response() }),
    )
}

/// The answer to a method that a projection, or a verb of one, does not take.
fn not_allowed(path: &str) -> Problem {
    Problem::not_allowed(match verb::split(path).1 {
        Some("wait") => "GET, HEAD",
        Some(_) => "POST",
        None => "GET, HEAD, PUT, DELETE",
    })
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let page = asked.app.events().projections(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn put(mut asked: Asked) -> Answer<Told> {
    let name = name_of(&asked)?;
    asked.takes(&[])?;
    let projection: NewProjection = asked.json().await?;
    asked.tell(registered, |keep| asked.writes().put_projection(&name, projection, keep)).await
}

fn registered(registered: &Registered<Projection>) -> Told {
    match registered {
        Registered::Created(made) => Told::made(made, &location(&made.name)),
        Registered::Unchanged(known) => Told::shown(known),
    }
}

/// `GET /v1/projections/{name}` and `GET /v1/projections/{name}:wait`.
async fn show(asked: Asked) -> Answer {
    if let (name, Some("wait")) = verb::split(asked.piece("name")) {
        return wait(&asked, name).await;
    }
    let name = name_of(&asked)?;
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().projection(&name).await?)
}

async fn wait(asked: &Asked, name: &str) -> Answer {
    asked.takes(&["offset", "timeout"])?.wants_json()?;
    let (app, params) = (&asked.app, &asked.params);
    let (offset, timeout) = (params.offset()?, params.timeout(app.options.wait_default)?);
    let _member = asked.waits()?;
    let projection = tokio::select! {
        projection = app.events().wait_for_projection(name, offset, timeout) => projection?,
        // Who has no more time to wait still learns whether it is there.
        () = app.drained() => app.events().wait_for_projection(name, offset, Duration::ZERO).await?,
    };
    rows::shown(&projection)
}

async fn remove(asked: Asked) -> Answer<Told> {
    let name = name_of(&asked)?;
    asked.takes(&[])?;
    asked.tell(Told::done, |keep| asked.writes().delete_projection(&name, keep)).await
}

/// `POST /v1/projections/{name}:checkpoint` and `:reset`.
async fn act(mut asked: Asked) -> Answer<Told> {
    let (name, verb) = verb::split(asked.piece("name"));
    let (name, is_checkpoint) = (name.to_owned(), verb == Some("checkpoint"));
    if !matches!(verb, Some("checkpoint" | "reset")) {
        let is_unknown = verb.is_some() && !is_verb(asked.piece("name"));
        return Err(if is_unknown { verb::unknown() } else { not_allowed(asked.piece("name")) });
    }
    asked.takes(&[])?;
    match is_checkpoint {
        true => {
            let to = checkpoint(asked.json().await?)?;
            asked.tell(Told::shown, |keep| asked.writes().move_checkpoint(&name, to, keep)).await
        }
        false => {
            let offset = reset(asked.json().await?)?;
            asked.tell(Told::shown, |keep| asked.writes().reset_projection(&name, offset, keep)).await
        }
    }
}

/// The projection a path names; a verb of one does not take this method.
fn name_of(asked: &Asked) -> Answer<String> {
    match asked.piece("name") {
        piece if is_verb(piece) => Err(not_allowed(piece)),
        name => Ok(name.to_owned()),
    }
}

/// Whether a piece of path is a verb of a projection: no name has a colon in it.
fn is_verb(piece: &str) -> bool {
    matches!(verb::split(piece).1, Some("wait" | "checkpoint" | "reset"))
}

/// `{offset, expected?, generation?}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checkpoint {
    offset: Value,
    expected: Option<Offset>,
    generation: Option<Generation>,
}

fn checkpoint(Checkpoint { offset, expected, generation }: Checkpoint) -> Result<NewCheckpoint> {
    Ok(NewCheckpoint { offset: whole(&offset)?, expected, generation })
}

/// `{offset}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    offset: Value,
}

fn reset(Reset { offset }: Reset) -> Result<Offset> {
    whole(&offset)
}

fn whole(offset: &Value) -> Result<Offset> {
    whole_numbers::of_value(offset).map(Offset).ok_or_else(|| {
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
    /// The publisher's place among the requests that wait.
    _member: Option<Member>,
}

impl WaitFor {
    /// What the query asks for; names nobody knows are refused.
    pub(super) fn of(asked: &Asked) -> Result<Self> {
        let (app, params) = (&asked.app, &asked.params);
        let longest = app.broker.config().polling.max_timeout_secs;
        let timeout = params.timeout(app.options.wait_default)?;
        if timeout.as_secs() > longest {
            return Err(Error::invalid("/timeout", format!("must be between 0 and {longest} seconds")));
        }
        let names = params.one("waitFor")?.map(|names| names.split(','));
        let awaited = names.map(|names| app.broker.projections().awaited(names)).transpose()?;
        let awaited = awaited.unwrap_or_default();
        let member = if awaited.is_empty() { None } else { asked.waits()? };
        Ok(Self { awaited, timeout, _member: member })
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
