//! A stream of a topic's events as text, which is opened again after the last event when it ends or breaks off.
//!
//! - `offset` moves with every message of the broker, also past events that do not match, so a stream that is opened again
//!   neither skips nor repeats an event.
//! - Once it has been open, a stream is opened again without a limit on tries: the program ends it by dropping it. A refusal
//!   that is not transient is returned.

use crate::connection::{BrokerConnection, RefusedResponse, RequestFailure};
use crate::retry::{RetryPolicy, jitter};
use crate::retry_schedule::{RequestRetry, RetrySchedule, shortest_wait};
use crate::sse::{SseMessage, SseParser};
use contract::{Offset, ReadOffset};
use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder, Response};
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::Duration;

/// What comes next in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamPart {
    /// An event, as the broker sends it.
    Event(String),
    /// The stream ended or broke off; it continues after [`TopicStream::offset`].
    Interrupted,
}

/// The events of a topic as they arrive.
#[derive(Debug)]
pub struct TopicStream {
    connection: BrokerConnection,
    /// The parameters besides the offset.
    query: Vec<(String, String)>,
    offset: ReadOffset,
    policy: RetryPolicy,
    open: Option<OpenStream>,
    /// Messages that have arrived and were not returned yet.
    messages: VecDeque<SseMessage>,
    /// Failures since something arrived, and the shortest wait after the last one.
    failures: u32,
    shortest_wait: Duration,
}

#[derive(Debug)]
struct OpenStream {
    response: Response,
    parser: SseParser,
}

impl TopicStream {
    /// Opens a stream.
    pub(crate) async fn open(
        connection: BrokerConnection,
        query: Vec<(String, String)>,
        offset: ReadOffset,
        schedule: RetrySchedule,
    ) -> Result<Self, RequestFailure> {
        let policy = schedule.policy();
        let messages = VecDeque::new();
        let (failures, shortest_wait) = (0, Duration::ZERO);
        let mut stream = Self { connection, query, offset, policy, open: None, messages, failures, shortest_wait };
        let send = |request| stream.connection.send(request);
        let response = stream.connection.attempt(stream.request(), send, schedule).await?;
        stream.open = Some(OpenStream::of(response));
        Ok(stream)
    }

    /// Where the stream continues: after everything that was returned so far.
    pub const fn offset(&self) -> ReadOffset {
        self.offset
    }

    /// What comes next. Dropping the future loses nothing. After an error, the next call opens the stream again.
    pub async fn next(&mut self) -> Result<StreamPart, RequestFailure> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                match self.take(message) {
                    Ok(Some(event)) => return Ok(StreamPart::Event(event)),
                    Ok(None) => continue,
                    Err(problem) => return self.interrupted(problem),
                }
            }
            let Some(open) = &mut self.open else {
                if let Err(failure) = self.reopen().await {
                    self.note(failure)?;
                }
                continue;
            };
            match open.response.chunk().await.map_err(RequestFailure::of) {
                Ok(Some(bytes)) => {
                    self.messages.extend(open.parser.feed(&bytes));
                    (self.failures, self.shortest_wait) = (0, Duration::ZERO);
                }
                Ok(None) => {
                    self.open = None;
                    self.failures += 1;
                    return Ok(StreamPart::Interrupted);
                }
                Err(failure) => return self.interrupted(failure),
            }
        }
    }

    fn request(&self) -> RequestBuilder {
        let mut query = self.query.clone();
        query.push(("offset".to_owned(), self.offset.to_string()));
        self.connection.request(Method::GET, &["events:stream"], &query).header(ACCEPT, "text/event-stream")
    }

    /// Waits, and opens the stream again where it ended.
    async fn reopen(&mut self) -> Result<(), RequestFailure> {
        tokio::time::sleep(self.policy.wait(self.failures, Some(self.shortest_wait), jitter())).await;
        self.open = Some(OpenStream::of(self.connection.send(self.request()).await?));
        Ok(())
    }

    /// The text of the event in a message, if it has one.
    fn take(&mut self, message: SseMessage) -> Result<Option<String>, RequestFailure> {
        let SseMessage { id, event, data } = message;
        if event == "problem" {
            return Err(problem_of(data.unwrap_or_default()));
        }
        self.offset = id.map_or(self.offset, |id| Offset(id).into());
        Ok(data)
    }

    /// The end of the open stream by a failure.
    fn interrupted(&mut self, failure: RequestFailure) -> Result<StreamPart, RequestFailure> {
        self.open = None;
        self.messages.clear();
        self.note(failure)?;
        Ok(StreamPart::Interrupted)
    }

    /// Counts a transient failure; any other is returned.
    fn note(&mut self, failure: RequestFailure) -> Result<(), RequestFailure> {
        let Some(shortest) = shortest_wait(&failure, RequestRetry::Freely) else { return Err(failure) };
        tracing::debug!(?failure, "the stream is opened again");
        self.failures += 1;
        self.shortest_wait = shortest;
        Ok(())
    }
}

impl OpenStream {
    fn of(response: Response) -> Self {
        Self { response, parser: SseParser::default() }
    }
}

/// A problem document in a stream, as the refusal that it is.
fn problem_of(document: String) -> RequestFailure {
    #[derive(Deserialize)]
    struct ProblemStatus {
        status: u16,
    }
    // A document without a status is not the broker's: it counts as a failure of a gateway.
    let status = serde_json::from_str(&document).map_or(502, |ProblemStatus { status }| status);
    RequestFailure::Refused(RefusedResponse { status, retry_after: None, body: document.into() })
}
