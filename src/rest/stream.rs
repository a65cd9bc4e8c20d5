//! Streaming: Server-Sent Events that start where the reader stopped and skip nothing.
//!
//! - Catching up and following are one loop; events are read only as fast as the client takes them.
//! - `id:` is the sequence. It also moves past events that do not match, so that a resumed stream does not read them again.
//! - A stream ends when the server drains, and with a problem when its events were removed.

use super::AppState;
use super::address_limiter::AddressPermit;
use super::problem::{HandlerResult, Problem};
use super::read::{ReadQuery, event_bytes, ok_response};
use super::request::ApiRequest;
use super::request_context::waiting;
use super::response_budget;
use crate::memory::{ByteBudget, PageBudget};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use contract::{Error, EventPage, Kind, Offset, ReadOffset, Result};
use futures_util::stream;
use http::HeaderMap;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderName, HeaderValue};
use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// The interval of comments while there are no events.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Most bytes of events in one piece; the first event is always included.
const PAGE_BYTES: usize = 256 * 1024;
/// The largest sequence.
const ID_MAX: u64 = i64::MAX as u64;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/events:stream", get(waiting(stream_events)))
}

async fn stream_events(request: ApiRequest) -> HandlerResult {
    request.allow_filters_and(&["topic", "consumer_id", "offset", "limit"])?;
    check_accept(request.headers())?;
    let offset = match last_event_id(request.headers())? {
        Some(offset) => offset.into(),
        None => request.params.read_offset_if_any()?.unwrap_or(ReadOffset::Latest),
    };
    let mut query = ReadQuery::of(&request, offset)?;
    let permit = request.begin_wait()?;
    let app = request.into_app();
    // The first read is made before the response starts, so that errors of the request are problems and not part of the stream.
    let answers = app.answers().for_caller();
    let reservation = page_budget(&answers);
    let first = reservation.scope(query.clone().read(&app)).await?;
    let start = first.next_offset;
    query.continue_after(start);
    let opening = format!(": from {start}\nretry: 1000\n\n{}", sse_text(&first));
    let opening = response_budget::budgeted_chunk(opening.into(), reservation.take_reservation());
    let following = EventStream { app, answers, query, last: start, ended: false, _permit: permit };
    let rest = stream::unfold(following, |following| following.next());
    let whole = futures_util::StreamExt::chain(stream::iter([Ok::<_, Infallible>(opening)]), rest);
    let mut response = ok_response(EVENT_STREAM, Body::from_stream(whole));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// An open stream.
struct EventStream {
    app: AppState,
    /// The budget of its pages, charged to its caller.
    answers: ByteBudget,
    query: ReadQuery,
    /// The last `id:` sent.
    last: Offset,
    ended: bool,
    /// Counts it among the requests that wait.
    _permit: Option<AddressPermit>,
}

/// The budget of a page; pages are small, because the next one follows at once.
fn page_budget(answers: &ByteBudget) -> PageBudget {
    PageBudget::new(answers, PAGE_BYTES)
}

impl EventStream {
    /// The next piece: events, or a comment.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.ended || self.app.is_draining() {
            return None;
        }
        let reservation = page_budget(&self.answers);
        let page = match reservation.scope(self.wait()).await {
            Ok(page) => page,
            // The budget is used up. A stream can wait: it sends a comment and retries.
            Err(error) if error.kind() == Kind::Overloaded => {
                return Some((Ok(Bytes::from_static(b": busy\n\n")), self));
            }
            Err(error) => {
                self.ended = true;
                return Some((Ok(problem_text(error)), self));
            }
        };
        self.query.continue_after(page.next_offset);
        let mut text = sse_text(&page);
        if text.is_empty() {
            // Nothing matched; the new id lets a resumed stream skip this part.
            let moved = page.next_offset > self.last;
            text = if moved { format!(": idle\nid: {}\n\n", page.next_offset) } else { ": idle\n\n".to_owned() };
        }
        self.last = page.next_offset;
        Some((Ok(response_budget::budgeted_chunk(text.into(), reservation.take_reservation())), self))
    }
}

impl EventStream {
    /// Waits for events, a move of the offset, or the time for a comment. A stream may wait longer than a poll, which is
    /// limited by `polling.max_timeout_secs`, so it polls several times.
    async fn wait(&mut self) -> Result<EventPage> {
        let longest = Duration::from_secs(self.app.broker.config().polling.max_timeout_secs);
        let comment_at = Instant::now() + HEARTBEAT;
        loop {
            let left = comment_at.saturating_duration_since(Instant::now());
            let page = self.query.clone().wait(&self.app, left.min(longest)).await?;
            let has_news = !page.items.is_empty() || page.next_offset > self.last;
            if has_news || left <= longest || self.app.is_draining() {
                return Ok(page);
            }
        }
    }
}

/// A page as Server-Sent Events.
fn sse_text(page: &EventPage) -> String {
    let size = page.items.iter().map(|event| event.text.len() + 48).sum();
    let mut text = Vec::with_capacity(size);
    for (index, event) in page.items.iter().enumerate() {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "id: {}", event.sequence);
        // `data` may contain line breaks; in the format, each line needs its prefix.
        for line in event_bytes(event, page.claims.get(index)).split(|byte| matches!(byte, b'\n' | b'\r')) {
            text.extend_from_slice(b"data: ");
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text.push(b'\n');
    }
    String::from_utf8(text).unwrap_or_default()
}

fn problem_text(error: Error) -> Bytes {
    let problem = Problem::from(error);
    let document = serde_json::to_string(&problem.document(None, None)).unwrap_or_default();
    Bytes::from(format!("event: problem\ndata: {document}\n\n"))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Offset>> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    number.filter(|number| *number <= ID_MAX).map(|number| Some(Offset(number))).ok_or_else(|| {
        Error::new(Kind::InvalidOffset, "The header Last-Event-ID must be the `id` of an event of this stream.")
    })
}

fn check_accept(headers: &HeaderMap) -> Result<()> {
    let Some(accept) = headers.get(ACCEPT) else { return Ok(()) };
    let accept = accept.to_str().unwrap_or_default().to_ascii_lowercase();
    let takes = ["*/*", "text/*", "text/event-stream"].iter().any(|media| accept.contains(media));
    if takes { Ok(()) } else { Err(Error::new(Kind::NotAcceptable, "Accept text/event-stream.")) }
}
