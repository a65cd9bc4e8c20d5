//! Import: history as NDJSON, of any length, in its order.
//!
//! - A line is an event as it is published, or as it was exported. Exported lines have a `position`; they remain as many
//!   events as they were ([`crate::events`] has the rule), while positions, times of storage and sequences are assigned here.
//! - Each line is independent of the others: a line that is refused is reported by its number, and all others are stored.
//!   That includes lines that are too long or not JSON.
//! - Progress is sent as NDJSON while the body is still arriving; the last line has `done`. A task of its own reads the body,
//!   so that it keeps arriving while the client does not read the report yet (`report.rs`).
//! - The line and the batch in memory are charged to a budget that all imports share; if there is no room for a while, the import
//!   ends with 429.
//! - An import that was interrupted is repeated as a whole: stored events are duplicates then.
//! - Under an `Idempotency-Key` the last line of a completed import is recorded. The digest of the import is known only
//!   at its end, so a repeated body is read to its end before that line is returned. Nothing is stored twice by it.

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
use super::request_context::waiting;
use crate::idempotency::InFlightGuard;
use crate::ledger::{IdempotentRequest, ReplyPiece, StoredReply};
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use contract::{
    Error, ExportedEvent, ExportedMembers, ExportedNumbers, IdentifierProfile, Kind, NewEvent, PublishOutcome, Result,
    Sequence, UnreadableEvent, Violation, limits,
};
use futures_util::stream;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Events that are appended together. The caller did not ask for a batch, so the limits of batches do not apply.
const EVENTS_PER_APPEND: usize = limits::BATCH_EVENTS_MAX;
/// Their bytes, at most (a single event may have more).
const BYTES_PER_APPEND: usize = limits::BATCH_BYTES_MAX / 2;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/events:import", post(waiting(import)))
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
    let importing = ImportRun { app, lines, next: None, count: ImportCounts::default(), report, keyed };
    let mut task = JoinSet::new();
    task.spawn(importing.run());
    let answering = ImportResponse { pieces, task };
    Ok(ok_response(NDJSON, Body::from_stream(stream::unfold(answering, ImportResponse::next))))
}

/// The body of the response. When the client disconnects it is dropped, and the import ends with it.
struct ImportResponse {
    pieces: Receiver<Bytes>,
    task: JoinSet<Bytes>,
}

impl ImportResponse {
    /// The next piece of the report; at the end, its last lines.
    async fn next(mut self) -> Option<(Result<Bytes, JoinError>, Self)> {
        let piece = match self.pieces.recv().await {
            Some(piece) => Ok(piece),
            None => self.task.join_next().await?,
        };
        Some((piece, self))
    }
}

/// An import under an `Idempotency-Key`; no other request with the key runs at the same time.
struct KeyedImport {
    key: u128,
    /// The digest of the request without its lines.
    about: u64,
    _guard: InFlightGuard,
}

impl KeyedImport {
    fn begin(request: &ApiRequest, key: &str) -> Result<Self> {
        let key = idempotency::fingerprint(request, key);
        let about = idempotency::digest_of(request, &[]);
        Ok(Self { key, about, _guard: idempotency::acquire_key(&request.app, key)? })
    }

    /// Reads the whole body, only for its digest.
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

    /// Records the last line as the reply of the request.
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

/// An import in progress.
struct ImportRun {
    app: AppState,
    lines: LineReader,
    /// A line that was read and belongs to the next batch.
    next: Option<(u64, ImportedLine)>,
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
    /// Exported events that were stored under another sequence than they had.
    renumbered: u64,
    /// A refusal may have been transient.
    transient: bool,
}

/// A line, or why it cannot be read.
type ImportedLine = Result<NewEvent, UnreadableEvent>;

/// Lines that are appended together.
#[derive(Default)]
struct LineBatch {
    /// The number of each line, and the sequence that an exported event had.
    numbers: Vec<(u64, Option<Sequence>)>,
    events: Vec<ImportedLine>,
}

impl LineBatch {
    /// A republished copy is stored after what it is a copy of is durable, so copies share a batch with copies only.
    fn may_take(&self, line: &ImportedLine) -> bool {
        !is_copy(line) || self.events.iter().all(is_copy)
    }

    fn push(&mut self, number: u64, line: ImportedLine) {
        let exported = line.as_ref().ok().and_then(|event| event.exported.as_ref());
        self.numbers.push((number, exported.map(|numbers| numbers.sequence)));
        self.events.push(line);
    }
}

fn is_copy(line: &ImportedLine) -> bool {
    let exported = line.as_ref().ok().and_then(|event| event.exported.as_ref());
    exported.is_some_and(|numbers| numbers.republish_of.is_some())
}

/// What follows the lines of a batch.
enum BatchEnd {
    More,
    Nothing,
    /// The body was cut short.
    Broken(Problem),
}

impl ImportRun {
    /// Stores every line; returns the last lines of the report.
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

