//! `Idempotency-Key`: a writing request that is retried gets the same response again, and is executed once.
//!
//! ```text
//!   key ──▶ guard ──▶ known? ── yes, same request ────▶ its response, Idempotent-Replayed
//!             │         │  └─── yes, another request ─▶ 409 idempotency_key_reuse
//!             │         no ──▶ handler ──▶ decision: effect and response in one append
//!             └ in use: 409 idempotency_key_in_flight
//! ```
//!
//! - A request without a key goes straight to its handler.
//! - A decision stores its response itself. The response to a request that was refused before a decision, or that took several
//!   appends, is stored here afterwards: the first had no effect, the second can be retried.
//! - Two processes with one key at the same time: the order of the log decides, and the later one finds the other's response.
//! - A replayed publish with `waitFor` waits again: the projections may not have applied its events yet.

use super::AppState;
use super::custom_methods;
use super::negotiate;
use super::problem::{HandlerResult, Problem};
use super::projections::ProjectionWait;
use super::reply::{self, Reply};
use super::request::{ApiRequest, BodyLimitFn};
use crate::idempotency::{InFlightGuard, KeyScope, ReplayedReply, digest};
use crate::ledger::IdempotentRequest;
use axum::extract::{FromRequest, MatchedPath, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use contract::{Error, Kind, Position, Result, Violation, limits};
use http::HeaderMap;
use http::header::HeaderName;
use percent_encoding::percent_decode_str;
use std::pin::Pin;
use std::sync::Arc;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The handler of a writing route, with the limit of its bodies.
pub(crate) const fn idempotent<H>(limits: BodyLimitFn, handler: H) -> IdempotentHandler<H> {
    IdempotentHandler { limits, handler, is_publish: false }
}

/// The same for a route that publishes events, whose requests may wait for projections.
pub(crate) const fn idempotent_publish<H>(limits: BodyLimitFn, handler: H) -> IdempotentHandler<H> {
    IdempotentHandler { limits, handler, is_publish: true }
}

/// A handler that is called once per key.
#[derive(Clone)]
pub(crate) struct IdempotentHandler<H> {
    limits: BodyLimitFn,
    handler: H,
    is_publish: bool,
}

impl<H, F> Handler<(), AppState> for IdempotentHandler<H>
where
    H: Fn(ApiRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = HandlerResult<Reply>> + Send + 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: AppState) -> Self::Future {
        Box::pin(async move {
            let request = match ApiRequest::from_request(request, &app).await {
                Ok(request) => request.with_body_limit(self.limits),
                Err(refusal) => return refusal,
            };
            match key_of(request.headers()) {
                Ok(None) => (self.handler)(request).await.into_response(),
                // Boxed, so that the futures of requests without a key stay small.
                Ok(Some(key)) => Box::pin(call_with_key(request, &key, self)).await.into_response(),
                Err(error) => Problem::from(error).into_response(),
            }
        })
    }
}

/// The key of a request; `None` if it has none.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_key =
        (1..=limits::KEY_BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if is_key && values.next().is_none() => Ok(Some(key.to_owned())),
        _ => {
            let detail = format!(
                "The header Idempotency-Key must occur once, with 1 to {} visible ASCII characters.",
                limits::KEY_BYTES_MAX
            );
            let violation = Violation::new("/Idempotency-Key", detail.clone());
            Err(Error::new(Kind::Validation, detail).with_violations(vec![violation]))
        }
    }
}

/// The fingerprint under which a key is stored. The tenant and the actor are part of it as soon as callers are authenticated.
pub(crate) fn fingerprint(request: &ApiRequest, key: &str) -> u128 {
    let template = request.parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let piece = request.parts.uri.path().rsplit('/').next().unwrap_or_default();
    let verb = match custom_methods::of_route(template) {
        Some(verbs) => custom_methods::split_identifier(piece, verbs).1,
        None if template.ends_with('}') => piece.rsplit_once(':').map(|(_, verb)| verb),
        None => None,
    };
    let verb = verb.unwrap_or_default();
    let route = format!("{} {template}:{verb}", request.parts.method);
    KeyScope { tenant: None, actor: None, route: &route, key }.fingerprint()
}

