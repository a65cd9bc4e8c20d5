//! A request as its handler sees it: one value with the path, the query, the head and the body.
//!
//! - Nothing is copied: head and body are those of the connection.
//! - A body is read when the handler needs it, within the limit of its route. It stays in memory, with its reservation, as long
//!   as this value.
//! - A request with an `Idempotency-Key` has an `IdempotentRequest`; the reply is then stored together with the effect
//!   ([`ApiRequest::respond_with`]).

use super::AppState;
use super::address_limiter::AddressPermit;
use super::body::{self, BodyLimit};
use super::custom_methods;
use super::negotiate;
use super::parked::WaitingRequest;
use super::problem::{HandlerResult, Problem};
use super::query_params::QueryParams;
use super::reply::Reply;
use super::request_context::RequestContext;
use super::response_budget::{LARGE_RESPONSE_BYTES, SharedReservation};
use crate::broker::BrokerWrites;
use crate::ledger::{IdempotentRequest, ReplyRecorder};
use crate::memory::ByteReservation;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use contract::{Error, Kind, Result, under_profile};
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// The limit of the bodies of a route.
pub(crate) type BodyLimitFn = fn(&AppState, &HeaderMap) -> BodyLimit;

/// For routes without a body: one that is sent is ignored.
pub(crate) const NO_BODY: BodyLimitFn = |_, _| BodyLimit { bytes: 0, too_large: Kind::PayloadTooLarge };

/// A request.
pub(crate) struct ApiRequest {
    pub(crate) app: AppState,
    pub(crate) params: QueryParams,
    /// The head.
    pub(crate) parts: Parts,
    path_params: RawPathParams,
    /// `Body` is not `Sync`; the mutex only makes this struct `Sync`.
    body: Mutex<Body>,
    body_limit: BodyLimitFn,
    buffered: Option<BufferedBody>,
    /// The key under which the reply is stored.
    idempotent_request: Option<Arc<IdempotentRequest>>,
}

/// A body in memory, with its reservation.
struct BufferedBody {
    bytes: Bytes,
    _room: Option<ByteReservation>,
}

impl FromRequest<AppState> for ApiRequest {
    type Rejection = Response;

    async fn from_request(request: Request, app: &AppState) -> std::result::Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let pieces = RawPathParams::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let params = QueryParams::parse(parts.uri.query().unwrap_or_default());
        let params = params.map_err(|error| Problem::from(error).into_response())?.with_profile(app.profile());
        let body = Mutex::new(body);
        Ok(Self {
            app: app.clone(),
            params,
            parts,
            path_params: pieces,
            body,
            body_limit: NO_BODY,
            buffered: None,
            idempotent_request: None,
        })
    }
}

impl ApiRequest {
    /// The same, with the limit of its body.
    pub(crate) fn with_body_limit(mut self, limits: BodyLimitFn) -> Self {
        self.body_limit = limits;
        self
    }

