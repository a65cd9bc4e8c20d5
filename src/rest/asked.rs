//! A request as its handler sees it: one value that has the path, the query, the head and the body.
//!
//! - Every handler asks in the same few words, and nothing is copied on the way: head and body are the connection's own.
//! - A body is read when it is wanted, within the limit of its route. It stays, with the room it takes, as long as this.
//! - A request under a key carries its ticket; what a verb answers is then kept with what it did ([`Asked::tell`]).

use super::App;
use super::body::{self, Limit};
use super::crowd::Member;
use super::negotiate;
use super::params::Params;
use super::parking::{Entrance, Patient, enter};
use super::problem::{Answer, Problem};
use super::sending::{BodyRoom, LARGE};
use super::told::Told;
use super::verb;
use crate::broker::Writes;
use crate::ledger::{Keep, Ticket};
use crate::memory::Room;
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
pub(crate) type Limits = fn(&App, &HeaderMap) -> Limit;

/// For routes that take no body: one that is sent is passed over.
pub(crate) const NO_BODY: Limits = |_, _| Limit { bytes: 0, too_large: Kind::PayloadTooLarge };

/// A request.
pub(crate) struct Asked {
    pub(crate) app: App,
    pub(crate) params: Params,
    /// Its head.
    pub(crate) parts: Parts,
    pieces: RawPathParams,
    /// Behind a lock that nobody takes: a body may not be looked at from two threads, and this may.
    body: Mutex<Body>,
    limits: Limits,
    held: Option<Held>,
    /// What its answer is kept under.
    ticket: Option<Arc<Ticket>>,
}

/// A body in memory, with the room it takes.
struct Held {
    bytes: Bytes,
    _room: Option<Room>,
}

impl FromRequest<App> for Asked {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> std::result::Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let pieces = RawPathParams::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let params = Params::parse(parts.uri.query().unwrap_or_default());
        let params = params.map_err(|error| Problem::from(error).into_response())?.under(app.profile());
        let body = Mutex::new(body);
        Ok(Self { app: app.clone(), params, parts, pieces, body, limits: NO_BODY, held: None, ticket: None })
    }
}

impl Asked {
    /// The same, of a route whose bodies may be this large.
    pub(crate) fn within(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same, with its answer to be kept.
    pub(crate) fn under(mut self, ticket: Arc<Ticket>) -> Self {
        self.ticket = Some(ticket);
        self
    }

    /// Its headers.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// A piece of its path, decoded; empty where the route has none of the name.
    pub(crate) fn piece(&self, name: &str) -> &str {
        self.pieces.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The identifier that a piece of its path is.
    pub(crate) fn identifier<T: FromStr<Err = Error>>(&self, name: &str) -> Result<T> {
        self.parse_identifier(self.piece(name))
    }

    /// The identifier, decoded, and the verb that the last piece of its path is made of.
    pub(crate) fn identifier_and_verb(&self, verbs: &[&'static str]) -> (String, Option<&'static str>) {
        let piece = self.parts.uri.path().rsplit('/').next().unwrap_or_default();
        let (id, verb) = verb::split_identifier(piece, verbs);
        (percent_decode_str(id).decode_utf8_lossy().into_owned(), verb)
    }

    /// Reads an identifier as this broker takes them.
    pub(crate) fn parse_identifier<T: FromStr<Err = Error>>(&self, text: &str) -> Result<T> {
        under_profile(self.app.profile(), || text.parse())
    }

    /// Refuses parameters that are not among `known`.
    pub(crate) fn takes(&self, known: &[&str]) -> Result<&Self> {
        self.params.only(known)?;
        Ok(self)
    }

    /// Refuses parameters that neither filter events nor are among `known`.
    pub(crate) fn takes_filters_and(&self, known: &[&str]) -> Result<&Self> {
        self.params.only_filters_and(known)?;
        Ok(self)
    }

    /// Refuses callers that do not take JSON.
    pub(crate) fn wants_json(&self) -> Result<()> {
        negotiate::expect_json_taken(self.headers())
    }

    /// Refuses a body that is not said to be JSON.
    pub(crate) fn sends_json(&self) -> Result<()> {
        negotiate::expect_json(self.headers())
    }

    /// Its body, if its route takes one.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes, Problem> {
        if let Some(held) = &self.held {
            return Ok(held.bytes.clone());
        }
        let limit = (self.limits)(&self.app, &self.parts.headers);
        if limit.bytes == 0 {
            return Ok(Bytes::new());
        }
        let body = std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner));
        let (bytes, room) = body::take(&self.app, &self.parts.headers, body, limit).await?;
        // The room of a large body goes on to its answer.
        let room = match self.parts.extensions.get::<BodyRoom>() {
            Some(kept) if bytes.len() >= LARGE => {
                kept.leave(room);
                None
            }
            _ => Some(room),
        };
        Ok(self.held.insert(Held { bytes, _room: room }).bytes.clone())
    }

    /// Lets go of a body that has been parsed. Its room is kept: what was parsed from it takes about as much.
    pub(crate) fn release_bytes(&mut self) {
        if let Some(held) = &mut self.held {
            held.bytes = Bytes::new();
        }
    }

    /// Its body, which must be JSON, and an object.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        self.sends_json()?;
        Ok(body::json(self.app.profile(), &self.bytes().await?)?)
    }

    /// The same where the body may be absent.
    pub(crate) async fn optional_json<T: DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        self.sends_json()?;
        Ok(body::json(self.app.profile(), &bytes)?)
    }

    /// Its body as it comes, of any length, with nothing else of it.
    pub(crate) fn into_body(self) -> (App, Body) {
        (self.app, self.body.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets go of it.
    pub(crate) fn into_app(self) -> App {
        self.app
    }

    /// Lets go of it, but for what it takes to wait.
    pub(crate) fn into_patient(self) -> (App, Patient) {
        let waits = Arc::clone(self.app.waits());
        (self.app, Patient::new(self.parts, waits))
    }

    /// A place among the requests that wait.
    pub(crate) fn waits(&self) -> Result<Option<Member>> {
        self.parts.extensions.get::<Entrance>().map(|entrance| enter(self.app.waits(), entrance)).transpose()
    }

    /// The broker's writing verbs.
    pub(crate) fn writes(&self) -> Writes<'_> {
        self.app.broker.writes()
    }

    /// Has a verb carried out and tells what came of it; under a key both are written together.
    pub(crate) async fn tell<A, T, F>(&self, told: T, verb: impl FnOnce(Keep<A>) -> F) -> Answer<Told>
    where
        A: 'static,
        T: Fn(&A) -> Told + Clone + Send + Sync + 'static,
        F: Future<Output = Result<A>>,
    {
        let keep = match &self.ticket {
            None => Keep::nothing(),
            Some(ticket) => {
                let told = told.clone();
                Keep::new(Arc::clone(ticket), move |answer: Result<&A, &Error>| match answer {
                    Ok(answer) => told(answer).kept(),
                    Err(error) => Problem::from(error.clone()).kept(),
                })
            }
        };
        Ok(told(&verb(keep).await?))
    }
}
