//! Consumers, and the groups whose offset they share.

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
use axum::response::IntoResponse;
use axum::routing::get;
use contract::{Consumer, Error, GroupReset, Kind, NewConsumer, Offset, ResetTo, Result, Timestamp, TopicId};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A consumer's body, CEL expression and all.
const DEFINITION: Limit = Limit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

/// Methods of one consumer.
const METHODS: &str = "GET, HEAD, DELETE";

/// A consumer, as seed 000 wraps it.
#[derive(Serialize)]
struct Data<'a> {
    data: &'a Consumer,
}

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/consumers", get(list).post(create))
        .route("/v1/consumers/{id}", get(show).delete(remove).post(act).fallback(verb::other_methods(METHODS)))
        .route("/v1/consumer-groups", get(list_groups))
        .route(
            "/v1/consumer-groups/{name}",
            get(show_group).post(act_on_group).fallback(verb::other_methods("GET, HEAD")),
        )
}

async fn create(State(app): State<App>, params: Params, headers: HeaderMap, body: Body) -> Answer {
    params.only(&[])?;
    negotiate::expect_json(&headers)?;
    let held = body::take(&app, &headers, body, DEFINITION).await?;
    let consumer: NewConsumer = body::json(&held.bytes)?;
    let consumer = app.events().create_consumer(consumer).await?;
    Ok(rows::made(&Data { data: &consumer }, &format!("/v1/consumers/{}", consumer.id)))
}

async fn list(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["consumerGroup", "limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let group = params.one("consumerGroup")?;
    let page = app.events().consumers(group, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(State(app): State<App>, Path(piece): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    if let (_, Some("commit")) = verb::split(&piece) {
        return Ok(verb::not_allowed("POST"));
    }
    let consumer = app.events().consumer(id_of(&piece)?).await?;
    rows::shown(&Data { data: &consumer })
}

async fn remove(State(app): State<App>, Path(piece): Path<String>, params: Params) -> Answer {
    params.only(&[])?;
    if let (_, Some("commit")) = verb::split(&piece) {
        return Ok(verb::not_allowed("POST"));
    }
    app.events().delete_consumer(id_of(&piece)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/consumers/{id}:commit`.
async fn act(
    State(app): State<App>,
    Path(piece): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    let (id, verb) = verb::split(&piece);
    match verb {
        Some("commit") => commit(&app, id_of(id)?, &headers, body).await,
        Some(_) => Err(verb::unknown()),
        None => Ok(verb::not_allowed(METHODS)),
    }
}

async fn commit(app: &App, consumer: Uuid, headers: &HeaderMap, body: Body) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Commit {
        offset: Value,
    }
    negotiate::expect_json(headers)?;
    let held = body::take(app, headers, body, DEFINITION).await?;
    let Commit { offset } = body::json(&held.bytes)?;
    let offset = offset.as_u64().map(Offset).ok_or_else(|| {
        Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more: the last sequence dealt with.")
    })?;
    rows::shown(&app.events().commit_offset(consumer, offset).await?)
}

async fn list_groups(State(app): State<App>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&["limit", "cursor"])?;
    negotiate::expect_json_taken(&headers)?;
    let wanted = Wanted::of(&app, &params)?;
    let page = app.events().consumer_groups(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show_group(State(app): State<App>, Path(name): Path<String>, params: Params, headers: HeaderMap) -> Answer {
    params.only(&[])?;
    negotiate::expect_json_taken(&headers)?;
    rows::shown(&app.events().consumer_group(&name).await?)
}

/// `POST /v1/consumer-groups/{name}:reset`.
async fn act_on_group(
    State(app): State<App>,
    Path(piece): Path<String>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    params.only(&[])?;
    match verb::split(&piece) {
        (name, Some("reset")) => {
            negotiate::expect_json(&headers)?;
            let held = body::take(&app, &headers, body, DEFINITION).await?;
            rows::shown(&app.events().reset_group(name, reset(&held.bytes)?).await?)
        }
        (_, Some(_)) => Err(verb::unknown()),
        (_, None) => Ok(verb::not_allowed("GET, HEAD")),
    }
}

/// `{topic, offset: n|"earliest"|"latest"}` or `{topic, time}`.
fn reset(bytes: &[u8]) -> Result<GroupReset> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Reset {
        topic: TopicId,
        offset: Option<Value>,
        time: Option<Timestamp>,
    }
    let Reset { topic, offset, time } = body::json(bytes)?;
    let to = match (&offset, time) {
        (None, Some(time)) => ResetTo::Time(time),
        (Some(Value::String(word)), None) if word == "earliest" => ResetTo::Earliest,
        (Some(Value::String(word)), None) if word == "latest" => ResetTo::Latest,
        (Some(Value::Number(number)), None) => ResetTo::Offset(number.as_u64().map(Offset).ok_or_else(not_an_offset)?),
        (Some(_), None) => return Err(not_an_offset()),
        (None, None) => return Err(Error::invalid("/offset", "is missing: say where to, by `offset` or by `time`")),
        (Some(_), Some(_)) => return Err(Error::invalid("/time", "stands beside `offset`; give one of them")),
    };
    Ok(GroupReset { topic, to })
}

fn not_an_offset() -> Error {
    Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more, or \"earliest\" or \"latest\".")
}

/// An id that is none cannot be there.
fn id_of(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("consumer"))
}
