//! Reading: a topic's events, at once or waiting; one event; the whole log.

use super::AppState;
use super::cloudevents;
use super::negotiate::{self, CLOUD_EVENT, CLOUD_EVENTS, JSON, ResponseFormat};
use super::problem::{HandlerResult, Problem};
use super::request::ApiRequest;
use super::request_context::waiting;
use super::response_budget;
use crate::memory::PAGE_ROOM_MIN;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use contract::{
    Claim, Error, EventPage, LogPage, LogRead, Offset, Position, ReadOffset, Result, StoredEvent, TopicRead,
};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use std::io::Write;
use std::time::Duration;
use uuid::Uuid;

const NEXT_OFFSET: HeaderName = HeaderName::from_static("next-offset");
const TAIL: HeaderName = HeaderName::from_static("tail");
/// A position after every possible record.
const POSITION_MAX: Position = Position(i64::MAX as u64);

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/events", get(list))
        .route("/v1/events:poll", get(waiting(poll)))
        .route("/v1/events/{id}", get(show))
        .route("/v1/log", get(waiting(log)))
}

/// What is read: a topic with the request's filters, or a consumer's topic with its filters.
#[derive(Debug, Clone)]
pub(super) enum ReadQuery {
    Topic(Box<TopicRead>),
    Consumer { id: Uuid, offset: ReadOffset, limit: usize },
}

impl ReadQuery {
    /// The query of a request, from `offset` on. A consumer's topic and filters replace those of the request.
    pub(super) fn of(request: &ApiRequest, offset: ReadOffset) -> Result<Self> {
        let params = &request.params;
        let limit = params.limit(request.app.options.limit_default)?;
        if let Some(id) = params.one("consumer_id")? {
            let id = Uuid::try_parse(id).map_err(|_| Error::not_found("consumer"))?;
            return Ok(Self::Consumer { id, offset, limit });
        }
        Ok(Self::Topic(Box::new(TopicRead { topic: params.topic()?, offset, limit, filter: params.filter()? })))
    }

    /// Continues after another offset.
    pub(super) fn continue_after(&mut self, next: Offset) {
        match self {
            Self::Topic(read) => read.offset = next.into(),
            Self::Consumer { offset, .. } => *offset = next.into(),
        }
    }

    pub(super) async fn read(self, app: &AppState) -> Result<EventPage> {
        match self {
            Self::Topic(read) => app.events().read(*read).await,
            Self::Consumer { id, offset, limit } => app.events().read_as(id, offset, limit).await,
        }
    }

    /// Waits until there are events, the time-out has passed, or the server drains.
    pub(super) async fn wait(self, app: &AppState, timeout: Duration) -> Result<EventPage> {
        let wait = match self.clone() {
            Self::Topic(read) => app.events().wait(*read, timeout),
            Self::Consumer { id, offset, limit } => app.events().wait_as(id, offset, limit, timeout),
        };
        tokio::select! {
            page = wait => page,
            () = app.drained() => self.read(app).await,
        }
    }
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_filters_and(&["topic", "consumer_id", "offset", "limit"])?;
    let format = negotiate::response_format(request.headers())?;
    let query = ReadQuery::of(&request, request.params.read_offset()?)?;
    response_budget::budgeted_page(&request.app, query.read(&request.app), |page| event_page_response(format, page))
        .await
}

async fn poll(request: ApiRequest) -> HandlerResult {
    request.allow_filters_and(&["topic", "consumer_id", "offset", "limit", "timeout"])?;
    let format = negotiate::response_format(request.headers())?;
    let timeout = request.params.timeout(request.app.options.wait_default)?;
    let query = ReadQuery::of(&request, request.params.read_offset()?)?;
    let (app, waiting_request) = request.into_waiting();
    waiting_request
        .wait(async move {
            response_budget::budgeted_page(&app, query.wait(&app, timeout), |page| event_page_response(format, page))
                .await
        })
        .await
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?;
    let format = negotiate::response_format(request.headers())?;
    let id = Uuid::try_parse(request.path_param("id")).map_err(|_| Error::not_found("event"))?;
    response_budget::budgeted(&request.app, PAGE_ROOM_MIN, request.app.events().event(id), |event| {
        Ok(match format {
            ResponseFormat::Json => ok_response(JSON, Body::from(event.text.clone())),
            ResponseFormat::CloudEvents => ok_response(CLOUD_EVENT, Body::from(cloudevents::structured(event)?)),
        })
    })
    .await
}

