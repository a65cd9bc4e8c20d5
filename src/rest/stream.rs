//! Streaming: Server-Sent Events that begin where the reader left off and never skip.
//!
//! - Catching up and following are one loop; a slow reader is read for only as fast as it takes.
//! - `id:` is the sequence. It also moves while nothing matches, so that a resumed stream need not look again.
//! - A stream ends cleanly when the server drains, and with a problem when its range is gone.

use super::App;
use super::asked::Asked;
use super::problem::{Answer, Problem};
use super::read::{Wanted, answer, served};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use contract::{Error, EventPage, Kind, Offset, Result};
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
/// An offset behind every event there can be.
const BEYOND: Offset = Offset(i64::MAX as u64);

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/events:stream", get(stream_events))
}

async fn stream_events(asked: Asked) -> Answer {
    asked.takes_filters_and(&["topic", "consumer_id", "offset", "limit"])?;
    check_accept(asked.headers())?;
    let start = match last_event_id(asked.headers())? {
        Some(offset) => Some(offset),
        None => asked.params.offset_if_any()?,
    };
    let mut wanted = Wanted::of(&asked, start.unwrap_or(BEYOND))?;
    let app = asked.into_app();
    // Read once before the answer begins: what is wrong with the request is told as a problem, not inside the stream.
    let first = wanted.clone().read(&app).await?;
    let start = if start.is_none() { first.tail } else { first.next_offset };
    wanted.after(start);
    let opening = Bytes::from(format!(": from {start}\nretry: 1000\n\n{}", text_of(&first)));
    let following = Following { app, wanted, last: start, ended: false };
    let rest = stream::unfold(following, |following| following.next());
    let whole = futures_util::StreamExt::chain(stream::iter([Ok::<_, Infallible>(opening)]), rest);
    let mut response = answer(EVENT_STREAM, Body::from_stream(whole));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// A stream on its way.
struct Following {
    app: App,
    wanted: Wanted,
    /// The last `id:` sent.
    last: Offset,
    ended: bool,
}

impl Following {
    /// The next piece: events, or a sign of life.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.ended || self.app.is_draining() {
            return None;
        }
        let page = match self.wait().await {
            Ok(page) => page,
            Err(error) => {
                self.ended = true;
                return Some((Ok(problem_text(error)), self));
            }
        };
        self.wanted.after(page.next_offset);
        let mut text = text_of(&page);
        if text.is_empty() {
            // Nothing matched, but the reader need not look at this part again.
            let moved = page.next_offset > self.last;
            text = if moved { format!(": idle\nid: {}\n\n", page.next_offset) } else { ": idle\n\n".to_owned() };
        }
        self.last = page.next_offset;
        Some((Ok(Bytes::from(text)), self))
    }
}

impl Following {
    /// Waits for events, a move of the offset, or the time for a comment. A stream may wait longer than a poll, whose
    /// bound is `polling.max_timeout_secs`, so it polls as often as it takes.
    async fn wait(&mut self) -> Result<EventPage> {
        let longest = Duration::from_secs(self.app.broker.config().polling.max_timeout_secs);
        let comment_at = Instant::now() + HEARTBEAT;
        loop {
            let left = comment_at.saturating_duration_since(Instant::now());
            let page = self.wanted.clone().wait(&self.app, left.min(longest)).await?;
            let has_news = !page.items.is_empty() || page.next_offset > self.last;
            if has_news || left <= longest || self.app.is_draining() {
                return Ok(page);
            }
        }
    }
}

/// A page as events of the stream.
fn text_of(page: &EventPage) -> String {
    let size = page.items.iter().map(|event| event.text.len() + 48).sum();
    let mut text = Vec::with_capacity(size);
    for (index, event) in page.items.iter().enumerate() {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "id: {}", event.sequence);
        // `data` keeps its line breaks from the producer; between two lines the format wants its own prefix.
        for line in served(event, page.claims.get(index)).split(|byte| matches!(byte, b'\n' | b'\r')) {
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
    number.filter(|number| *number <= BEYOND.0).map(|number| Some(Offset(number))).ok_or_else(|| {
        Error::new(Kind::InvalidOffset, "The header Last-Event-ID must be the `id` of an event of this stream.")
    })
}

fn check_accept(headers: &HeaderMap) -> Result<()> {
    let Some(accept) = headers.get(ACCEPT) else { return Ok(()) };
    let accept = accept.to_str().unwrap_or_default().to_ascii_lowercase();
    let takes = ["*/*", "text/*", "text/event-stream"].iter().any(|media| accept.contains(media));
    if takes { Ok(()) } else { Err(Error::new(Kind::NotAcceptable, "Accept text/event-stream.")) }
}
