//! Dead letters: finding what was given up, trying it again, letting it be; one or many at a time.

use super::App;
use super::asked::{Asked, Limits};
use super::body::Limit;
use super::events::producer;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use axum::Router;
use axum::routing::{get, post};
use contract::{Error, Kind, LetterFilter, LetterOrder, LetterSource, Redrive, Result, limits};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// An order, with the payload of an event.
const ORDER: Limits = |_, _| Limit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/dead-letters", get(list))
        .route("/v1/dead-letters:redrive", post(once(ORDER, redrive_all)))
        .route("/v1/dead-letters:discard", post(once(ORDER, discard_all)))
        .route("/v1/dead-letters/summary", get(summary))
        .route("/v1/dead-letters/{id}", get(show).post(once(ORDER, act)).fallback(verb::other_methods("GET, HEAD")))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["source", "name", "topic", "status", "limit", "cursor"])?.wants_json()?;
    let (wanted, params) = (Wanted::of(&asked)?, &asked.params);
    let filter = LetterFilter {
        source: params.one("source")?.map(source).transpose()?,
        name: params.one("name")?.map(str::to_owned),
        topic: params.identifier("topic")?,
        resolved_too: match params.one("status")? {
            None | Some("open") => false,
            Some("all") => true,
            Some(_) => return Err(Error::invalid("/status", "must be `open` or `all`").into()),
        },
    };
    let page = asked.app.events().dead_letters(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

fn source(text: &str) -> Result<LetterSource> {
    match text {
        "handler" => Ok(LetterSource::Handler),
        "subscription" => Ok(LetterSource::Subscription),
        _ => Err(Error::invalid("/source", "must be `handler` or `subscription`")),
    }
}

async fn summary(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().dead_letter_summary().await?)
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    let piece = asked.piece("id");
    if let (_, Some("redrive" | "discard")) = verb::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    rows::shown(&asked.app.events().dead_letter(id_of(piece)?).await?)
}

/// `{reason}`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Discard {
    #[serde(default)]
    reason: String,
}

/// `POST /v1/dead-letters/{id}:redrive` and `:discard`.
async fn act(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let piece = asked.piece("id").to_owned();
    let (id, verb) = verb::split(&piece);
    let by = producer(asked.headers());
    match verb {
        Some("redrive") => {
            let (id, redrive): (_, Redrive) = (id_of(id)?, if_any(&mut asked).await?);
            let by = by?;
            asked.tell(Told::shown, |keep| asked.writes().redrive(id, redrive, by.as_ref(), keep)).await
        }
        Some("discard") => {
            let (id, Discard { reason }) = (id_of(id)?, if_any(&mut asked).await?);
            let by = by?;
            asked.tell(Told::shown, |keep| asked.writes().discard(id, reason, by.as_ref(), keep)).await
        }
        Some(_) => Err(verb::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD")),
    }
}

async fn redrive_all(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let order: LetterOrder = if_any(&mut asked).await?;
    let by = producer(asked.headers())?;
    asked.tell(Told::shown, |keep| asked.writes().redrive_all(order, by.as_ref(), keep)).await
}

async fn discard_all(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let order: LetterOrder = if_any(&mut asked).await?;
    let by = producer(asked.headers())?;
    asked.tell(Told::shown, |keep| asked.writes().discard_all(order, by.as_ref(), keep)).await
}

/// What an order says; one without a body says nothing.
async fn if_any<T: Default + DeserializeOwned>(asked: &mut Asked) -> Answer<T> {
    if asked.bytes().await?.is_empty() { Ok(T::default()) } else { asked.json().await }
}

fn id_of(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::not_found("dead letter"))
}
