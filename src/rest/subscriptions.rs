//! Subscriptions: routes to create, change, pause, replay and test them.

use super::AppState;
use super::body::{self, BodyLimit};
use super::custom_methods;
use super::events::{producer, with_suspected};
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use crate::subscriptions::new_view;
use axum::Router;
use axum::routing::get;
use contract::{Kind, NewReplay, NewSecret, NewSubscription, SecretRotation, Subscription, SubscriptionChange};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Mutex, PoisonError};

/// Largest body of a definition, with certificates.
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

/// `POST /v1/subscriptions`. The stored reply of an idempotency key does not contain the secret.
async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let new: NewSubscription = request.json().await?;
    let made = Mutex::new(None);
    let suspected = request.writes().suspected_headers(&new.topic, &new.headers);
    let stored_suspected = suspected.clone();
    let location = |row: &Subscription| format!("/v1/subscriptions/{}", row.id);
    request
        .respond_with(
            move |row| with_suspected(Reply::created(&new_view(row), &location(&new_view(row))), &stored_suspected),
            |recorder| async {
                let (row, answer) = request.writes().create_subscription(new, recorder).await?;
                *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok(row)
            },
        )
        .await
        .map(|reply| match made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(made) => {
                let shown = CreatedSubscription { subscription: &made.subscription, secret: made.secret.as_ref() };
                let location = format!("/v1/subscriptions/{}", made.subscription.id);
                with_suspected(Reply::created(&shown, &location), &suspected)
            }
            None => reply,
        })
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let page = request.app.events().subscriptions(query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

/// The subscription in the path; a path with a verb does not accept this method.
fn id_of(request: &ApiRequest) -> HandlerResult<String> {
    match custom_methods::split(request.path_param("id")) {
        (_, Some(_)) => Err(Problem::not_allowed("POST")),
        (id, None) => Ok(id.to_owned()),
    }
}

async fn show(request: ApiRequest) -> HandlerResult {
    let id = id_of(&request)?;
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().subscription(&id).await?)
}

async fn change(mut request: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&request)?;
    request.allow_params(&[])?;
    let change: SubscriptionChange = request.json().await?;
    let suspected = match &change.headers {
        Some(headers) => {
            let known = request.app.events().subscription(&id).await?;
            request.writes().suspected_headers(&known.definition.topic, headers)
        }
        None => Vec::new(),
    };
    let changed = move |row: &Subscription| with_suspected(Reply::ok(row), &suspected);
    request.respond_with(changed, |recorder| request.writes().change_subscription(&id, change, recorder)).await
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    let id = id_of(&request)?;
    request.allow_params(&[])?;
    let by = producer(request.headers())?;
    let (id, by) = (id.as_str(), by.as_ref());
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_subscription(id, by, recorder)).await
}

async fn groups(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    let id = request.path_param("id");
    let page = request.app.events().blocked_groups(id, query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn replays(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    let replays = request.app.events().replays(request.path_param("id")).await?;
    pages::json_response(&json!({"items": replays}))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    reason: Option<String>,
}

/// An optional body.
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
    let by = by.as_ref();
    let app = request.app.clone();
    let writes = app.broker.writes();
    match verb {
        Some("pause") => {
            let PauseBody { reason } = optional_body(&mut request).await?;
            request.respond_with(Reply::ok, |recorder| writes.pause_subscription(id, reason, by, recorder)).await
        }
        Some("resume") => request.respond_with(Reply::ok, |recorder| writes.resume_subscription(id, recorder)).await,
        Some("close-breaker") => {
            request.respond_with(Reply::ok, |recorder| writes.close_breaker(id, by, recorder)).await
        }
        Some("rotate-secret") => {
            let rotation: SecretRotation = optional_body(&mut request).await?;
            request.respond_with(Reply::ok, |recorder| writes.rotate_secret(id, rotation, recorder)).await
        }
        Some("test") => {
            // The receiver has `timeoutSeconds`, which may be more than a request has.
            let _permit = request.begin_wait()?;
            // The reply is not stored: a client that repeats the request wants another delivery.
            Ok(Reply::ok(&app.events().test_subscription(id).await?).without_storing())
        }
        Some("replay") => {
            let replay: NewReplay = request.json().await?;
            request.respond_with(Reply::ok, |recorder| writes.replay_subscription(id, replay, recorder)).await
        }
        Some(_) => Err(custom_methods::unknown()),
        None => Err(Problem::not_allowed("GET, HEAD, PATCH, DELETE")),
    }
}
