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
async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let new: NewSubscription = request.json().await?;
    let made = Mutex::new(None);
    let location = |row: &Subscription| format!("/v1/subscriptions/{}", row.id);
    request
        .respond_with(
            move |row| Reply::created(&new_view(row), &location(&new_view(row))),
            |recorder| async {
                let (row, answer) = request.app.broker.subscriptions(None).create_keeping(new, recorder).await?;
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok(row)
            },
        )
        .await
        .map(|reply| match made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(made) => {
                let shown = CreatedSubscription { subscription: &made.subscription, secret: made.secret.as_ref() };
                Reply::created(&shown, &format!("/v1/subscriptions/{}", made.subscription.id))
            }
            None => reply,
        })
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    request.app.broker.refresh().await?;
    let page = request.app.broker.subscriptions(None).list(query.cursor.as_ref(), query.limit)?;
    pages::page_response(&page, query.limit)
}

/// The subscription a path names; a verb of one does not take this method.
fn id_of(request: &ApiRequest) -> HandlerResult<String> {
    match custom_methods::split(request.path_param("id")) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(id.to_owned()),
    }
}

async fn show(request: ApiRequest) -> HandlerResult {
    let id = id_of(&request)?;
    request.allow_params(&[])?.check_accepts_json()?;
    request.app.broker.refresh().await?;
    pages::json_response(&request.app.broker.subscriptions(None).get(&id)?)
}

async fn change(mut request: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&request)?;
    request.allow_params(&[])?;
    let change: SubscriptionChange = request.json().await?;
    request.app.broker.refresh().await?;
    let subscriptions = request.app.broker.subscriptions(None);
    request.respond_with(Reply::ok, |recorder| subscriptions.change(&id, change, recorder)).await
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&request)?;
    request.allow_params(&[])?;
    let by = producer(request.headers())?;
    request.app.broker.refresh().await?;
    let subscriptions = request.app.broker.subscriptions(by.as_ref());
    request.respond_with(Reply::no_content, |recorder| subscriptions.delete(&id, recorder)).await
}

async fn groups(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    request.app.broker.refresh().await?;
    let found = request.app.broker.subscriptions(None).find(request.path_param("id"))?;
    let page = request.app.broker.jobs(None).groups(found, query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn replays(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    request.app.broker.refresh().await?;
    let replays = request.app.broker.subscriptions(None).replays(request.path_param("id"))?;
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
async fn optional_body<T: DeserializeOwned + Default>(request: &mut ApiRequest) -> HandlerResult<T> {
    let bytes = request.bytes().await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    request.check_sends_json()?;
    Ok(body::json(request.app.profile(), &bytes)?)
}

/// `POST /v1/subscriptions/{id}:pause`, `:resume`, `:close-breaker`, `:rotate-secret`, `:test` and `:replay`.
async fn custom_method(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let piece = request.path_param("id").to_owned();
    let (id, verb) = custom_methods::split(&piece);
    let by = producer(request.headers())?;
    let app = request.app.clone();
    let subscriptions = app.broker.subscriptions(by.as_ref());
    match verb {
        Some("pause") => {
            let PauseBody { reason } = optional_body(&mut request).await?;
            app.broker.refresh().await?;
            request.respond_with(Reply::ok, |recorder| subscriptions.pause(id, reason, recorder)).await
        }
        Some("resume") => {
            app.broker.refresh().await?;
            request.respond_with(Reply::ok, |recorder| subscriptions.resume(id, recorder)).await
        }
        Some("close-breaker") => {
            app.broker.refresh().await?;
            request.respond_with(Reply::ok, |recorder| subscriptions.close_breaker(id, recorder)).await
        }
        Some("rotate-secret") => {
            let RotateSecretBody { grace_seconds, kind } = optional_body(&mut request).await?;
            let kind = kind.map_or(SecretKind::Symmetric, |kind| match kind {
                SecretKindName::Symmetric => SecretKind::Symmetric,
                SecretKindName::Asymmetric => SecretKind::Asymmetric,
            });
            app.broker.refresh().await?;
            request.respond_with(Reply::ok, |recorder| subscriptions.rotate(id, grace_seconds, kind, recorder)).await
        }
        Some("test") => {
            app.broker.refresh().await?;
            let (_, row) = subscriptions.find(id)?;
            // Nothing of it is in the log; whoever asks again wants another try.
            Ok(Reply::ok(&app.broker.jobs(None).test(&row).await?).without_storing())
        }
        Some("replay") => {
            let replay: NewReplay = request.json().await?;
            app.broker.refresh().await?;
            request.respond_with(Reply::ok, |recorder| subscriptions.replay(id, replay, recorder)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD, PATCH, DELETE")),
    }
}
