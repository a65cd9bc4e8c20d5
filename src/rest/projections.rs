//! Projections: their checkpoints, and waiting for them, separately or while publishing.

use super::address_limiter::AddressPermit;
use super::body::BodyLimit;
use super::custom_methods;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use super::{AppState, whole_numbers};
use crate::projections::AwaitedProjection;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use contract::{
    AggregateSequence, Error, Generation, Kind, NewCheckpoint, NewEvent, NewProjection, Offset, Position, Projection,
    RegisterOutcome, Result, Sequence, StoredEvent, Timestamp,
};
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;
use uuid::Uuid;

/// Characters that are percent-encoded in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The body of a definition, with a CEL expression.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/projections", get(list)).route(
        "/v1/projections/{name}",
        get(show)
            .put(idempotent(DEFINITION, put))
            .delete(idempotent(NO_BODY, remove))
            .post(idempotent(DEFINITION, custom_method))
            .fallback(|uri: Uri| async move { not_allowed(uri.path()).into_response() }),
    )
}

/// The problem for a method that a projection, or a custom method of one, does not support.
fn not_allowed(path: &str) -> Problem {
    Problem::not_allowed(match custom_methods::split(path).1 {
        Some("wait") => "GET, HEAD",
        Some(_) => "POST",
        None => "GET, HEAD, PUT, DELETE",
    })
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let page = request.app.events().projections(query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn put(mut request: ApiRequest) -> HandlerResult<Reply> {
    let name = name_of(&request)?;
    request.allow_params(&[])?;
    let projection: NewProjection = request.json().await?;
    request
        .respond_with(registered_reply, |recorder| request.writes().put_projection(&name, projection, recorder))
        .await
}

fn registered_reply(registered: &RegisterOutcome<Projection>) -> Reply {
    match registered {
        RegisterOutcome::Created(made) => Reply::created(made, &location(&made.name)),
        RegisterOutcome::Unchanged(known) => Reply::ok(known),
    }
}

/// `GET /v1/projections/{name}` and `GET /v1/projections/{name}:wait`.
async fn show(request: ApiRequest) -> HandlerResult {
    if let (name, Some("wait")) = custom_methods::split(request.path_param("name")) {
        return wait(&request, name).await;
    }
    let name = name_of(&request)?;
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().projection(&name).await?)
}

async fn wait(request: &ApiRequest, name: &str) -> HandlerResult {
    request.allow_params(&["offset", "timeout"])?.check_accepts_json()?;
    let (app, params) = (&request.app, &request.params);
    let (offset, timeout) = (params.offset()?, params.timeout(app.options.wait_default)?);
    let _permit = request.begin_wait()?;
    let projection = tokio::select! {
        projection = app.events().wait_for_projection(name, offset, timeout) => projection?,
        // The time is up, but the response still tells whether the checkpoint has been reached.
        () = app.drained() => app.events().wait_for_projection(name, offset, Duration::ZERO).await?,
    };
    pages::json_response(&projection)
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    let name = name_of(&request)?;
    request.allow_params(&[])?;
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_projection(&name, recorder)).await
}

/// `POST /v1/projections/{name}:checkpoint` and `:reset`.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    let (name, verb) = custom_methods::split(request.path_param("name"));
    let (name, is_checkpoint) = (name.to_owned(), verb == Some("checkpoint"));
    if !matches!(verb, Some("checkpoint" | "reset")) {
        let is_unknown = verb.is_some() && !is_custom_method(request.path_param("name"));
        return Err(if is_unknown { custom_methods::unknown() } else { not_allowed(request.path_param("name")) });
    }
    request.allow_params(&[])?;
    match is_checkpoint {
        true => {
            let to = checkpoint(request.json().await?)?;
            request.respond_with(Reply::ok, |recorder| request.writes().move_checkpoint(&name, to, recorder)).await
        }
        false => {
            let offset = reset(request.json().await?)?;
            request.respond_with(Reply::ok, |recorder| request.writes().reset_projection(&name, offset, recorder)).await
        }
    }
}

/// The projection that a path names; a custom method of one does not support this method.
fn name_of(request: &ApiRequest) -> HandlerResult<String> {
    match request.path_param("name") {
        piece if is_custom_method(piece) => Err(not_allowed(piece)),
        name => Ok(name.to_owned()),
    }
}

/// Whether a part of a path is a custom method of a projection: no name contains a colon.
fn is_custom_method(piece: &str) -> bool {
    matches!(custom_methods::split(piece).1, Some("wait" | "checkpoint" | "reset"))
}

/// `{offset, expected?, generation?}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointBody {
    offset: Value,
    expected: Option<Offset>,
    generation: Option<Generation>,
}

fn checkpoint(CheckpointBody { offset, expected, generation }: CheckpointBody) -> Result<NewCheckpoint> {
    Ok(NewCheckpoint { offset: whole_offset(&offset)?, expected, generation })
}

/// `{offset}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectionResetBody {
    offset: Value,
}

fn reset(ProjectionResetBody { offset }: ProjectionResetBody) -> Result<Offset> {
    whole_offset(&offset)
}

fn whole_offset(offset: &Value) -> Result<Offset> {
    whole_numbers::of_value(offset).map(Offset).ok_or_else(|| {
        let detail = "`offset` must be a whole number, 0 or more: the last applied sequence (position, if the projection reads the log).";
        Error::new(Kind::InvalidOffset, detail)
    })
}