    /// The same, with a key under which the reply is stored.
    pub(crate) fn with_idempotent_request(mut self, request: Arc<IdempotentRequest>) -> Self {
        self.idempotent_request = Some(request);
        self
    }

    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// A decoded parameter of the path; empty if the route has none of the name.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.path_params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the path that is an identifier.
    pub(crate) fn identifier<T: FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        self.parse_identifier(self.path_param(name))
    }

    /// The decoded name and the custom method in the last segment of the path.
    pub(crate) fn identifier_and_method(&self, verbs: &[&'static str]) -> (String, Option<&'static str>) {
        let piece = self.parts.uri.path().rsplit('/').next().unwrap_or_default();
        let (id, verb) = custom_methods::split_identifier(piece, verbs);
        (percent_decode_str(id).decode_utf8_lossy().into_owned(), verb)
    }

    /// Parses an identifier by the profile of this broker.
    pub(crate) fn parse_identifier<T: FromStr<Err = Error>>(&self, text: &str) -> Result<T> {
        under_profile(self.app.profile(), || text.parse())
    }

    /// Refuses parameters that are not among `known`.
    pub(crate) fn allow_params(&self, known: &[&str]) -> Result<&Self> {
        self.params.allow_only(known)?;
        Ok(self)
    }

    /// Refuses parameters that neither filter events nor are among `known`.
    pub(crate) fn allow_filters_and(&self, known: &[&str]) -> Result<&Self> {
        self.params.allow_filters_and(known)?;
        Ok(self)
    }

    /// Refuses callers that do not accept JSON.
    pub(crate) fn check_accepts_json(&self) -> Result<()> {
        negotiate::expect_json_accepted(self.headers())
    }

    /// Refuses a body whose `Content-Type` is not JSON.
    pub(crate) fn check_sends_json(&self) -> Result<()> {
        negotiate::expect_json(self.headers())
    }

    /// The body, if the route has one.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes, Problem> {
        if let Some(held) = &self.buffered {
            return Ok(held.bytes.clone());
        }
        let limit = (self.body_limit)(&self.app, &self.parts.headers);
        if limit.bytes == 0 {
            return Ok(Bytes::new());
        }
        let body = std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner));
        let (bytes, reservation) = body::read_body(&self.app, &self.parts.headers, body, limit).await?;
        // The reservation of a large body is passed on to the response.
        let reservation = match self.parts.extensions.get::<SharedReservation>() {
            Some(kept) if bytes.len() >= LARGE_RESPONSE_BYTES => {
                kept.store(reservation);
                None
            }
            _ => Some(reservation),
        };
        Ok(self.buffered.insert(BufferedBody { bytes, _room: reservation }).bytes.clone())
    }

    /// Drops a body that has been parsed. Its reservation stays: the parsed value needs about as much.
    pub(crate) fn release_bytes(&mut self) {
        if let Some(held) = &mut self.buffered {
            held.bytes = Bytes::new();
        }
    }

    /// The body, which must be a JSON object.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        self.check_sends_json()?;
        Ok(body::json(self.app.profile(), &self.bytes().await?)?)
    }

    /// The same for an optional body.
    pub(crate) async fn optional_json<T: DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        self.check_sends_json()?;
        Ok(body::json(self.app.profile(), &bytes)?)
    }

    /// The body as a stream of any length; the rest of the request is dropped.
    pub(crate) fn into_body(self) -> (AppState, Body) {
        (self.app, self.body.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops the request.
    pub(crate) fn into_app(self) -> AppState {
        self.app
    }

    /// Drops the request, except what waiting needs.
    pub(crate) fn into_waiting(self) -> (AppState, WaitingRequest) {
        let waits = Arc::clone(self.app.waits());
        (self.app, WaitingRequest::new(self.parts, waits))
    }

    /// Counts the request among those that wait, and lifts its time-out.
    pub(crate) fn begin_wait(&self) -> Result<Option<AddressPermit>> {
        let context = self.parts.extensions.get::<RequestContext>();
        debug_assert!(context.is_some(), "the middleware gives every request a context");
        context.map(|context| context.begin_wait(self.app.waits())).transpose()
    }

    /// The writing methods of the broker.
    pub(crate) fn writes(&self) -> BrokerWrites<'_> {
        self.app.broker.writes()
    }

    /// Runs a writing method and renders its reply. With a key, effect and reply are stored in one append.
    pub(crate) async fn respond_with<A, T, F>(
        &self,
        reply: T,
        verb: impl FnOnce(ReplyRecorder<A>) -> F,
    ) -> HandlerResult<Reply>
    where
        A: 'static,
        T: Fn(&A) -> Reply + Clone + Send + Sync + 'static,
        F: Future<Output = Result<A>>,
    {
        let recorder = match &self.idempotent_request {
            None => ReplyRecorder::disabled(),
            Some(request) => {
                let reply = reply.clone();
                ReplyRecorder::new(Arc::clone(request), move |answer: Result<&A, &Error>| match answer {
                    Ok(answer) => reply(answer).to_stored(),
                    Err(error) => Problem::from(error.clone()).to_stored(),
                })
            }
        };
        Ok(reply(&verb(recorder).await?))
    }
}
