//! Topics: register, change, describe, list, publish again, let go, and the segments they lie in.

use super::AppState;
use super::body::BodyLimit;
use super::custom_methods;
use super::idempotency::idempotent;
use super::pages::{self, PageInfo, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use axum::Router;
use axum::routing::get;
use contract::{
    CompactRequest, Error, Kind, NewTopic, Page, RegisterOutcome, RepublishRequest, Result, Segment, Sequence,
    Timestamp, Topic, TopicChange, TopicId, TopicSegments, TrimRequest,
};
use serde::Serialize;

/// The body of a definition.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };
/// Methods of one topic.
const METHODS: &str = "GET, HEAD, PATCH, DELETE";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/topics", get(list).post(idempotent(DEFINITION, register)))
        .route("/v1/topics/segments", get(segments))
        .route(
            "/v1/topics/{id}",
            get(show)
                .patch(idempotent(DEFINITION, change))
                .delete(idempotent(NO_BODY, remove))
                .post(idempotent(DEFINITION, custom_method))
                .fallback(custom_methods::other_methods_of_identifier(METHODS, custom_methods::OF_TOPIC)),
        )
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["topic", "limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let pattern = request.params.pattern("topic")?;
    let page = request.app.events().topics(pattern.as_ref(), query.cursor.as_ref(), query.limit).await?;
    pages::json_response(&TopicsPage { topics: &page.items, page_info: PageInfo::of(&page, query.limit) })
}

async fn register(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let topic: NewTopic = request.json().await?;
    request.respond_with(registered_reply, |recorder| request.writes().register_topic(topic, recorder)).await
}

fn registered_reply(registered: &RegisterOutcome<Topic>) -> Reply {
    match registered {
        RegisterOutcome::Created(made) => {
            let piece = custom_methods::identifier_piece(made.definition.id.as_str(), custom_methods::OF_TOPIC);
            Reply::created(made, &format!("/v1/topics/{piece}"))
        }
        RegisterOutcome::Unchanged(known) => Reply::ok(known),
    }
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().topic(&id_of(&request)?).await?)
}

async fn change(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let id = id_of(&request)?;
    let change: TopicChange = request.json().await?;
    request.respond_with(Reply::ok, |recorder| request.writes().change_topic(&id, change, recorder)).await
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&["force", "dryRun"])?;
    let id = id_of(&request)?;
    if request.params.flag("dryRun")? {
        return Ok(Reply::ok(&request.app.events().plan_topic_deletion(&id).await?));
    }
    let force = request.params.flag("force")?;
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_topic(&id, force, recorder)).await
}

/// `POST /v1/topics/{id}:republish`, `:compact` and `:trim`. They may take several appends: republishing stores its response
/// with the last one, the others after it.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let (id, verb) = request.identifier_and_method(custom_methods::OF_TOPIC);
    let Some(verb) = verb else { return Err(custom_methods::unknown_for_identifier(&id, METHODS)) };
    let id: TopicId = request.parse_identifier(&id)?;
    let counted = match verb {
        "republish" => {
            let order: RepublishRequest = request.json().await?;
            return request.respond_with(Reply::ok, |recorder| request.writes().republish(&id, order, recorder)).await;
        }
        "compact" => {
            let order: CompactRequest = request.optional_json().await?;
            request.app.events().compact_topic(&id, order).await?
        }
        "trim" => {
            let trim: TrimRequest = request.json().await?;
            request.app.events().trim_topic(&id, trim).await?
        }
        _ => return Err(custom_methods::unknown()),
    };
    Ok(Reply::ok(&counted))
}

async fn segments(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["topic", "$orderby", "limit", "cursor"])?.check_accepts_json()?;
    let descending = is_descending(request.params.one("$orderby")?)?;
    let query = PageQuery::of(&request)?;
    let limit_max = request.app.broker.limit_max();
    if !(1..=limit_max).contains(&query.limit) {
        return Err(Error::invalid("/limit", format!("must be between 1 and {limit_max}")).into());
    }
    let segments = request.app.events().segments(&request.params.topic()?).await?;
    segments_page(&segments, &query, descending)
}

/// The topic that a path names. A custom method of a topic is only posted.
fn id_of(request: &ApiRequest) -> HandlerResult<TopicId> {
    match request.identifier_and_method(custom_methods::OF_TOPIC) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(request.parse_identifier(&id)?),
    }
}

/// Segments are sorted by their first sequence.
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

fn segments_page(segments: &TopicSegments, query: &PageQuery, descending: bool) -> HandlerResult {
    // Keys are padded, so that they sort like numbers; in descending order they count down.
    let key = |segment: &&Segment| {
        let start = segment.start_sequence.get();
        format!("{:020}", if descending { u64::MAX - start } else { start })
    };
    let rows = segments.segments.iter();
    let (cursor, limit) = (query.cursor.as_ref(), query.limit);
    let page = match descending {
        true => Page::of(rows.rev(), cursor, limit, key),
        false => Page::of(rows, cursor, limit, key),
    };
    let (first, last) = (segments.segments.first(), segments.segments.last());
    pages::json_response(&SegmentsPage {
        topic: &segments.topic,
        start: first.map(|segment| segment.start_sequence),
        start_time: first.map(|segment| segment.start_time),
        end: last.map(|segment| segment.end_sequence),
        end_time: last.map(|segment| segment.end_time),
        page_info: PageInfo::of(&page, limit),
        segments: page.items,
    })
}

/// A list of topics; the HTTP contract calls the member `topics`.
#[derive(Serialize)]
struct TopicsPage<'a> {
    topics: &'a [Topic],
    page_info: PageInfo,
}

/// A topic's segments, with the range that they cover. A topic without events has none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentsPage<'a> {
    topic: &'a TopicId,
    start: Option<Sequence>,
    start_time: Option<Timestamp>,
    end: Option<Sequence>,
    end_time: Option<Timestamp>,
    segments: Vec<&'a Segment>,
    #[serde(rename = "page_info")]
    page_info: PageInfo,
}