async fn log(request: ApiRequest) -> HandlerResult {
    request.allow_filters_and(&["after", "limit", "timeout"])?;
    let format = negotiate::response_format(request.headers())?;
    let params = &request.params;
    let (after, limit) = (params.position()?, params.limit(request.app.options.limit_default)?);
    let mut read = LogRead { after: after.unwrap_or(POSITION_MAX), limit, filter: params.filter()? };
    if after.is_none() {
        read.after = request.app.events().read_log(read.clone()).await?.tail;
    }
    let timeout = params.timeout(Duration::ZERO)?;
    let (app, waiting_request) = request.into_waiting();
    let page = async move {
        let page = async {
            tokio::select! {
                page = app.events().wait_log(read.clone(), timeout) => page,
                () = app.drained() => app.events().read_log(read).await,
            }
        };
        response_budget::budgeted_page(&app, page, |page| log_page_response(format, page)).await
    };
    waiting_request.wait(page).await
}

/// A page of the whole log in the accepted format.
fn log_page_response(format: ResponseFormat, page: &LogPage) -> Result<Response, Problem> {
    let LogPage { items, next_position, tail } = page;
    let mut response = match format {
        ResponseFormat::Json => {
            let rest = format!(r#""nextPosition":{next_position},"tail":{tail}"#);
            ok_response(JSON, Body::from(with_items(items, &[], &rest)))
        }
        ResponseFormat::CloudEvents => ok_response(CLOUD_EVENTS, Body::from(cloudevents::batch(items, &[])?)),
    };
    add_offset_headers(&mut response, next_position.get(), tail.get());
    Ok(response)
}

/// A page of events in the accepted format.
fn event_page_response(format: ResponseFormat, page: &EventPage) -> Result<Response, Problem> {
    let EventPage { items, claims, next_offset, tail } = page;
    if format == ResponseFormat::Json {
        let rest = format!(r#""nextOffset":{next_offset},"tail":{tail}"#);
        return Ok(ok_response(JSON, Body::from(with_items(items, claims, &rest))));
    }
    let mut response = ok_response(CLOUD_EVENTS, Body::from(cloudevents::batch(items, claims)?));
    add_offset_headers(&mut response, next_offset.get(), tail.get());
    Ok(response)
}

/// `{"items":[…],…}`: the stored texts of the events, each with its claim if it has one, then `rest`.
pub(super) fn with_items(items: &[StoredEvent], claims: &[Claim], rest: &str) -> Vec<u8> {
    let size = items.iter().map(|event| event.text.len() + 1).sum::<usize>() + rest.len() + 16;
    let mut body = Vec::with_capacity(size);
    body.extend_from_slice(br#"{"items":["#);
    for (index, event) in items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&event_bytes(event, claims.get(index)));
    }
    // Writing to memory cannot fail.
    let _ = write!(body, "],{rest}}}");
    body
}

/// The stored text of an event; with `claim` as the last member if it was assigned to a member of a shared group.
pub(super) fn event_bytes(event: &StoredEvent, claim: Option<&Claim>) -> Bytes {
    let (Some(claim), Some(text)) = (claim, event.text.strip_suffix(b"}")) else { return event.text.clone() };
    let mut served = Vec::with_capacity(text.len() + 640);
    served.extend_from_slice(text);
    served.extend_from_slice(br#","claim":"#);
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut served, claim);
    served.push(b'}');
    served.into()
}

/// A response of 200.
pub(super) fn ok_response(media: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

/// The next offset, for a body that cannot contain it.
fn add_offset_headers(response: &mut Response, next: u64, tail: u64) {
    response.headers_mut().insert(NEXT_OFFSET, HeaderValue::from(next));
    response.headers_mut().insert(TAIL, HeaderValue::from(tail));
}
