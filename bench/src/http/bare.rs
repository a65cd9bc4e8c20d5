//! A bare axum server: what HTTP and the parsing of a body cost when nothing is done with it.
//!
//! Same allocator, same runtime, same body parsed into a struct whose `data` stays raw text, answered with 201 and the
//! body itself. A page of events is served from memory, made once.

use super::text;
use crate::Outcome;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tokio::net::TcpListener;

/// Bytes a stored event is longer than the one sent, about: what the log knows of it.
const STORED_BYTES: usize = 210;

/// An event as it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Event<'a> {
    id: uuid::Uuid,
    #[serde(rename = "type", borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    subject: Cow<'a, str>,
    #[serde(borrow)]
    subject_type: Cow<'a, str>,
    tenant: uuid::Uuid,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    events: Vec<Event<'a>>,
}

/// Serves until it is killed.
pub(crate) fn serve() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}", listener.local_addr()?);
        let routes = Router::new()
            .route("/v1/events", post(single))
            .route("/v1/events:batch", post(batch))
            .route("/v1/events", get(page))
            .with_state(made_page());
        Ok(axum::serve(listener, routes).await?)
    })
}

async fn single(body: Bytes) -> Response {
    match serde_json::from_slice::<Event<'_>>(&body) {
        Ok(event) => {
            look_at(&event);
            echo(body)
        }
        Err(error) => refused(&error),
    }
}

async fn batch(body: Bytes) -> Response {
    match serde_json::from_slice::<Batch<'_>>(&body) {
        Ok(batch) => {
            batch.events.iter().for_each(look_at);
            echo(body)
        }
        Err(error) => refused(&error),
    }
}

async fn page(State(page): State<Bytes>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

/// So that no part of the parsing can be left out.
fn look_at(event: &Event<'_>) {
    let Event { id, event_type, source, subject, subject_type, tenant, data } = event;
    std::hint::black_box((id, event_type, source, subject, subject_type, tenant, data.get()));
}

fn echo(body: Bytes) -> Response {
    (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn refused(error: &serde_json::Error) -> Response {
    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
}

/// A page of 100 events, about as long as the broker's.
fn made_page() -> Bytes {
    let mut out = br#"{"items":["#.to_vec();
    text::events(&mut out, 0, 100);
    out.resize(out.len() + 100 * STORED_BYTES, b' ');
    out.extend_from_slice(br#"],"nextOffset":100,"tail":100}"#);
    out.into()
}
