//! A request as its handler sees it: one value that has the path, the query, the head and the body.
//!
//! - Every handler asks in the same few words, and nothing is copied on the way: head and body are the connection's own.
//! - A body is read when it is wanted, within the limit of its route. It stays, with the room it takes, as long as this.
//! - A request under a key carries its ticket; what a verb answers is then kept with what it did ([`Asked::tell`]).

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

/// What the body of a route's requests may be.
pub(crate) type BodyLimitFn = fn(&AppState, &HeaderMap) -> BodyLimit;

/// For routes that take no body: one that is sent is passed over.
pub(crate) const NO_BODY: BodyLimitFn = |_, _| BodyLimit { bytes: 0, too_large: Kind::PayloadTooLarge };

/// A request.
pub(crate) struct ApiRequest {
    pub(crate) app: AppState,
    pub(crate) params: QueryParams,
    /// Its head.
    pub(crate) parts: Parts,
    path_params: RawPathParams,
    /// Behind a lock that nobody takes: a body may not be looked at from two threads, and this may.
    body: Mutex<Body>,
    body_limit: BodyLimitFn,
    buffered: Option<BufferedBody>,
    /// What its answer is kept under.
    idempotent_request: Option<Arc<IdempotentRequest>>,
}

/// A body in memory, with the room it takes.
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
    /// The same, of a route whose bodies may be this large.
    pub(crate) fn with_body_limit(mut self, limits: BodyLimitFn) -> Self {
        self.body_limit = limits;
        self
    }

    /// The same, with its answer to be kept.
    pub(crate) fn with_idempotent_request(mut self, request: Arc<IdempotentRequest>) -> Self {
        self.idempotent_request = Some(request);
        self
    }

    /// Its headers.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// A piece of its path, decoded; empty where the route has none of the name.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.path_params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The identifier that a piece of its path is.
    pub(crate) fn identifier<T: FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        self.parse_identifier(self.path_param(name))
    }

    /// The identifier, decoded, and the verb that the last piece of its path is made of.
    pub(crate) fn identifier_and_method(&self, verbs: &[&'static str]) -> (String, Option<&'static str>) {
        let piece = self.parts.uri.path().rsplit('/').next().unwrap_or_default();
        let (id, verb) = custom_methods::split_identifier(piece, verbs);
        (percent_decode_str(id).decode_utf8_lossy().into_owned(), verb)
    }

    /// Reads an identifier as this broker takes them.
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

    /// Refuses callers that do not take JSON.
    pub(crate) fn check_accepts_json(&self) -> Result<()> {
        negotiate::expect_json_accepted(self.headers())
    }

    /// Refuses a body that is not said to be JSON.
    pub(crate) fn check_sends_json(&self) -> Result<()> {
        negotiate::expect_json(self.headers())
    }

    /// Its body, if its route takes one.
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
        // The room of a large body goes on to its answer.
        let reservation = match self.parts.extensions.get::<SharedReservation>() {
            Some(kept) if bytes.len() >= LARGE_RESPONSE_BYTES => {
                kept.store(reservation);
                None
            }
            _ => Some(reservation),
        };
        Ok(self.buffered.insert(BufferedBody { bytes, _room: reservation }).bytes.clone())
    }

    /// Lets go of a body that has been parsed. Its room is kept: what was parsed from it takes about as much.
    pub(crate) fn release_bytes(&mut self) {
        if let Some(held) = &mut self.buffered {
            held.bytes = Bytes::new();
        }
    }

    /// Its body, which must be JSON, and an object.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        self.check_sends_json()?;
        Ok(body::json(self.app.profile(), &self.bytes().await?)?)
    }

    /// The same where the body may be absent.
    pub(crate) async fn optional_json<T: DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        self.check_sends_json()?;
        Ok(body::json(self.app.profile(), &bytes)?)
    }

    /// Its body as it comes, of any length, with nothing else of it.
    pub(crate) fn into_body(self) -> (AppState, Body) {
        (self.app, self.body.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets go of it.
    pub(crate) fn into_app(self) -> AppState {
        self.app
    }

    /// Lets go of it, but for what it takes to wait.
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

    /// The broker's writing verbs.
    pub(crate) fn writes(&self) -> BrokerWrites<'_> {
        self.app.broker.writes()
    }

    /// Has a verb carried out and tells what came of it; under a key both are written together.
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
