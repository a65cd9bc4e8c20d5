//! Subscriptions: who is sent which events; making, changing, pausing, replaying, and trying them out.

use super::App;
use super::asked::{Asked, Limits, NO_BODY};
use super::body::{self, Limit};
use super::events::producer;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use crate::delivery::SecretKind;
use crate::subscriptions::fresh;
use axum::Router;
use axum::routing::get;
use contract::{Kind, NewReplay, NewSecret, NewSubscription, Subscription, SubscriptionChange};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Mutex, PoisonError};

/// A definition, certificates and all.
const DEFINITION: Limits = |_, _| Limit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/subscriptions", get(list).post(once(DEFINITION, create)))
        .route(
            "/v1/subscriptions/{id}",
            get(show)
                .patch(once(DEFINITION, change))
                .delete(once(NO_BODY, remove))
                .post(once(DEFINITION, act))
                .fallback(verb::other_methods("GET, HEAD, PATCH, DELETE")),
        )
        .route("/v1/subscriptions/{id}/groups", get(groups))
        .route("/v1/subscriptions/{id}/replays", get(replays))
}

/// A subscription with the secret that is shown once.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    subscription: &'a Subscription,
    #[serde(flatten)]
    secret: Option<&'a NewSecret>,
}

/// `POST /v1/subscriptions`. What is kept under a key does not hold the secret.
async fn create(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let new: NewSubscription = asked.json().await?;
    let made = Mutex::new(None);
    let location = |row: &Subscription| format!("/v1/subscriptions/{}", row.id);
    asked
        .tell(
            move |row| Told::made(&fresh(row), &location(&fresh(row))),
            |keep| async {
                let (row, answer) = asked.app.broker.subscriptions(None).create_keeping(new, keep).await?;
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok(row)
            },
        )
        .await
        .map(|told| match made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(made) => {
                let shown = Made { subscription: &made.subscription, secret: made.secret.as_ref() };
                Told::made(&shown, &format!("/v1/subscriptions/{}", made.subscription.id))
            }
            None => told,
        })
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    asked.app.broker.caught_up().await?;
    let page = asked.app.broker.subscriptions(None).list(wanted.cursor.as_ref(), wanted.limit)?;
    rows::list(&page, wanted.limit)
}

/// The subscription a path names; a verb of one does not take this method.
fn id_of(asked: &Asked) -> Answer<String> {
    match verb::split(asked.piece("id")) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(id.to_owned()),
    }
}

async fn show(asked: Asked) -> Answer {
    let id = id_of(&asked)?;
    asked.takes(&[])?.wants_json()?;
    asked.app.broker.caught_up().await?;
    rows::shown(&asked.app.broker.subscriptions(None).get(&id)?)
}

async fn change(mut asked: Asked) -> Answer<Told> {
    let id = id_of(&asked)?;
    asked.takes(&[])?;
    let change: SubscriptionChange = asked.json().await?;
    asked.app.broker.caught_up().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.tell(Told::shown, |keep| subscriptions.change(&id, change, keep)).await
}

async fn remove(asked: Asked) -> Answer<Told> {
    let id = id_of(&asked)?;
    asked.takes(&[])?;
    let by = producer(asked.headers())?;
    asked.app.broker.caught_up().await?;
    let subscriptions = asked.app.broker.subscriptions(by.as_ref());
    asked.tell(Told::done, |keep| subscriptions.delete(&id, keep)).await
}

async fn groups(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    asked.app.broker.caught_up().await?;
    let found = asked.app.broker.subscriptions(None).find(asked.piece("id"))?;
    let page = asked.app.broker.jobs(None).groups(found, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn replays(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    asked.app.broker.caught_up().await?;
    let replays = asked.app.broker.subscriptions(None).replays(asked.piece("id"))?;
    rows::shown(&json!({"items": replays}))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Pause {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rotate {
    grace_seconds: Option<u32>,
    kind: Option<Kinds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kinds {
    Symmetric,
    Asymmetric,
}

/// A body that may be left out.
async fn order<T: DeserializeOwned + Default>(asked: &mut Asked) -> Answer<T> {
    let bytes = asked.bytes().await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    asked.sends_json()?;
    Ok(body::json(asked.app.profile(), &bytes)?)
}

/// `POST /v1/subscriptions/{id}:pause`, `:resume`, `:close-breaker`, `:rotate-secret`, `:test` and `:replay`.
async fn act(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let piece = asked.piece("id").to_owned();
    let (id, verb) = verb::split(&piece);
    let by = producer(asked.headers())?;
    let app = asked.app.clone();
    let subscriptions = app.broker.subscriptions(by.as_ref());
    match verb {
        Some("pause") => {
            let Pause { reason } = order(&mut asked).await?;
            app.broker.caught_up().await?;
            asked.tell(Told::shown, |keep| subscriptions.pause(id, reason, keep)).await
        }
        Some("resume") => {
            app.broker.caught_up().await?;
            asked.tell(Told::shown, |keep| subscriptions.resume(id, keep)).await
        }
        Some("close-breaker") => {
            app.broker.caught_up().await?;
            asked.tell(Told::shown, |keep| subscriptions.close_breaker(id, keep)).await
        }
        Some("rotate-secret") => {
            let Rotate { grace_seconds, kind } = order(&mut asked).await?;
            let kind = kind.map_or(SecretKind::Symmetric, |kind| match kind {
                Kinds::Symmetric => SecretKind::Symmetric,
                Kinds::Asymmetric => SecretKind::Asymmetric,
            });
            app.broker.caught_up().await?;
            asked.tell(Told::shown, |keep| subscriptions.rotate(id, grace_seconds, kind, keep)).await
        }
        Some("test") => {
            app.broker.caught_up().await?;
            let (_, row) = subscriptions.find(id)?;
            // Nothing of it is in the log; whoever asks again wants another try.
            Ok(Told::shown(&app.broker.jobs(None).test(&row).await?).not_kept())
        }
        Some("replay") => {
            let replay: NewReplay = asked.json().await?;
            app.broker.caught_up().await?;
            asked.tell(Told::shown, |keep| subscriptions.replay(id, replay, keep)).await
        }
        Some(_) => Err(verb::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD, PATCH, DELETE")),
    }
}
