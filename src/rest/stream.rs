//! Streaming: Server-Sent Events that begin where the reader left off and never skip.
//!
//! - Catching up and following are one loop; a slow reader is read for only as fast as it takes.
//! - `id:` is the sequence. It also moves while nothing matches, so that a resumed stream need not look again.
//! - A stream ends cleanly when the server drains, and with a problem when its range is gone.

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
/// A comment is sent this often while nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Most bytes of events in one piece; the first event is always given.
const PAGE_BYTES: usize = 256 * 1024;
/// The largest number that an event of a stream can have.
const ID_MAX: u64 = i64::MAX as u64;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/events:stream", get(waiting(stream_events)))
}

async fn stream_events(asked: ApiRequest) -> HandlerResult {
    asked.allow_filters_and(&["topic", "consumer_id", "offset", "limit"])?;
    check_accept(asked.headers())?;
    let offset = match last_event_id(asked.headers())? {
        Some(offset) => offset.into(),
        None => asked.params.read_offset_if_any()?.unwrap_or(ReadOffset::Latest),
    };
    let mut wanted = ReadQuery::of(&asked, offset)?;
    let member = asked.begin_wait()?;
    let app = asked.into_app();
    // Read once before the answer begins: what is wrong with the request is told as a problem, not inside the stream.
    let answers = app.answers().for_caller();
    let reservation = page_budget(&answers);
    let first = reservation.scope(wanted.clone().read(&app)).await?;
    let start = first.next_offset;
    wanted.continue_after(start);
    let opening = format!(": from {start}\nretry: 1000\n\n{}", sse_text(&first));
    let opening = response_budget::budgeted_chunk(opening.into(), reservation.take_reservation());
    let following = EventStream { app, answers, query: wanted, last: start, ended: false, _permit: member };
    let rest = stream::unfold(following, |following| following.next());
    let whole = futures_util::StreamExt::chain(stream::iter([Ok::<_, Infallible>(opening)]), rest);
    let mut response = ok_response(EVENT_STREAM, Body::from_stream(whole));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// A stream on its way.
struct EventStream {
    app: AppState,
    /// Room for its pages, which is its caller's.
    answers: ByteBudget,
    query: ReadQuery,
    /// The last `id:` sent.
    last: Offset,
    ended: bool,
    /// Its place among the requests that wait.
    _permit: Option<AddressPermit>,
}

/// Room for a page of a stream: small ones do, for the next one follows by itself.
fn page_budget(answers: &ByteBudget) -> PageBudget {
    PageBudget::new(answers, PAGE_BYTES)
}

impl EventStream {
    /// The next piece: events, or a sign of life.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.ended || self.app.is_draining() {
            return None;
        }
        let reservation = page_budget(&self.answers);
        let page = match reservation.scope(self.wait()).await {
            Ok(page) => page,
            // Others have all the room there is. A stream has time: it says that it lives, and tries again.
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
            // Nothing matched, but the reader need not look at this part again.
            let moved = page.next_offset > self.last;
            text = if moved { format!(": idle\nid: {}\n\n", page.next_offset) } else { ": idle\n\n".to_owned() };
        }
        self.last = page.next_offset;
        Some((Ok(response_budget::budgeted_chunk(text.into(), reservation.take_reservation())), self))
    }
}

impl EventStream {
    /// Waits for events, a move of the offset, or the time for a comment. A stream may wait longer than a poll, whose
    /// bound is `polling.max_timeout_secs`, so it polls as often as it takes.
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

/// A page as events of the stream.
fn sse_text(page: &EventPage) -> String {
    let size = page.items.iter().map(|event| event.text.len() + 48).sum();
    let mut text = Vec::with_capacity(size);
    for (index, event) in page.items.iter().enumerate() {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "id: {}", event.sequence);
        // `data` keeps its line breaks from the producer; between two lines the format wants its own prefix.
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
