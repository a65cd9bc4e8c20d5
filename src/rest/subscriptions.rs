//! Subscriptions: who is sent which events; making, changing, pausing, replaying, and trying them out.

use super::AppState;
use super::body::{self, BodyLimit};
use super::custom_methods;
use super::events::producer;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use crate::delivery::SecretKind;
use crate::subscriptions::new_view;
use axum::Router;
use axum::routing::get;
use contract::{Kind, NewReplay, NewSecret, NewSubscription, Subscription, SubscriptionChange};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Mutex, PoisonError};

/// A definition, certificates and all.
const DEFINITION: BodyLimitFn = |_, _| BodyLimit { bytes: 256 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/subscriptions", get(list).post(idempotent(DEFINITION, create)))
        .route(
            "/v1/subscriptions/{id}",
            get(show)
                .patch(idempotent(DEFINITION, change))
                .delete(idempotent(NO_BODY, remove))
                .post(idempotent(DEFINITION, custom_method))
                .fallback(custom_methods::other_methods("GET, HEAD, PATCH, DELETE")),
        )
        .route("/v1/subscriptions/{id}/groups", get(groups))
        .route("/v1/subscriptions/{id}/replays", get(replays))
}

/// A subscription with the secret that is shown once.
#[derive(Serialize)]
struct CreatedSubscription<'a> {
    #[serde(flatten)]
    subscription: &'a Subscription,
    #[serde(flatten)]
    secret: Option<&'a NewSecret>,
}

/// `POST /v1/subscriptions`. What is kept under a key does not hold the secret.
async fn create(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let new: NewSubscription = asked.json().await?;
    let made = Mutex::new(None);
    let location = |row: &Subscription| format!("/v1/subscriptions/{}", row.id);
    asked
        .respond_with(
            move |row| Reply::created(&new_view(row), &location(&new_view(row))),
            |keep| async {
                let (row, answer) = asked.app.broker.subscriptions(None).create_keeping(new, keep).await?;
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok(row)
            },
        )
        .await
        .map(|told| match made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(made) => {
                let shown = CreatedSubscription { subscription: &made.subscription, secret: made.secret.as_ref() };
                Reply::created(&shown, &format!("/v1/subscriptions/{}", made.subscription.id))
            }
            None => told,
        })
}

async fn list(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let wanted = PageQuery::of(&asked)?;
    asked.app.broker.refresh().await?;
    let page = asked.app.broker.subscriptions(None).list(wanted.cursor.as_ref(), wanted.limit)?;
    pages::page_response(&page, wanted.limit)
}

/// The subscription a path names; a verb of one does not take this method.
fn id_of(asked: &ApiRequest) -> HandlerResult<String> {
    match custom_methods::split(asked.path_param("id")) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(id.to_owned()),
    }
}

async fn show(asked: ApiRequest) -> HandlerResult {
    let id = id_of(&asked)?;
    asked.allow_params(&[])?.check_accepts_json()?;
    asked.app.broker.refresh().await?;
    pages::json_response(&asked.app.broker.subscriptions(None).get(&id)?)
}

async fn change(mut asked: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&asked)?;
    asked.allow_params(&[])?;
    let change: SubscriptionChange = asked.json().await?;
    asked.app.broker.refresh().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.respond_with(Reply::ok, |keep| subscriptions.change(&id, change, keep)).await
}

async fn remove(asked: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&asked)?;
    asked.allow_params(&[])?;
    let by = producer(asked.headers())?;
    asked.app.broker.refresh().await?;
    let subscriptions = asked.app.broker.subscriptions(by.as_ref());
    asked.respond_with(Reply::no_content, |keep| subscriptions.delete(&id, keep)).await
}

async fn groups(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let wanted = PageQuery::of(&asked)?;
    asked.app.broker.refresh().await?;
    let found = asked.app.broker.subscriptions(None).find(asked.path_param("id"))?;
    let page = asked.app.broker.jobs(None).groups(found, wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
}

async fn replays(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    asked.app.broker.refresh().await?;
    let replays = asked.app.broker.subscriptions(None).replays(asked.path_param("id"))?;
    pages::json_response(&json!({"items": replays}))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotateSecretBody {
    grace_seconds: Option<u32>,
    kind: Option<SecretKindName>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum SecretKindName {
    Symmetric,
    Asymmetric,
}

/// A body that may be left out.
async fn optional_body<T: DeserializeOwned + Default>(asked: &mut ApiRequest) -> HandlerResult<T> {
    let bytes = asked.bytes().await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    asked.check_sends_json()?;
    Ok(body::json(asked.app.profile(), &bytes)?)
}

/// `POST /v1/subscriptions/{id}:pause`, `:resume`, `:close-breaker`, `:rotate-secret`, `:test` and `:replay`.
async fn custom_method(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let piece = asked.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    let by = producer(asked.headers())?;
    let app = asked.app.clone();
    let subscriptions = app.broker.subscriptions(by.as_ref());
    match verb {
        Some("pause") => {
            let PauseBody { reason } = optional_body(&mut asked).await?;
            app.broker.refresh().await?;
            asked.respond_with(Reply::ok, |keep| subscriptions.pause(id, reason, keep)).await
        }
        Some("resume") => {
            app.broker.refresh().await?;
            asked.respond_with(Reply::ok, |keep| subscriptions.resume(id, keep)).await
        }
        Some("close-breaker") => {
            app.broker.refresh().await?;
            asked.respond_with(Reply::ok, |keep| subscriptions.close_breaker(id, keep)).await
        }
        Some("rotate-secret") => {
            let RotateSecretBody { grace_seconds, kind } = optional_body(&mut asked).await?;
            let kind = kind.map_or(SecretKind::Symmetric, |kind| match kind {
                SecretKindName::Symmetric => SecretKind::Symmetric,
                SecretKindName::Asymmetric => SecretKind::Asymmetric,
            });
            app.broker.refresh().await?;
            asked.respond_with(Reply::ok, |keep| subscriptions.rotate(id, grace_seconds, kind, keep)).await
        }
        Some("test") => {
            app.broker.refresh().await?;
            let (_, row) = subscriptions.find(id)?;
            // Nothing of it is in the log; whoever asks again wants another try.
            Ok(Reply::ok(&app.broker.jobs(None).test(&row).await?).without_storing())
        }
        Some("replay") => {
            let replay: NewReplay = asked.json().await?;
            app.broker.refresh().await?;
            asked.respond_with(Reply::ok, |keep| subscriptions.replay(id, replay, keep)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD, PATCH, DELETE")),
    }
}
