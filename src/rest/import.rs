//! Import: history as NDJSON, of any length, in the order it comes.
//!
//! - Lines are events as they are published, or as they were exported: what the log assigns is left aside.
//! - Each event stands by itself: one that is refused is reported by its line, and the rest goes on.
//! - Progress is told as NDJSON while the body still arrives; the last line says `done`.
//! - An import that broke off is repeated whole: what was stored is a duplicate then.
//! - Under a key, what is kept is the last line of an import that came to its end. Which import it was is known only
//!   then, so a body that comes again is read to its end before that line is told again. Nothing is stored twice by it.

use super::App;
use super::asked::Asked;
use super::body::{self, Limit};
use super::events;
use super::once;
use super::problem::{Answer, Problem};
use super::read::answer;
use super::told;
use crate::answers::Turn;
use crate::ledger::{KeptAnswer, Piece, Ticket};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::{Buf, Bytes, BytesMut};
use contract::{Atomicity, Error, Event, Kind, NewEvent, Outcome, Profile, Result, Unread, limits, under_profile};
use futures_util::stream;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use std::convert::Infallible;

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Longest line: an event with all its assigned members.
const LINE: Limit = Limit { bytes: limits::EVENT_BYTES_MAX + 64 * 1024, too_large: Kind::PayloadTooLarge };
/// Events that go to the log together.
const TOGETHER: usize = limits::BATCH_EVENTS_MAX;
/// Their bytes, at most (one event alone may have more).
const TOGETHER_BYTES: usize = limits::BATCH_BYTES_MAX / 2;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/v1/events:import", post(import))
}

async fn import(asked: Asked) -> Answer {
    asked.takes(&[])?;
    check_media(asked.headers())?;
    let keyed = once::key_of(asked.headers())?.map(|key| Keyed::begin(&asked, &key)).transpose()?;
    let (app, body) = asked.into_body();
    if let Some(keyed) = &keyed
        && let Some(found) = app.broker.answers().find(keyed.key).await?
    {
        let digest = keyed.digest_of(&app, body).await?;
        return match found.answers(digest) {
            true => Ok(told::again(found.replay().await?)),
            false => Err(Ticket::reused().into()),
        };
    }
    let (buffer, count) = (BytesMut::new(), Count::default());
    let importing = Importing { app, body, buffer, ended: false, told: false, count, keyed };
    let progress = stream::unfold(importing, |importing| importing.next());
    Ok(answer(NDJSON, Body::from_stream(progress)))
}

/// An import under a key, which it has to itself.
struct Keyed {
    key: u128,
    /// What it is about, but for the lines.
    about: u64,
    lines: blake3::Hasher,
    _turn: Turn,
}

impl Keyed {
    fn begin(asked: &Asked, key: &str) -> Result<Self> {
        let key = once::fingerprint(asked, key);
        let about = once::digest_of(asked, &[]);
        Ok(Self { key, about, lines: blake3::Hasher::new(), _turn: once::enter(&asked.app, key)? })
    }

    /// The digest of the whole body, which is read for nothing else.
    async fn digest_of(&self, app: &App, mut body: Body) -> Answer<u64> {
        let mut lines = blake3::Hasher::new();
        while let Some(piece) = body::next_piece(app, &mut body).await? {
            lines.update(&piece);
        }
        Ok(self.digest(&lines))
    }

    fn digest(&self, lines: &blake3::Hasher) -> u64 {
        crate::answers::digest(&[&self.about.to_le_bytes()], Some("lines"), lines.finalize().as_bytes())
    }

    /// Keeps the last line.
    async fn keep(&self, app: &App, line: Value) -> Result<()> {
        let ticket = app.broker.answers().ticket(self.key, self.digest(&self.lines));
        let headers = vec![(CONTENT_TYPE.as_str().to_owned(), "application/x-ndjson".to_owned())];
        let body = vec![Piece::Text(format!("{line}\n"))];
        app.broker.answers().keep(ticket, KeptAnswer { status: 200, headers, body }, None).await
    }
}

fn check_media(headers: &HeaderMap) -> Result<()> {
    let media = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("application/x-ndjson");
    match media.split(';').next().unwrap_or_default().trim() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/json" => Ok(()),
        _ => Err(Error::new(Kind::UnsupportedMediaType, "Send events as application/x-ndjson, one per line.")),
    }
}

/// An import on its way.
struct Importing {
    app: App,
    body: Body,
    buffer: BytesMut,
    /// The body is at its end, or broke off.
    ended: bool,
    /// The last line was told.
    told: bool,
    count: Count,
    keyed: Option<Keyed>,
}

