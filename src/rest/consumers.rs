//! Consumers, and the groups that share an offset.

use super::body::BodyLimit;
use super::custom_methods;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use super::{AppState, whole_numbers};
use axum::Router;
use axum::routing::get;
use contract::{Consumer, Error, GroupReset, Kind, NewConsumer, Offset, ResetTo, Result, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// The body of a definition, with a CEL expression.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

/// Methods of one consumer, and of one group.
const METHODS: &str = "GET, HEAD, DELETE";

/// A consumer; the HTTP contract wraps it in `data`.
#[derive(Serialize)]
struct ConsumerEnvelope<'a> {
    data: &'a Consumer,
}

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/consumers", get(list).post(idempotent(DEFINITION, create)))
        .route(
            "/v1/consumers/{id}",
            get(show)
                .delete(idempotent(NO_BODY, remove))
                .post(idempotent(DEFINITION, custom_method))
                .fallback(custom_methods::other_methods(METHODS)),
        )
        .route("/v1/consumer-groups", get(list_groups))
        .route(
            "/v1/consumer-groups/{name}",
            get(show_group)
                .delete(idempotent(NO_BODY, remove_group))
                .post(idempotent(DEFINITION, group_custom_method))
                .fallback(custom_methods::other_methods_of_identifier(METHODS, custom_methods::OF_GROUP)),
        )
}

async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let consumer: NewConsumer = request.json().await?;
    request.respond_with(created_reply, |recorder| request.writes().create_consumer(consumer, recorder)).await
}

fn created_reply(consumer: &Consumer) -> Reply {
    Reply::created(&ConsumerEnvelope { data: consumer }, &format!("/v1/consumers/{}", consumer.id))
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["consumerGroup", "limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let group = request.params.one("consumerGroup")?;
    let page = request.app.events().consumers(group, query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    let consumer = request.app.events().consumer(id_of(&request)?).await?;
    pages::json_response(&ConsumerEnvelope { data: &consumer })
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let id = id_of(&request)?;
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_consumer(id, recorder)).await
}

/// `POST /v1/consumers/{id}:commit`.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    match custom_methods::split(request.path_param("id")) {
        (id, Some("commit")) => {
            let id = uuid(id)?;
            let offset = committed_offset(request.json().await?)?;
            request.respond_with(Reply::ok, |recorder| request.writes().commit_offset(id, offset, recorder)).await
        }
        (_, Some(_)) => Err(custom_methods::unknown()),
        (_, None) => Err(Problem::not_allowed(METHODS)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitBody {
    offset: Value,
}

fn committed_offset(CommitBody { offset }: CommitBody) -> Result<Offset> {
    whole_numbers::of_value(&offset).map(Offset).ok_or_else(|| {
        Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more: the last processed sequence.")
    })
}

async fn list_groups(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let page = request.app.events().consumer_groups(query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn show_group(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().consumer_group(&group_of(&request)?).await?)
}

/// The group that a path names. A custom method of a group is only posted; `%3A` always belongs to the name.
fn group_of(request: &ApiRequest) -> HandlerResult<String> {
    match request.identifier_and_method(custom_methods::OF_GROUP) {
        (name, None) => Ok(name),
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
    }
}

/// `POST /v1/consumer-groups/{name}:reset`.
async fn group_custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let (name, verb) = request.identifier_and_method(custom_methods::OF_GROUP);
    if verb.is_none() {
        let is_other = name.contains(':');
        return Err(if is_other { custom_methods::unknown() } else { Problem::not_allowed(METHODS) });
    }
    let reset = group_reset(request.json().await?)?;
    request.respond_with(Reply::ok, |recorder| request.writes().reset_group(&name, reset, recorder)).await
}

async fn remove_group(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let name = group_of(&request)?;
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_group(&name, recorder)).await
}

/// `{topic, offset: n|"earliest"|"latest"}` or `{topic, time}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupResetBody {
    topic: TopicId,
    offset: Option<Value>,
    time: Option<Timestamp>,
}

fn group_reset(GroupResetBody { topic, offset, time }: GroupResetBody) -> Result<GroupReset> {
    let to = match (&offset, time) {
        (None, Some(time)) => ResetTo::Time(time),
        (Some(Value::String(word)), None) if word == "earliest" => ResetTo::Earliest,
        (Some(Value::String(word)), None) if word == "latest" => ResetTo::Latest,
        (Some(offset), None) => ResetTo::Offset(whole_numbers::of_value(offset).map(Offset).ok_or_else(not_an_offset)?),
        (None, None) => {
            return Err(Error::invalid("/offset", "is missing: name the new offset by `offset` or by `time`"));
        }
        (Some(_), Some(_)) => return Err(Error::invalid("/time", "must not be combined with `offset`")),
    };
    Ok(GroupReset { topic, to })
}

fn not_an_offset() -> Error {
    Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more, or \"earliest\" or \"latest\".")
}

/// The consumer that a path names. A custom method of a consumer is only posted.
fn id_of(request: &ApiRequest) -> HandlerResult<Uuid> {
    match custom_methods::split(request.path_param("id")) {
        (_, Some("commit")) => Err(Problem::not_allowed("POST")),
        _ => Ok(uuid(request.path_param("id"))?),
    }
}

/// The id in a path; an invalid one is not found.
fn uuid(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("consumer"))
}
