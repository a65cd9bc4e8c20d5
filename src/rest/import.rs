//! Import: history as NDJSON, of any length, in the order it comes.
//!
//! - Lines are events as they are published, or as they were exported: what the log assigns is left aside.
//! - Each event stands by itself: one that is refused is reported by its line, and the rest goes on. That goes for a line
//!   that is too long or no JSON, too.
//! - Progress is told as NDJSON while the body still arrives; the last line says `done`. The body is read by a task of its
//!   own, so that it arrives even if nobody reads the report yet (`report.rs`).
//! - The line and the batch that are held take room from a budget that all imports share; where there is none for a while, the import breaks
//!   off with 429.
//! - An import that broke off is repeated whole: what was stored is a duplicate then.
//! - Under a key, what is kept is the last line of an import that came to its end. Which import it was is known only
//!   then, so a body that comes again is read to its end before that line is told again. Nothing is stored twice by it.

mod lines;
mod report;

use self::lines::{ImportLine, LINE_BYTES_MAX, LineReader};
use self::report::ImportReport;
use super::AppState;
use super::body;
use super::events;
use super::idempotency;
use super::problem::{HandlerResult, Problem};
use super::read::ok_response;
use super::reply;
use super::request::ApiRequest;
use crate::idempotency::InFlightGuard;
use crate::ledger::{IdempotentRequest, ReplyPiece, StoredReply};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use contract::{
    Error, Event, IdentifierProfile, Kind, NewEvent, PublishOutcome, Result, UnreadableEvent, limits, under_profile,
};
use futures_util::stream;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Events that go to the log together. That is how an import is carried out, and no batch of its caller's: the limits of
/// batches say nothing about it.
const EVENTS_PER_APPEND: usize = limits::BATCH_EVENTS_MAX;
/// Their bytes, at most (one event alone may have more).
const BYTES_PER_APPEND: usize = limits::BATCH_BYTES_MAX / 2;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/events:import", post(import))
}

async fn import(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?;
    check_media(request.headers())?;
    let keyed = idempotency::key_of(request.headers())?.map(|key| KeyedImport::begin(&request, &key)).transpose()?;
    let (app, body) = request.into_body();
    if let Some(keyed) = &keyed
        && let Some(found) = app.broker.stored_replies().find(keyed.key).await?
    {
        let digest = keyed.digest_of(&app, body).await?;
        return match found.answers(digest) {
            true => Ok(reply::replay_response(found.replay().await?)),
            false => Err(IdempotentRequest::reused().into()),
        };
    }
    let (report, pieces) = ImportReport::new(app.options.import_unread_timeout);
    let reservation = app.reserve_import()?;
    let lines = LineReader::of(body, keyed.as_ref().map(|_| blake3::Hasher::new()), reservation);
    let importing = ImportRun { app, lines, count: ImportCounts::default(), report, keyed };
    let mut task = JoinSet::new();
    task.spawn(importing.run());
    let answering = ImportResponse { pieces, task };
    Ok(ok_response(NDJSON, Body::from_stream(stream::unfold(answering, ImportResponse::next))))
}

/// The answer on its way out. When the client leaves it is dropped, and the import ends with it.
struct ImportResponse {
    pieces: Receiver<Bytes>,
    task: JoinSet<Bytes>,
}

impl ImportResponse {
    /// The next piece of the report, and at last the last lines.
    async fn next(mut self) -> Option<(Result<Bytes, JoinError>, Self)> {
        let piece = match self.pieces.recv().await {
            Some(piece) => Ok(piece),
            None => self.task.join_next().await?,
        };
        Some((piece, self))
    }
}

/// An import under a key, which it has to itself.
struct KeyedImport {
    key: u128,
    /// What it is about, but for the lines.
    about: u64,
    _turn: InFlightGuard,
}

impl KeyedImport {
    fn begin(request: &ApiRequest, key: &str) -> Result<Self> {
        let key = idempotency::fingerprint(request, key);
        let about = idempotency::digest_of(request, &[]);
        Ok(Self { key, about, _turn: idempotency::acquire_key(&request.app, key)? })
    }

    /// The digest of the whole body, which is read for nothing else.
    async fn digest_of(&self, app: &AppState, mut body: Body) -> HandlerResult<u64> {
        let mut lines = blake3::Hasher::new();
        while let Some(piece) = body::next_chunk(app, &mut body).await? {
            lines.update(&piece);
        }
        Ok(self.digest(&lines))
    }

    fn digest(&self, lines: &blake3::Hasher) -> u64 {
        crate::idempotency::digest(&[&self.about.to_le_bytes()], Some("lines"), lines.finalize().as_bytes())
    }