fn location(name: &str) -> String {
    format!("/v1/projections/{}", utf8_percent_encode(name, ESCAPED))
}

/// `?waitFor=a,b&timeout=s`: the projections that a publisher waits for before it gets its response.
pub(super) struct ProjectionWait {
    awaited: Vec<AwaitedProjection>,
    timeout: Duration,
    /// Counts the publisher among the requests that wait.
    _permit: Option<AddressPermit>,
}

/// The members of a stored event that a wait needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplayedEvent {
    id: Uuid,
    position: Position,
    sequence: Sequence,
    aggregate_sequence: Option<AggregateSequence>,
    created_at: Timestamp,
}

/// The response to a batch.
#[derive(Deserialize)]
struct ReplayedBatch<'a> {
    #[serde(borrow)]
    data: ReplayedResults<'a>,
}

#[derive(Deserialize)]
struct ReplayedResults<'a> {
    #[serde(borrow)]
    results: Vec<ReplayedResult<'a>>,
}

#[derive(Deserialize)]
struct ReplayedResult<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
}

/// The events in the body of a stored response to a publish or a batch.
fn replayed_events(body: &Bytes) -> Vec<StoredEvent> {
    let event = |text: &[u8]| {
        let replayed: ReplayedEvent = serde_json::from_slice(text).ok()?;
        let ReplayedEvent { id, position, sequence, aggregate_sequence, created_at } = replayed;
        let aggregate_sequence = aggregate_sequence.unwrap_or(AggregateSequence(0));
        Some(StoredEvent { id, position, sequence, aggregate_sequence, created_at, text: body.slice_ref(text) })
    };
    // A batch has no `id`; the `data` of an event may look like a batch.
    if let Some(event) = event(&body[..]) {
        return vec![event];
    }
    let Ok(batch) = serde_json::from_slice::<ReplayedBatch<'_>>(body) else { return Vec::new() };
    let texts = batch.data.results.iter().filter_map(|result| result.event);
    texts.filter_map(|text| event(text.get().as_bytes())).collect()
}

impl ProjectionWait {
    /// What the query requests; unknown projections are refused.
    pub(super) async fn of(request: &ApiRequest) -> Result<Self> {
        let (app, params) = (&request.app, &request.params);
        let longest = app.broker.config().polling.max_timeout_secs;
        let timeout = params.timeout(app.options.wait_default)?;
        if timeout.as_secs() > longest {
            return Err(Error::invalid("/timeout", format!("must be between 0 and {longest} seconds")));
        }
        let awaited = match params.one("waitFor")? {
            // Boxed: most requests wait for nothing, and their futures stay small.
            Some(names) => Box::pin(app.broker.awaited_projections(names)).await?,
            None => Vec::new(),
        };
        let permit = if awaited.is_empty() { None } else { request.begin_wait()? };
        Ok(Self { awaited, timeout, _permit: permit })
    }

    /// Waits for the events of a stored response, as for those of a first one.
    pub(super) async fn wait_replayed(request: &ApiRequest, body: &Bytes) -> Result<()> {
        let wait = Self::of(request).await?;
        let events = replayed_events(body);
        wait.wait_applied(&request.app, &events.iter().collect::<Vec<_>>()).await
    }

    /// Refuses a projection that would never read the event.
    pub(super) async fn check(&mut self, request: &ApiRequest, event: &NewEvent) -> Result<()> {
        let broker = &request.app.broker;
        if self.awaited.is_empty() || broker.projections().check_reached(&self.awaited, event).is_ok() {
            return Ok(());
        }
        // Another broker may have defined the projection anew.
        Box::pin(broker.refresh()).await?;
        let names = request.params.one("waitFor")?.unwrap_or_default();
        self.awaited = broker.projections().awaited(names.split(','))?;
        broker.projections().check_reached(&self.awaited, event)
    }

    /// Returns when every projection has applied the events that it reads.
    pub(super) async fn wait_applied(&self, app: &AppState, events: &[&StoredEvent]) -> Result<()> {
        if self.awaited.is_empty() {
            return Ok(());
        }
        let projections = app.broker.projections();
        // Boxed: most requests wait for nothing, and their futures stay small.
        let applied = Box::pin(projections.wait_until_applied(&self.awaited, events, self.timeout));
        tokio::select! {
            applied = applied => applied,
            () = app.drained() => Box::pin(projections.wait_until_applied(&self.awaited, events, Duration::ZERO)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_the_response_to_a_publish_and_in_that_to_a_batch() {
        let event = |number: u8, data: &str| {
            format!(
                r#"{{"id":"{}","position":{number},"sequence":{number},"createdAt":"2025-12-03T12:00:00Z","data":{data}}}"#,
                Uuid::nil()
            )
        };
        let found = |body: String| {
            replayed_events(&body.into()).into_iter().map(|event| event.sequence.get()).collect::<Vec<_>>()
        };
        assert_eq!(found(event(1, "{}")), [1]);
        assert_eq!(found(event(1, r#"{"results":[]}"#)), [1], "the data of an event may look like a batch");
        let results = format!(r#"{{"event":{}}},{{"error":{{}}}},{{"event":{}}}"#, event(2, "{}"), event(3, "{}"));
        assert_eq!(found(format!(r#"{{"data":{{"results":[{results}]}},"meta":{{}}}}"#)), [2, 3]);
        assert_eq!(found("{}".to_owned()), [0; 0]);
    }
}
