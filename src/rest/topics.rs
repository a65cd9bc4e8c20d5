//! Topics: register, change, describe, list, publish again, let go, and the segments they lie in.

use super::App;
use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, PageInfo, Wanted};
use super::told::Told;
use super::verb;
use axum::Router;
use axum::routing::get;
use contract::{
    Compact, Error, Kind, NewTopic, Page, Registered, Republish, Result, Segment, Segments, Sequence, Timestamp, Topic,
    TopicChange, TopicId, Trim,
};
use serde::Serialize;

/// A definition's body.
const DEFINITION: Limits = |_, _| Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };
/// Methods of one topic.
const METHODS: &str = "GET, HEAD, PATCH, DELETE";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/topics", get(list).post(once(DEFINITION, register)))
        .route("/v1/topics/segments", get(segments))
        .route(
            "/v1/topics/{id}",
            get(show)
                .patch(once(DEFINITION, change))
                .delete(once(NO_BODY, remove))
                .post(once(DEFINITION, act))
                .fallback(verb::other_methods_of_identifier(METHODS, verb::OF_TOPIC)),
        )
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["topic", "limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let pattern = asked.params.pattern("topic")?;
    let page = asked.app.events().topics(pattern.as_ref(), wanted.cursor.as_ref(), wanted.limit).await?;
    rows::shown(&Topics { topics: &page.items, page_info: PageInfo::of(&page, wanted.limit) })
}

async fn register(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let topic: NewTopic = asked.json().await?;
    asked.tell(registered, |keep| asked.writes().register_topic(topic, keep)).await
}

fn registered(registered: &Registered<Topic>) -> Told {
    match registered {
        Registered::Created(made) => {
            let piece = verb::identifier_piece(made.definition.id.as_str(), verb::OF_TOPIC);
            Told::made(made, &format!("/v1/topics/{piece}"))
        }
        Registered::Unchanged(known) => Told::shown(known),
    }
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().topic(&id_of(&asked)?).await?)
}

async fn change(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let id = id_of(&asked)?;
    let change: TopicChange = asked.json().await?;
    asked.tell(Told::shown, |keep| asked.writes().change_topic(&id, change, keep)).await
}

async fn remove(asked: Asked) -> Answer<Told> {
    asked.takes(&["force", "dryRun"])?;
    let id = id_of(&asked)?;
    if asked.params.flag("dryRun")? {
        return Ok(Told::shown(&asked.app.events().plan_topic_deletion(&id).await?));
    }
    let force = asked.params.flag("force")?;
    asked.tell(Told::done, |keep| asked.writes().delete_topic(&id, force, keep)).await
}

/// `POST /v1/topics/{id}:republish`, `:compact` and `:trim`. What they do may take several appends: republishing keeps its
/// answer with the last one, the others behind it.
async fn act(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let (id, verb) = asked.identifier_and_verb(verb::OF_TOPIC);
    let Some(verb) = verb else { return Err(verb::none_of_identifier(&id, METHODS)) };
    let id: TopicId = asked.parse_identifier(&id)?;
    let counted = match verb {
        "republish" => {
            let order: Republish = asked.json().await?;
            return asked.tell(Told::shown, |keep| asked.writes().republish(&id, order, keep)).await;
        }
        "compact" => {
            let order: Compact = asked.optional_json().await?;
            asked.app.events().compact_topic(&id, order).await?
        }
        "trim" => {
            let trim: Trim = asked.json().await?;
            asked.app.events().trim_topic(&id, trim).await?
        }
        _ => return Err(verb::unknown()),
    };
    Ok(Told::shown(&counted))
}

async fn segments(asked: Asked) -> Answer {
    asked.takes(&["topic", "$orderby", "limit", "cursor"])?.wants_json()?;
    let descending = is_descending(asked.params.one("$orderby")?)?;
    let wanted = Wanted::of(&asked)?;
    let limit_max = asked.app.broker.limit_max();
    if !(1..=limit_max).contains(&wanted.limit) {
        return Err(Error::invalid("/limit", format!("must be between 1 and {limit_max}")).into());
    }
    let segments = asked.app.events().segments(&asked.params.topic()?).await?;
    page_of(&segments, &wanted, descending)
}

/// The topic a path names. A verb of one is not read or changed, but posted.
fn id_of(asked: &Asked) -> Answer<TopicId> {
    match asked.identifier_and_verb(verb::OF_TOPIC) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(asked.parse_identifier(&id)?),
    }
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