/// The digest of a request with this body: of its path, its query, its body and the attributes of a binary CloudEvent.
pub(crate) fn digest_of(request: &ApiRequest, body: &[u8]) -> u64 {
    let path: Vec<u8> = percent_decode_str(request.parts.uri.path()).collect();
    let mut query: Vec<_> = request.params.pairs().collect();
    query.sort_unstable();
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut attributes: Vec<_> = headers.filter(|(name, _)| name.starts_with("ce-")).collect();
    attributes.sort_unstable();
    let mut parts: Vec<&[u8]> = vec![&path];
    parts.extend(query.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    parts.push(b"?");
    parts.extend(attributes.iter().flat_map(|(name, value)| [name.as_bytes(), *value]));
    digest(&parts, negotiate::non_json_media(request.headers()).as_deref(), body)
}

/// Takes the key for this request; `Err` while another request has it.
pub(crate) fn acquire_key(app: &AppState, key: u128) -> Result<InFlightGuard> {
    app.in_flight.enter(key).ok_or_else(IdempotentRequest::in_flight)
}

async fn call_with_key<H, F>(mut request: ApiRequest, key: &str, route: IdempotentHandler<H>) -> HandlerResult
where
    H: Fn(ApiRequest) -> F,
    F: Future<Output = HandlerResult<Reply>>,
{
    let key = fingerprint(&request, key);
    let body = request.bytes().await?;
    let app = request.app.clone();
    let _guard = acquire_key(&app, key)?;
    let waits = route.is_publish && request.params.one("waitFor")?.is_some();
    let idempotent = app.broker.stored_replies().request(key, digest_of(&request, &body));
    // The handler takes the body from the request, and releases it when it is parsed.
    drop(body);
    if let Some(replay) = find_stored(&app, &idempotent).await? {
        if waits && (200..300).contains(&replay.status) {
            ProjectionWait::wait_replayed(&request, &replay.body).await?;
        }
        return Ok(reply::replay_response(replay));
    }
    let began_at = app.broker.stored_replies().registry_version();
    let outcome = (route.handler)(request.with_idempotent_request(Arc::clone(&idempotent))).await;
    let outcome = match store_reply(&app, &idempotent, &outcome, began_at).await {
        Ok(()) => outcome,
        Err(problem) => Err(problem),
    };
    match outcome {
        // Another process was faster, and its response is stored by now. A request that waits for projections is retried by its
        // caller, and waits then.
        Err(problem) if problem.error().kind() == Kind::IdempotencyKeyInFlight && !waits => {
            find_stored(&app, &idempotent).await?.map(reply::replay_response).ok_or(problem)
        }
        outcome => outcome.map(IntoResponse::into_response),
    }
}

/// The stored response to this request.
async fn find_stored(app: &AppState, request: &IdempotentRequest) -> HandlerResult<Option<ReplayedReply>> {
    match app.broker.stored_replies().find(request.key).await? {
        None => Ok(None),
        Some(found) if found.answers(request.digest) => Ok(Some(found.replay().await?)),
        Some(_) => Err(IdempotentRequest::reused().into()),
    }
}

/// Stores a reply that no decision has stored.
async fn store_reply(
    app: &AppState,
    request: &Arc<IdempotentRequest>,
    outcome: &HandlerResult<Reply>,
    began_at: Position,
) -> HandlerResult<()> {
    let stored = match outcome {
        _ if request.is_recorded() => None,
        // Its events may be in several logs. They are named, not copied: an erased event must be gone.
        Ok(reply) => match app.broker.stored_replies().name_events(reply.stored_events()).await? {
            Some(names) => reply.to_stored_with(names),
            None => None,
        },
        Err(problem) if is_key_problem(problem) => None,
        Err(problem) => problem.to_stored(),
    };
    match stored {
        Some(stored) => {
            let rests_on = outcome.is_err().then_some(began_at);
            Ok(app.broker.stored_replies().record_reply(Arc::clone(request), stored, rests_on).await?)
        }
        None => Ok(()),
    }
}

fn is_key_problem(problem: &Problem) -> bool {
    matches!(problem.error().kind(), Kind::IdempotencyKeyInFlight | Kind::IdempotencyKeyReuse)
}
