//! `event-broker import`: loads events from a file of any length.
//!
//! - The file is sent while it is read, and progress is received while it is sent; neither is held in memory.
//! - A refused line does not prevent other lines from being stored.

use super::client::{self, BrokerUrl};
use super::error::{BrokerRefusal, CliError, CliResult};
use super::input::{self, InputSource};
use super::output::{self, CliOutput};
use bytes::Bytes;
use futures_util::stream;
use indicatif::ProgressBar;
use serde_json::Value;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::sync::mpsc;

/// Chunks of the file that wait to be sent.
const PIECES: usize = 16;

/// Loads events from NDJSON: one event per line, in the form of a publish request or as `export` wrote it.
///
/// Ids, times of occurrence and order are kept; the broker assigns positions and sequences. An exported line that gets
/// another sequence than it had is counted. Topics and event types must exist. Every line is independent of the others:
/// a refused line is reported by its number, all others are stored. An interrupted import can be repeated as a whole: stored
/// lines count as duplicates, for as long as the topic remembers idempotency keys.
///
/// Exit code 0: every line is stored, now or before. 1: some were refused, or the import was interrupted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker import events.ndjson\n  \
    zcat events.ndjson.gz | event-broker import -\n  \
    event-broker export --all --url http://old:8087 | event-broker import - --url http://new:8087")]
pub(super) struct ImportArgs {
    #[command(flatten)]
    server: BrokerUrl,
    /// The file; standard input when absent, or -.
    file: Option<PathBuf>,
    /// Print JSON: a line for each refused event, then how many were imported, duplicates and failed.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ImportArgs) -> ExitCode {
    client::run(Box::pin(import(arguments)))
}

async fn import(arguments: &ImportArgs) -> CliResult {
    let source = input::open(arguments.file.as_deref())?;
    let client = arguments.server.client_without_timeout()?;
    let template = match source.bytes {
        Some(_) => "{bar:30} {bytes}/{total_bytes} {msg}",
        None => "{spinner} {bytes} {msg}",
    };
    let mut progress = ImportProgress {
        bar: output::progress_bar(source.bytes, template),
        output: CliOutput::new(),
        json: arguments.json,
        last: Value::Null,
        broke_off: None,
    };
    let mut report = client.import(body(source, progress.bar.clone())).await?;
    loop {
        match report.next().await {
            Ok(Some(line)) => progress.take(&line)?,
            Ok(None) => break,
            Err(failure) => return Err(progress.interrupted(&client.failure(failure))),
        }
    }
    progress.end()
}

/// The file as a request body. A separate thread reads it, no faster than it is sent.
fn body(source: InputSource, bar: ProgressBar) -> reqwest::Body {
    let (sender, pieces) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    std::thread::spawn(move || {
        let mut reader = source.reader;
        loop {
            let piece = match reader.fill_buf() {
                Ok([]) => return,
                Ok(bytes) => Ok(Bytes::copy_from_slice(bytes)),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => Err(io::Error::new(cause.kind(), format!("{}: {cause}", source.name))),
            };
            let (count, failed) = (piece.as_ref().map_or(0, Bytes::len), piece.is_err());
            reader.consume(count);
            bar.inc(count as u64);
            // The receiver is gone: the request has ended.
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    reqwest::Body::wrap_stream(stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) }))
}

/// The report of the broker so far.
struct ImportProgress {
    bar: ProgressBar,
    output: CliOutput,
    json: bool,
    /// The last count.
    last: Value,
    broke_off: Option<BrokerRefusal>,
}

impl ImportProgress {
    fn take(&mut self, text: &[u8]) -> CliResult<()> {
        let line: Value = serde_json::from_slice(text)
            .map_err(|error| CliError::caused_by("the broker's response cannot be read", error))?;
        let Some(error) = line.get("error") else {
            self.bar.set_message(count_text(&line));
            self.last = line;
            return Ok(());
        };
        let refusal = BrokerRefusal::from_document(error.to_string().as_bytes());
        let Some(number) = line.get("line").and_then(Value::as_u64) else {
            self.broke_off = Some(refusal);
            return Ok(());
        };
        match self.json {
            true => self.bar.suspend(|| self.output.json(&line)),
            false => {
                self.bar.suspend(|| output::print_note(&format_args!("line {number} was refused: {refusal}")));
                Ok(())
            }
        }
    }

    fn end(mut self) -> CliResult {
        self.bar.finish_and_clear();
        if let Some(refusal) = self.broke_off.take() {
            return Err(self.interrupted(&CliError::from(refusal)));
        }
        if self.last.get("done") != Some(&Value::Bool(true)) {
            return Err(self.interrupted(&CliError::Failed("the broker ended the import early".to_owned())));
        }
        match self.json {
            true => self.output.json(&self.last)?,
            false => self.output.line(&count_text(&self.last))?,
        }
        let renumbered = self.last.get("renumbered").and_then(Value::as_u64).unwrap_or_default();
        if renumbered > 0 && !self.json {
            output::print_note(&format_args!(
                "{renumbered} events have other sequences than in the export: offsets and checkpoints from there do not fit"
            ));
        }
        let failed = self.last.get("failed").and_then(Value::as_u64).unwrap_or_default();
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn interrupted(&self, failure: &CliError) -> CliError {
        self.bar.finish_and_clear();
        let far = count_text(&self.last);
        CliError::Failed(format!("{failure}\n  {far}; repeat the import: stored events are duplicates then"))
    }
}

/// The counts, for people.
fn count_text(count: &Value) -> String {
    let number = |name| count.get(name).and_then(Value::as_u64).unwrap_or_default();
    let unreported = match number("unreported") {
        0 => String::new(),
        count => format!(" ({count} of them not listed)"),
    };
    let (imported, duplicates, failed) = (number("imported"), number("duplicates"), number("failed"));
    format!("imported {imported}, duplicates {duplicates}, failed {failed}{unreported}")
}