    /// Keeps the last line.
    async fn store_reply(&self, app: &AppState, lines: &blake3::Hasher, line: &Value) -> Result<()> {
        let request = app.broker.stored_replies().request(self.key, self.digest(lines));
        let headers = vec![(CONTENT_TYPE.as_str().to_owned(), "application/x-ndjson".to_owned())];
        let body = vec![ReplyPiece::Text(format!("{line}\n"))];
        app.broker.stored_replies().record_reply(request, StoredReply { status: 200, headers, body }, None).await
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
struct ImportRun {
    app: AppState,
    lines: LineReader,
    count: ImportCounts,
    report: ImportReport,
    keyed: Option<KeyedImport>,
}

#[derive(Default)]
struct ImportCounts {
    lines: u64,
    imported: u64,
    duplicates: u64,
    failed: u64,
    /// A refusal may have been one of the moment.
    transient: bool,
}

/// Lines that go to the log together, with their numbers.
#[derive(Default)]
struct LineBatch {
    numbers: Vec<u64>,
    events: Vec<Result<NewEvent, UnreadableEvent>>,
}

/// What comes after the lines that were gathered.
enum BatchEnd {
    More,
    Nothing,
    /// The body broke off.
    Broken(Problem),
}

impl ImportRun {
    /// Stores every line; answers the last lines of the report.
    async fn run(mut self) -> Bytes {
        loop {
            let (gathered, rest) = self.gather().await;
            if let Err(problem) = self.store(gathered).await {
                return self.end_broken(&problem);
            }
            self.lines.release_stored();
            match rest {
                BatchEnd::Nothing => return self.end().await,
                BatchEnd::Broken(problem) => return self.end_broken(&problem),
                BatchEnd::More => (),
            }
            let count = self.progress_line(false);
            if let Err(problem) = self.report.progress(&count).await {
                return self.end_broken(&problem);
            }
        }
    }

    /// The next lines: as many as go to the log together, or what is left.
    async fn gather(&mut self) -> (LineBatch, BatchEnd) {
        let (mut gathered, mut bytes) = (LineBatch::default(), 0);
        while gathered.events.len() < EVENTS_PER_APPEND && bytes < BYTES_PER_APPEND {
            let line = match self.lines.next(&self.app, bytes).await {
                Ok(Some(line)) => line,
                Ok(None) => return (gathered, BatchEnd::Nothing),
                Err(problem) => return (gathered, BatchEnd::Broken(problem)),
            };
            self.count.lines += 1;
            let event = match line {
                ImportLine::Text(text) if text.iter().all(u8::is_ascii_whitespace) => continue,
                ImportLine::Text(text) => {
                    bytes += text.len();
                    parse(self.app.profile(), &text)
                }
                ImportLine::TooLong => Err(too_long()),
            };
            gathered.numbers.push(self.count.lines);
            gathered.events.push(event);
        }
        (gathered, BatchEnd::More)
    }

    /// Stores lines in one go; an `Err` means that none was looked at.
    async fn store(&mut self, gathered: LineBatch) -> Result<(), Problem> {
        let LineBatch { numbers, events } = gathered;
        if events.is_empty() {
            return Ok(());
        }
        let outcomes = self.app.broker.import(events).await?;
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                Ok(published) if published.outcome == PublishOutcome::Created => self.count.imported += 1,
                Ok(_) => self.count.duplicates += 1,
                Err(error) => {
                    self.count.failed += 1;
                    self.count.transient |= error.kind().is_retryable();
                    self.report.refuse(number, &Problem::from(error)).await;
                }
            }
        }
        Ok(())
    }

    /// The last lines of an import whose body came to its end.
    async fn end(self) -> Bytes {
        // Where nothing was stored, lines that may fare better the next time are tried again under the same key.
        let is_final = !self.count.transient || self.count.imported > 0;
        let count = self.progress_line(true);
        if is_final
            && let (Some(keyed), Some(lines)) = (&self.keyed, self.lines.digest())
            && let Err(error) = keyed.store_reply(&self.app, lines, &count).await
        {
            return self.end_broken(&error.into());
        }
        self.report.last(None, &count)
    }

    fn end_broken(self, problem: &Problem) -> Bytes {
        let count = self.progress_line(false);
        self.report.last(Some(problem), &count)
    }

    /// How far it has come.
    fn progress_line(&self, done: bool) -> Value {
        let ImportCounts { lines, imported, duplicates, failed, .. } = self.count;
        match self.report.unreported() {
            0 => json!({
                "lines": lines, "imported": imported, "duplicates": duplicates, "failed": failed, "done": done,
            }),
            unreported => json!({
                "lines": lines, "imported": imported, "duplicates": duplicates, "failed": failed,
                "unreported": unreported, "done": done,
            }),
        }
    }
}

/// An event as it is published, or as it was exported.
fn parse(profile: IdentifierProfile, text: &[u8]) -> Result<NewEvent, UnreadableEvent> {
    match under_profile(profile, || serde_json::from_slice::<Event>(text)) {
        Ok(event) if !body::is_list(text) => Ok(event.into()),
        _ => events::parse(profile, text).map_err(|error| events::unreadable_event(text, line_error(text, error))),
    }
}

/// What is wrong with a line that is no JSON, in words of lines.
fn line_error(text: &[u8], error: Error) -> Error {
    if error.kind() != Kind::Malformed {
        return error;
    }
    let detail = match (std::str::from_utf8(text), serde_json::from_slice::<IgnoredAny>(text)) {
        (Err(_), _) => "The line is not UTF-8.".to_owned(),
        (_, Err(error)) => format!("The line is not JSON: look at column {}.", error.column()),
        _ => "The line is not JSON.".to_owned(),
    };
    Error::new(Kind::Malformed, detail)
}

fn too_long() -> UnreadableEvent {
    let error = Error::new(Kind::PayloadTooLarge, format!("A line may have at most {LINE_BYTES_MAX} bytes."));
    UnreadableEvent { error, event_type: None }
}
