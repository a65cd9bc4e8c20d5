//! Topics: register, change, describe, list, and the segments they lie in.

use super::App;
use super::body::{self, Limit};
use super::negotiate;
use super::params::Params;
use super::problem::Answer;
use super::rows::{self, PageInfo, Wanted};
use super::verb;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::get;
use contract::{
    Error, Kind, NewTopic, Page, Registered, Result, Segment, Segments, Sequence, Timestamp, Topic, TopicChange,
    TopicId,
};
use http::HeaderMap;
use serde::Serialize;

/// A definition's body.
const DEFINITION: Limit = Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };
/// Methods of one topic.
const METHODS: &str = "GET, HEAD, PATCH";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/topics", get(list).post(register))
        .route("/v1/topics/segments", get(segments))
        .route("/v1/topics/{id}", get(show).patch(change).post(act).fallback(verb::other_methods(METHODS)))
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["topic", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let pattern = params.pattern("topic")?;
    let page = app.events().topics(pattern.as_ref(), wanted.cursor.as_ref(), wanted.limit).await?;
    rows::shown(&Topics { topics: &page.items, page_info: PageInfo::of(&page, wanted.limit) })
}

async fn register(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let topic: NewTopic = body::json(&held.bytes)?;
    match app.events().register_topic(topic).await? {
        Registered::Created(topic) => Ok(rows::made(&topic, &format!("/v1/topics/{}", topic.definition.id))),
        Registered::Unchanged(topic) => rows::shown(&topic),
    }
}

async fn show(State(app): State<App>, Path(id): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    rows::shown(&app.events().topic(&TopicId::parse(&id)?).await?)
}

async fn change(
    State(app): State<App>,
    Path(id): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let id = TopicId::parse(&id)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let change: TopicChange = body::json(&held.bytes)?;
    rows::shown(&app.events().change_topic(&id, change).await?)
}

/// Verbs of one topic: none yet.
async fn act(Path(piece): Path<String>) -> Answer {
    match verb::split(&piece) {
        (_, None) => Ok(verb::not_allowed(METHODS)),
        (_, Some(_)) => Err(verb::unknown()),
    }
}

async fn segments(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["topic", "$orderby", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let descending = is_descending(params.one("$orderby")?)?;
    let wanted = Wanted::of(&app, &params)?;
    if !(1..=app.broker.limit_max()).contains(&wanted.limit) {
        let detail = format!("must be between 1 and {}", app.broker.limit_max());
        return Err(Error::invalid("/limit", detail).into());
    }
    let segments = app.events().segments(&params.topic()?).await?;
    page_of(&segments, &wanted, descending)
}

/// Segments come in order of where they begin.
fn is_descending(order: Option<&str>) -> Result<bool> {
    let refused = || Error::invalid("/$orderby", "must be `rangeStart asc` or `rangeStart desc`");
    let Some(order) = order else { return Ok(false) };
    let mut words = order.split_whitespace();
    if words.next() != Some("rangeStart") {
        return Err(refused());
    }
    match (words.next(), words.next()) {
        (None | Some("asc"), None) => Ok(false),
        (Some("desc"), None) => Ok(true),
        _ => Err(refused()),
    }
}

fn page_of(segments: &Segments, wanted: &Wanted, descending: bool) -> Answer {
    // Keys are as wide as numbers get, so that they sort as numbers do; backwards they count down.
    let key = |segment: &&Segment| {
        let start = segment.start_sequence.get();
        format!("{:020}", if descending { u64::MAX - start } else { start })
    };
    let rows = segments.segments.iter();
    let (cursor, limit) = (wanted.cursor.as_ref(), wanted.limit);
    let page = match descending {
        true => Page::of(rows.rev(), cursor, limit, key),
        false => Page::of(rows, cursor, limit, key),
    };
    let (first, last) = (segments.segments.first(), segments.segments.last());
    rows::shown(&SegmentRows {
        topic: &segments.topic,
        start: first.map(|segment| segment.start_sequence),
        start_time: first.map(|segment| segment.start_time),
        end: last.map(|segment| segment.end_sequence),
        end_time: last.map(|segment| segment.end_time),
        page_info: PageInfo::of(&page, limit),
        segments: page.items,
    })
}

/// A list of topics; seed 000 spells it so.
#[derive(Serialize)]
struct Topics<'a> {
    topics: &'a [Topic],
    page_info: PageInfo,
}

/// A topic's segments, and what they reach over. A topic without events has none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentRows<'a> {
    topic: &'a TopicId,
    start: Option<Sequence>,
    start_time: Option<Timestamp>,
    end: Option<Sequence>,
    end_time: Option<Timestamp>,
    segments: Vec<&'a Segment>,
    #[serde(rename = "page_info")]
    page_info: PageInfo,
}
