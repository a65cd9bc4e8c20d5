//! Consumers, and the groups whose offset they share.

use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use super::{App, whole_numbers};
use axum::Router;
use axum::routing::get;
use contract::{Consumer, Error, GroupReset, Kind, NewConsumer, Offset, ResetTo, Result, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A consumer's body, CEL expression and all.
const DEFINITION: Limits = |_, _| Limit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

/// Methods of one consumer, and of one group.
const METHODS: &str = "GET, HEAD, DELETE";

/// A consumer, as seed 000 wraps it.
#[derive(Serialize)]
struct Data<'a> {
    data: &'a Consumer,
}

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/consumers", get(list).post(once(DEFINITION, create)))
        .route(
            "/v1/consumers/{id}",
            get(show).delete(once(NO_BODY, remove)).post(once(DEFINITION, act)).fallback(verb::other_methods(METHODS)),
        )
        .route("/v1/consumer-groups", get(list_groups))
        .route(
            "/v1/consumer-groups/{name}",
            get(show_group)
                .delete(once(NO_BODY, remove_group))
                .post(once(DEFINITION, act_on_group))
                .fallback(verb::other_methods(METHODS)),
        )
}

async fn create(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let consumer: NewConsumer = asked.json().await?;
    asked.tell(created, |keep| asked.writes().create_consumer(consumer, keep)).await
}

fn created(consumer: &Consumer) -> Told {
    Told::made(&Data { data: consumer }, &format!("/v1/consumers/{}", consumer.id))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["consumerGroup", "limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let group = asked.params.one("consumerGroup")?;
    let page = asked.app.events().consumers(group, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    let consumer = asked.app.events().consumer(id_of(&asked)?).await?;
    rows::shown(&Data { data: &consumer })
}

async fn remove(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let id = id_of(&asked)?;
    asked.tell(Told::done, |keep| asked.writes().delete_consumer(id, keep)).await
}

/// `POST /v1/consumers/{id}:commit`.
async fn act(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    match verb::split(asked.piece("id")) {
        (id, Some("commit")) => {
            let id = uuid(id)?;
            let offset = committed(asked.json().await?)?;
            asked.tell(Told::shown, |keep| asked.writes().commit_offset(id, offset, keep)).await
        }
        (_, Some(_)) => Err(verb::unknown()),
        (_, None) => Err(Problem::not_allowed(METHODS)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    offset: Value,
}

fn committed(Commit { offset }: Commit) -> Result<Offset> {
    whole_numbers::of_value(&offset).map(Offset).ok_or_else(|| {
        Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more: the last sequence dealt with.")
    })
}

async fn list_groups(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let page = asked.app.events().consumer_groups(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show_group(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().consumer_group(asked.piece("name")).await?)
}

/// `POST /v1/consumer-groups/{name}:reset`.
async fn act_on_group(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    match verb::split(asked.piece("name")) {
        (name, Some("reset")) => {
            let name = name.to_owned();
            let reset = target(asked.json().await?)?;
            asked.tell(Told::shown, |keep| asked.writes().reset_group(&name, reset, keep)).await
        }
        (_, Some(_)) => Err(verb::unknown()),
        (_, None) => Err(Problem::not_allowed(METHODS)),
    }
}

async fn remove_group(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let name = asked.piece("name");
    if let (_, Some("reset")) = verb::split(name) {
        return Err(Problem::not_allowed("POST"));
    }
    asked.tell(Told::done, |keep| asked.writes().delete_group(name, keep)).await
}

/// `{topic, offset: n|"earliest"|"latest"}` or `{topic, time}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    topic: TopicId,
    offset: Option<Value>,
    time: Option<Timestamp>,
}

fn target(Reset { topic, offset, time }: Reset) -> Result<GroupReset> {
    let to = match (&offset, time) {
        (None, Some(time)) => ResetTo::Time(time),
        (Some(Value::String(word)), None) if word == "earliest" => ResetTo::Earliest,
        (Some(Value::String(word)), None) if word == "latest" => ResetTo::Latest,
        (Some(offset), None) => ResetTo::Offset(whole_numbers::of_value(offset).map(Offset).ok_or_else(not_an_offset)?),
        (None, None) => return Err(Error::invalid("/offset", "is missing: say where to, by `offset` or by `time`")),
        (Some(_), Some(_)) => return Err(Error::invalid("/time", "stands beside `offset`; give one of them")),
    };
    Ok(GroupReset { topic, to })
}

fn not_an_offset() -> Error {
    Error::new(Kind::InvalidOffset, "`offset` must be a whole number, 0 or more, or \"earliest\" or \"latest\".")
}

/// The consumer a path names. A verb of one is not read or deleted, but posted.
fn id_of(asked: &Asked) -> Answer<Uuid> {
    match verb::split(asked.piece("id")) {
        (_, Some("commit")) => Err(Problem::not_allowed("POST")),
        _ => Ok(uuid(asked.piece("id"))?),
    }
}

/// An id that is none cannot be there.
fn uuid(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("consumer"))
}
