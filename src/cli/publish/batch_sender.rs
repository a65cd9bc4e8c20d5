//! Sends events to the broker, batch by batch.
//!
//! - Order is kept: a batch is sent after the response to the previous one.
//! - Every event has an id before it is sent, so a request may be repeated.
//! - A batch that the broker refuses as too large is sent in halves.

use crate::cli::client::{BrokerClient, RequestRetry, parse};
use crate::cli::error::{BrokerRefusal, CliError, CliResult};
use crate::cli::input::JsonValues;
use crate::cli::output::on_one_line;
use contract::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use event_broker_client::connection::suspected_pointers;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::mpsc;
use uuid::Uuid;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The bytes of a batch besides its events.
const FRAME_BYTES: usize = 32;

/// The result of one event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventAnswer {
    /// Its index among all events, from 0.
    pub(super) index: u64,
    status: u16,
    /// The event as it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) payload_mismatch: bool,
    /// The pointers to what looks like a secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) secret_suspected: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip)]
    pub(super) refusal: Option<BrokerRefusal>,
}

/// Sends events.
pub(super) struct BatchSender {
    client: BrokerClient,
    producer_id: Option<String>,
    atomic: bool,
    /// Events answered so far.
    answered: u64,
}

/// Reads events on a separate thread.
pub(super) struct InputReader {
    events: mpsc::Receiver<CliResult<Box<RawValue>>>,
    /// They come at a pace of their own: what is there is not held back for what is not.
    is_live: bool,
}

enum NextInput {
    Event(Box<RawValue>),
    NotYet,
    End,
    Failed(CliError),
}

impl InputReader {
    pub(super) fn start(values: JsonValues, paced: bool) -> Self {
        let (sender, events) = mpsc::channel(BATCH_EVENTS_MAX);
        std::thread::spawn(move || {
            for value in values {
                let failed = value.is_err();
                if sender.blocking_send(value).is_err() || failed {
                    return;
                }
            }
        });
        Self { events, is_live: paced }
    }

    /// The next event; `NotYet` only if the caller can use the time.
    async fn next(&mut self, may_send: bool) -> NextInput {
        let next = match self.is_live && may_send {
            false => self.events.recv().await,
            true => match self.events.try_recv() {
                Ok(event) => Some(event),
                Err(mpsc::error::TryRecvError::Empty) => return NextInput::NotYet,
                Err(mpsc::error::TryRecvError::Disconnected) => None,
            },
        };
        match next {
            Some(Ok(event)) => NextInput::Event(event),
            Some(Err(failure)) => NextInput::Failed(failure),
            None => NextInput::End,
        }
    }
}

/// The answer to a batch.
#[derive(Deserialize)]
struct BatchResponse {
    data: BatchResults,
}

#[derive(Deserialize)]
struct BatchResults {
    results: Vec<ItemResponse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemResponse {
    status: u16,
    event: Option<Box<RawValue>>,
    error: Option<Value>,
    #[serde(default)]
    payload_mismatch: bool,
    #[serde(default)]
    secret_suspected: Vec<String>,
}

impl BatchSender {
    pub(super) fn new(client: BrokerClient, producer_id: Option<String>, atomic: bool) -> Self {
        Self { client, producer_id, atomic, answered: 0 }
    }

    /// Sends all events and reports each.
    pub(super) async fn send_all(
        &mut self,
        events: &mut InputReader,
        mut report: impl FnMut(&EventAnswer) -> CliResult<()>,
    ) -> CliResult<()> {
        let mut batch = Vec::new();
        let mut bytes = FRAME_BYTES;
        loop {
            let may_send = !self.atomic && !batch.is_empty();
            let event = match events.next(may_send).await {
                NextInput::Event(event) => with_id(event.get()),
                NextInput::NotYet => {
                    self.send(std::mem::take(&mut batch), &mut report).await?;
                    bytes = FRAME_BYTES;
                    continue;
                }
                NextInput::End => return self.send(batch, &mut report).await,
                // The valid events before it are sent first; with `--atomic all` nothing is sent.
                NextInput::Failed(failure) => {
                    batch.retain(|_| !self.atomic);
                    self.send(batch, &mut report).await?;
                    return Err(failure);
                }
            };
            let is_full = batch.len() >= BATCH_EVENTS_MAX || bytes + event.len() >= BATCH_BYTES_MAX;
            if is_full && may_send {
                self.send(std::mem::take(&mut batch), &mut report).await?;
                bytes = FRAME_BYTES;
            }
            bytes += event.len() + 1;
            batch.push(event);
        }
    }