#[derive(Default)]
struct Count {
    lines: u64,
    imported: u64,
    duplicates: u64,
    failed: u64,
    /// A refusal may have been one of the moment.
    passing: bool,
}

/// A line with its number.
struct Line {
    number: u64,
    event: Result<NewEvent, Unread>,
}

impl Importing {
    /// Stores the next lines and says how far it has come.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.told {
            return None;
        }
        let mut report = Vec::new();
        let lines = match self.lines().await {
            Ok(lines) => lines,
            Err(problem) => {
                self.ended = true;
                self.told = true;
                write(&mut report, &json!({"error": problem.document(None, None)}));
                self.tell(&mut report, false);
                return Some((Ok(report.into()), self));
            }
        };
        let mut done = self.ended;
        if let Err(problem) = self.store(lines, &mut report).await {
            write(&mut report, &json!({"error": problem.document(None, None)}));
            (done, self.told) = (false, true);
        }
        // Where nothing was stored, lines that may fare better the next time are tried again under the same key.
        let is_final = !self.count.passing || self.count.imported > 0;
        if let Some(keyed) = self.keyed.as_ref().filter(|_| done && is_final)
            && let Err(error) = keyed.keep(&self.app, self.count.line(true)).await
        {
            write(&mut report, &json!({"error": Problem::from(error).document(None, None)}));
            (done, self.told) = (false, true);
        }
        self.told |= done;
        self.tell(&mut report, done);
        Some((Ok(report.into()), self))
    }

    /// The next lines: as many as go to the log together, or what is left.
    async fn lines(&mut self) -> Result<Vec<Line>, Problem> {
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < TOGETHER && bytes < TOGETHER_BYTES {
            let Some(text) = self.line().await? else { break };
            self.count.lines += 1;
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            bytes += text.len();
            lines.push(Line { number: self.count.lines, event: parse(self.app.profile(), &text) });
        }
        Ok(lines)
    }

    async fn line(&mut self) -> Result<Option<Bytes>, Problem> {
        let mut looked_at = 0;
        loop {
            let found = self.buffer.get(looked_at..).unwrap_or_default().iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                let line = self.buffer.split_to(looked_at + at).freeze();
                self.buffer.advance(1);
                return Ok(Some(line));
            }
            looked_at = self.buffer.len();
            if looked_at > LINE.bytes {
                return Err(Error::new(LINE.too_large, format!("A line may have at most {} bytes.", LINE.bytes)).into());
            }
            if self.ended {
                let last = self.buffer.split().freeze();
                return Ok(if last.is_empty() { None } else { Some(last) });
            }
            match body::next_piece(&self.app, &mut self.body).await? {
                Some(piece) => {
                    if let Some(keyed) = &mut self.keyed {
                        keyed.lines.update(&piece);
                    }
                    self.buffer.extend_from_slice(&piece);
                }
                None => self.ended = true,
            }
        }
    }

    /// Stores lines in one go; an `Err` means that none was looked at.
    async fn store(&mut self, lines: Vec<Line>, report: &mut Vec<u8>) -> Result<(), Problem> {
        if lines.is_empty() {
            return Ok(());
        }
        let (numbers, events): (Vec<_>, Vec<_>) = lines.into_iter().map(|line| (line.number, line.event)).unzip();
        let outcomes = self.app.broker.publish_submitted(events, Atomicity::Each, None).await?;
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                Ok(published) if published.outcome == Outcome::Created => self.count.imported += 1,
                Ok(_) => self.count.duplicates += 1,
                Err(error) => {
                    self.count.failed += 1;
                    self.count.passing |= error.kind().is_retryable();
                    let problem = Problem::from(error);
                    write(report, &json!({"line": number, "error": problem.document(None, None)}));
                }
            }
        }
        Ok(())
    }

    fn tell(&self, report: &mut Vec<u8>, done: bool) {
        write(report, &self.count.line(done));
    }
}

impl Count {
    fn line(&self, done: bool) -> Value {
        let Self { lines, imported, duplicates, failed, .. } = self;
        json!({"lines": lines, "imported": imported, "duplicates": duplicates, "failed": failed, "done": done})
    }
}

/// An event as it is published, or as it was exported.
fn parse(profile: Profile, text: &[u8]) -> Result<NewEvent, Unread> {
    match under_profile(profile, || serde_json::from_slice::<Event>(text)) {
        Ok(event) if !body::is_list(text) => Ok(event.into()),
        _ => events::parse(profile, text).map_err(|error| events::unread(text, error)),
    }
}

fn write(report: &mut Vec<u8>, line: &Value) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *report, line);
    report.push(b'\n');
}