    /// The next lines: as many as are appended together, or the rest.
    async fn gather(&mut self) -> (LineBatch, BatchEnd) {
        let (mut gathered, mut bytes) = (LineBatch::default(), 0);
        if let Some((number, line)) = self.next.take() {
            bytes += line.as_ref().map_or(0, |event| event.data.get().len());
            gathered.push(number, line);
        }
        while gathered.events.len() < EVENTS_PER_APPEND && bytes < BYTES_PER_APPEND {
            let line = match self.lines.next(&self.app, bytes).await {
                Ok(Some(line)) => line,
                Ok(None) => return (gathered, BatchEnd::Nothing),
                Err(problem) => return (gathered, BatchEnd::Broken(problem)),
            };
            self.count.lines += u64::from(line != ImportLine::Pause);
            let line = match line {
                ImportLine::Pause => break,
                ImportLine::Text(text) if text.iter().all(u8::is_ascii_whitespace) => continue,
                ImportLine::Text(text) => {
                    bytes += text.len();
                    parse(self.app.profile(), &text)
                }
                ImportLine::TooLong => Err(too_long()),
            };
            if !gathered.may_take(&line) {
                self.next = Some((self.count.lines, line));
                break;
            }
            gathered.push(self.count.lines, line);
        }
        (gathered, BatchEnd::More)
    }

    /// Stores a batch of lines; `Err` means that none was processed.
    async fn store(&mut self, gathered: LineBatch) -> Result<(), Problem> {
        let LineBatch { numbers, events } = gathered;
        if events.is_empty() {
            return Ok(());
        }
        let outcomes = self.app.broker.import(events).await?;
        debug_assert_eq!(outcomes.len(), numbers.len(), "one outcome per line");
        for ((number, exported), outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                Ok(published) if published.outcome == PublishOutcome::Created => {
                    self.count.imported += 1;
                    let is_other = exported.is_some_and(|sequence| sequence != published.event.sequence);
                    self.count.renumbered += u64::from(is_other);
                }
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

    /// The last lines of an import whose body is complete.
    async fn end(self) -> Bytes {
        // If nothing was stored, lines whose refusal was transient can be sent again under the same key.
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

    /// The counts so far.
    fn progress_line(&self, done: bool) -> Value {
        let ImportCounts { lines, imported, duplicates, failed, renumbered, .. } = self.count;
        let mut line = json!({
            "lines": lines, "imported": imported, "duplicates": duplicates, "failed": failed, "done": done,
        });
        for (name, count) in [("renumbered", renumbered), ("unreported", self.report.unreported())] {
            if let (Some(members), 1..) = (line.as_object_mut(), count) {
                members.insert(name.to_owned(), count.into());
            }
        }
        line
    }
}

/// An event as it is published, or as it was exported.
fn parse(profile: IdentifierProfile, text: &[u8]) -> ImportedLine {
    let unreadable = |error| events::unreadable_event(text, line_error(text, error));
    if body::is_list(text) || !text.trim_ascii_start().starts_with(b"{") {
        // Text that is not JSON is reported as that, whatever it begins with.
        let error = events::parse(profile, text).err().filter(|error| error.kind() == Kind::Malformed);
        return Err(unreadable(error.unwrap_or_else(|| Error::invalid("", "The line must be a JSON object."))));
    }
    match serde_json::from_slice::<ExportedMark>(text) {
        Ok(ExportedMark { position: Some(_) }) => exported(profile, text),
        _ => events::parse(profile, text),
    }
    .map_err(unreadable)
}

/// Whether a line was exported.
#[derive(Deserialize)]
struct ExportedMark {
    position: Option<IgnoredAny>,
}

/// An event as a broker exported it.
fn exported(profile: IdentifierProfile, text: &[u8]) -> Result<NewEvent> {
    let ExportedMembers { sequence, created_at, republish_of, cloud_event_id, data_content_type, .. } =
        body::json(profile, text)?;
    let ExportedEvent(event) = body::json(profile, text)?;
    let missing =
        |name: &str| Violation::new(format!("/{name}"), "is missing: an exported event (it has `position`) has it");
    let (Some(sequence), Some(created_at), Some(_)) = (sequence, created_at, event.id) else {
        let members =
            [("sequence", sequence.is_none()), ("createdAt", created_at.is_none()), ("id", event.id.is_none())];
        let violations = members.into_iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| missing(name));
        let detail = "The line looks like an exported event, but is not complete; see `errors`.";
        return Err(Error::new(Kind::Validation, detail).with_violations(violations.collect()));
    };
    let exported = Some(Box::new(ExportedNumbers { sequence, created_at, republish_of }));
    Ok(NewEvent { cloud_event_id, data_content_type, exported, ..event })
}

/// Reports a line that is not JSON as a line, not as a body.
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
