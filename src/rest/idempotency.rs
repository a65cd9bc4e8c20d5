//! `Idempotency-Key`: a writing request that is sent again is answered again, and carried out once.
//!
//! ```text
//!   key ──▶ turn ──▶ known? ── yes, same request ──▶ its answer, Idempotent-Replayed
//!            │         │  └─── yes, another one ───▶ 409 idempotency_key_reuse
//!            │         no ──▶ handler ──▶ decision: effect and answer in one append
//!            └ taken: 409 idempotency_key_in_flight
//! ```
//!
//! - A request without a key goes straight to its handler.
//! - What a verb decides keeps its answer itself. What was refused before a decision, and what took several appends, is
//!   kept here, afterwards: the one had no effect, the other may be asked for again.
//! - Two processes with one key at the same time: the log's order decides, and the later one finds the other's answer.

use super::AppState;
use super::custom_methods;
use super::negotiate;
use super::problem::{HandlerResult, Problem};
use super::reply::{self, Reply};
use super::request::{ApiRequest, BodyLimitFn};
use crate::idempotency::{InFlightGuard, KeyScope, digest};
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

/// The handler of a writing route whose bodies may be as large as `limits` say.
pub(crate) const fn idempotent<H>(limits: BodyLimitFn, handler: H) -> IdempotentHandler<H> {
    IdempotentHandler { limits, handler }
}

/// A handler that is asked once per key.
#[derive(Clone)]
pub(crate) struct IdempotentHandler<H> {
    limits: BodyLimitFn,
    handler: H,
}

impl<H, F> Handler<(), AppState> for IdempotentHandler<H>
where
    H: Fn(ApiRequest) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = HandlerResult<Reply>> + Send + 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: AppState) -> Self::Future {
        Box::pin(async move {
            let asked = match ApiRequest::from_request(request, &app).await {
                Ok(asked) => asked.with_body_limit(self.limits),
                Err(refusal) => return refusal,
            };
            match key_of(asked.headers()) {
                Ok(None) => (self.handler)(asked).await.into_response(),
                // Boxed, so that requests without a key need no room for this.
                Ok(Some(key)) => Box::pin(call_with_key(asked, &key, self.handler)).await.into_response(),
                Err(error) => Problem::from(error).into_response(),
            }
        })
    }
}

/// The key of a request, if it has one.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_key =
        (1..=limits::KEY_BYTES_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if is_key && values.next().is_none() => Ok(Some(key.to_owned())),
        _ => {
            let detail = format!(
                "The header Idempotency-Key must be there once, with 1 to {} visible ASCII characters.",
                limits::KEY_BYTES_MAX
            );
            let violation = Violation::new("/Idempotency-Key", detail.clone());
            Err(Error::new(Kind::Validation, detail).with_violations(vec![violation]))
        }
    }
}

/// The fingerprint a key is remembered under. Whose it is will be filled in here, once callers have names.
pub(crate) fn fingerprint(asked: &ApiRequest, key: &str) -> u128 {
    let template = asked.parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let piece = asked.parts.uri.path().rsplit('/').next().unwrap_or_default();
    let verb = match custom_methods::of_route(template) {
        Some(verbs) => custom_methods::split_identifier(piece, verbs).1,
        None if template.ends_with('}') => piece.rsplit_once(':').map(|(_, verb)| verb),
        None => None,
    };
    let verb = verb.unwrap_or_default();
    let route = format!("{} {template}:{verb}", asked.parts.method);
    KeyScope { tenant: None, actor: None, route: &route, key }.fingerprint()
}

/// The fingerprint of a request with this body: its path, its query and, for a binary CloudEvent, its attributes count.
pub(crate) fn digest_of(asked: &ApiRequest, body: &[u8]) -> u64 {
    let path: Vec<u8> = percent_decode_str(asked.parts.uri.path()).collect();
    let mut query: Vec<_> = asked.params.pairs().collect();
    query.sort_unstable();
    let headers = asked.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut attributes: Vec<_> = headers.filter(|(name, _)| name.starts_with("ce-")).collect();
    attributes.sort_unstable();
    let mut about: Vec<&[u8]> = vec![&path];
    about.extend(query.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    about.push(b"?");
    about.extend(attributes.iter().flat_map(|(name, value)| [name.as_bytes(), *value]));
    digest(&about, negotiate::non_json_media(asked.headers()).as_deref(), body)
}

/// Takes the key for this request.
pub(crate) fn acquire_key(app: &AppState, key: u128) -> Result<InFlightGuard> {
    app.in_flight.enter(key).ok_or_else(IdempotentRequest::in_flight)
}

async fn call_with_key<H, F>(mut asked: ApiRequest, key: &str, handler: H) -> HandlerResult
where
    H: Fn(ApiRequest) -> F,
    F: Future<Output = HandlerResult<Reply>>,
{
    let key = fingerprint(&asked, key);
    let body = asked.bytes().await?;
    let app = asked.app.clone();
    let _turn = acquire_key(&app, key)?;
    let ticket = app.broker.stored_replies().request(key, digest_of(&asked, &body));
    // The handler takes it from the request, and lets go of it when it is parsed.
    drop(body);
    if let Some(answer) = replay_stored(&app, &ticket).await? {
        return Ok(answer);
    }
    let began_at = app.broker.stored_replies().registry_version();
    let outcome = handler(asked.with_idempotent_request(Arc::clone(&ticket))).await;
    let outcome = match store_reply(&app, &ticket, &outcome, began_at).await {
        Ok(()) => outcome,
        Err(problem) => Err(problem),
    };
    match outcome {
        // Somebody else was faster, and is done by now.
        Err(problem) if problem.error().kind() == Kind::IdempotencyKeyInFlight => {
            replay_stored(&app, &ticket).await?.ok_or(problem)
        }
        outcome => outcome.map(IntoResponse::into_response),
    }
}

/// The answer that the request has already.
async fn replay_stored(app: &AppState, request: &IdempotentRequest) -> HandlerResult<Option<Response>> {
    match app.broker.stored_replies().find(request.key).await? {
        None => Ok(None),
        Some(found) if found.answers(request.digest) => Ok(Some(reply::replay_response(found.replay().await?))),
        Some(_) => Err(IdempotentRequest::reused().into()),
    }
}

/// Keeps an answer that no decision has kept.
async fn store_reply(
    app: &AppState,
    request: &Arc<IdempotentRequest>,
    outcome: &HandlerResult<Reply>,
    began_at: Position,
) -> HandlerResult<()> {
    let kept = match outcome {
        _ if request.is_recorded() => None,
        Ok(reply) => reply.to_stored_whole(),
        Err(problem) if is_key_problem(problem) => None,
        Err(problem) => problem.to_stored(),
    };
    match kept {
        Some(kept) => {
            let rests_on = outcome.is_err().then_some(began_at);
            Ok(app.broker.stored_replies().record_reply(Arc::clone(request), kept, rests_on).await?)
        }
        None => Ok(()),
    }
}

fn is_key_problem(problem: &Problem) -> bool {
    matches!(problem.error().kind(), Kind::IdempotencyKeyInFlight | Kind::IdempotencyKeyReuse)
}