    /// Sends a batch, in smaller ones if the broker wants it so.
    async fn send(
        &mut self,
        batch: Vec<String>,
        report: &mut impl FnMut(&EventAnswer) -> CliResult<()>,
    ) -> CliResult<()> {
        let mut waiting = VecDeque::from([batch]);
        while let Some(mut batch) = waiting.pop_front() {
            let answers = match batch.len() {
                0 => continue,
                1 => self.send_one(&batch).await,
                _ => self.send_batch(&batch).await,
            };
            let answers = match answers {
                Err(CliError::Refused(refusal))
                    if refusal.code() == "EVENT_BROKER_BATCH_TOO_LARGE" && batch.len() > 1 && !self.atomic =>
                {
                    let second = batch.split_off(batch.len() / 2);
                    waiting.push_front(second);
                    waiting.push_front(batch);
                    continue;
                }
                other => other?,
            };
            for answer in answers {
                let answered = answer.at(self.answered);
                self.answered += 1;
                report(&answered)?;
            }
        }
        Ok(())
    }

    async fn send_one(&self, batch: &[String]) -> CliResult<Vec<ItemResponse>> {
        let request = self.client.request(Method::POST, &["events"], &[]).body(batch.concat());
        let response = match self.client.send(self.with_headers(request), RequestRetry::Freely).await {
            Ok(response) => response,
            Err(CliError::Refused(refusal)) if refusal.is_client_error() => {
                return Ok(vec![ItemResponse::refused(&refusal)]);
            }
            Err(failure) => return Err(failure),
        };
        let status = response.status().as_u16();
        let payload_mismatch = response.headers().contains_key("payload-mismatch");
        let secret_suspected = suspected_pointers(response.headers());
        let event = parse(&self.client.read_body(response).await?)?;
        Ok(vec![ItemResponse { status, event: Some(event), error: None, payload_mismatch, secret_suspected }])
    }

    async fn send_batch(&self, batch: &[String]) -> CliResult<Vec<ItemResponse>> {
        let query: &[_] = if self.atomic { &[("atomic".to_owned(), "all".to_owned())] } else { &[] };
        let body = format!("{{\"events\":[{}]}}", batch.join(","));
        let request = self.client.request(Method::POST, &["events:batch"], query).body(body);
        let response = self.client.send(self.with_headers(request), RequestRetry::Freely).await?;
        let answer: BatchResponse = parse(&self.client.read_body(response).await?)?;
        match answer.data.results.len() == batch.len() {
            true => Ok(answer.data.results),
            false => Err(CliError::Failed("the broker did not answer for every event of a batch".to_owned())),
        }
    }

    fn with_headers(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let request = request.header(CONTENT_TYPE, JSON);
        match &self.producer_id {
            Some(id) => request.header("producer-id", id),
            None => request,
        }
    }
}

impl ItemResponse {
    fn refused(refusal: &BrokerRefusal) -> Self {
        let status = refusal.status();
        let error = Some(refusal.document.clone());
        Self { status, event: None, error, payload_mismatch: false, secret_suspected: Vec::new() }
    }

    fn at(self, index: u64) -> EventAnswer {
        let Self { status, event, error, payload_mismatch, secret_suspected } = self;
        let refusal = error.as_ref().map(|error| BrokerRefusal::read(status, error.to_string().as_bytes()));
        EventAnswer { index, status, event, payload_mismatch, secret_suspected, error, refusal }
    }
}

impl EventAnswer {
    /// Whether it was stored now, and not before.
    pub(super) const fn is_new(&self) -> bool {
        self.status == 201
    }

    /// The result as JSON.
    pub(super) fn as_json(&self) -> String {
        // The members come from JSON, so they can be written as JSON.
        on_one_line(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// The event with an id. A value that is no object is left for the broker to refuse.
fn with_id(event: &str) -> String {
    let members = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(event);
    let needs_one = members.is_ok_and(|members| !members.contains_key("id"));
    let Some(members) = event.strip_prefix('{').filter(|_| needs_one) else { return event.to_owned() };
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    format!("{{\"id\":\"{}\"{comma}{members}", Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_an_id_gets_one_and_keeps_its_spelling() {
        let text = with_id("{ \"data\": {\"n\": 1.00} }");
        let id = text.strip_prefix("{\"id\":\"").and_then(|rest| rest.strip_suffix("\", \"data\": {\"n\": 1.00} }"));
        assert!(id.is_some_and(|id| Uuid::try_parse(id).is_ok()), "{text}");
        assert!(serde_json::from_str::<Value>(&with_id("{ }")).unwrap()["id"].is_string());
        for untouched in ["{\"id\":\"x\"}", "[]", "7", "\"{\""] {
            assert_eq!(with_id(untouched), untouched);
        }
    }
}
