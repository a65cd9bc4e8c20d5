//! `event-broker export`: a topic's events, or all of them, as they are stored.
//!
//! - It ends at the tail at the time when the export began.
//! - Events of a topic are in the topic's order. The topics of the default log are in the log's order; topics with a
//!   log of their own follow, one after the other.
//! - An interrupted export leaves whole lines in order, and `--after` continues after them.
//! - The broker's own topics are exported only by name: `import` refuses their events.

mod sink;

use super::client::{self, BrokerClient, BrokerUrl};
use super::error::{CliError, CliResult};
use super::output::{self, CliOutput, print_note};
use super::reading::{self, DEFAULT_TOPIC, TopicPage};
use contract::{Offset, ReadOffset, TopicId};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use sink::ExportSink;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes events to a file as NDJSON: one event per line, as it is stored.
///
/// It exports one topic, or with --all all topics except the broker's own, which `import` refuses. `import` loads the same events
/// with the same ids and in the same order into an empty broker. Event types and topics are not exported: `types list --json`
/// and `topics list --json` print them. Events that retention has removed cannot be exported; a note on standard error says
/// which.
///
/// Exit code 0: everything up to the tail at the start was written. 1: the export was interrupted; the message says how
/// to resume.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker export --output events.ndjson\n  \
    event-broker export gts.hx.core.events.topic.v1~vendor.orders.v1 --output orders.ndjson\n  \
    event-broker export gts.hx.core.events.topic.v1~vendor.orders.v1 --after 51200 --output orders.ndjson\n  \
    event-broker export --all | gzip > everything.ndjson.gz")]
pub(super) struct ExportArgs {
    #[command(flatten)]
    server: BrokerUrl,
    /// The topic; the default one when absent.
    #[arg(conflicts_with = "all")]
    topic: Option<String>,
    /// Every topic except the broker's own; those are exported by name.
    #[arg(long)]
    all: bool,
    /// The file; standard output when absent, or -. An existing file is refused, unless --after appends to it.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continue after this sequence (with --all: this position), and append to the file.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// Print how many events were written, as JSON.
    #[arg(long, requires = "output")]
    json: bool,
}

/// A page of the default log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExportedLogPage {
    items: Vec<Box<RawValue>>,
    next_position: u64,
    tail: u64,
}

/// The numbers of an event.
#[derive(Deserialize)]
struct EventNumbers {
    topic: String,
    sequence: u64,
    position: u64,
}

pub(super) fn run(arguments: &ExportArgs) -> ExitCode {
    client::run(Box::pin(export(arguments)))
}

async fn export(arguments: &ExportArgs) -> CliResult {
    let client = arguments.server.client()?;
    let topic = arguments.topic.as_deref().unwrap_or(DEFAULT_TOPIC);
    // Requested before the file is created: an unknown topic leaves no file behind.
    let tails = match arguments.all {
        true => tails(&client).await?,
        false => vec![(topic.to_owned(), reading::tail(&client, topic).await?)],
    };
    let sink = ExportSink::open(arguments.output.as_deref(), arguments.after.is_some())?;
    let after = arguments.after.unwrap_or(0);
    let bar = output::progress_bar(Some(0), "{bar:30} {pos}/{len} {msg}");
    let mut exporting = ExportRun { client, sink, bar, written: 0, resume_after: after, left_out: BTreeSet::new() };
    let outcome = match arguments.all {
        true => exporting.everything(&tails, after).await,
        false => exporting.topic(topic, tails.first().map_or(0, |(_, tail)| *tail), arguments.after).await,
    };
    let outcome = outcome.and_then(|()| exporting.sink.finish());
    exporting.bar.finish_and_clear();
    exporting.report(arguments, outcome)
}

/// Every topic that is not the broker's own, with its last sequence.
async fn tails(client: &BrokerClient) -> CliResult<Vec<(String, u64)>> {
    let mut tails = Vec::new();
    for topic in client.list(&["topics"], &[], "topics").await? {
        let id = output::member(&topic, "id");
        if id.contains(TopicId::RESERVED) {
            continue;
        }
        let tail = reading::tail(client, &id).await?;
        tails.push((id, tail));
    }
    Ok(tails)
}

/// A running export.
struct ExportRun {
    client: BrokerClient,
    sink: ExportSink,
    bar: ProgressBar,
    written: u64,
    /// Where to continue if it is interrupted.
    resume_after: u64,
    /// Topics whose events were left out.
    left_out: BTreeSet<String>,
}

impl ExportRun {
    /// Exports one topic, up to and including `end`.
    async fn topic(&mut self, topic: &str, end: u64, after: Option<u64>) -> CliResult<()> {
        let mut offset = after.unwrap_or(0);
        self.bar.set_length(end);
        while offset < end {
            let page = match reading::page(&self.client, topic, Offset(offset).into(), &[]).await {
                Err(CliError::Refused(refusal)) if refusal.resume_offset.is_some_and(|resume| resume > offset) => {
                    let resume = refusal.resume_offset.unwrap_or_default();
                    print_note(&format_args!("{topic}: events {} to {resume} are past their retention", offset + 1));
                    offset = resume;
                    continue;
                }
                page => page?,
            };
            let TopicPage { items, next_offset, .. } = page;
            for event in &items {
                let numbers = numbers(event)?;
                if numbers.sequence > end {
                    return Ok(());
                }
                self.write(event, numbers.sequence)?;
            }
            if next_offset <= offset {
                return Ok(());
            }
            offset = next_offset;
            self.bar.set_position(offset.min(end));
        }
        Ok(())
    }

    /// Exports the default log in its own order, then the topics that live elsewhere.
    async fn everything(&mut self, tails: &[(String, u64)], after: u64) -> CliResult<()> {
        let seen = self.default_log(after).await?;
        // A topic is in one log: no event was seen of the topics that are not in this one.
        let elsewhere = tails.iter().filter(|(topic, tail)| *tail > 0 && !seen.contains(topic));
        let through = self.resume_after;
        for (topic, tail) in elsewhere {
            if after > 0 && self.lives_in_default_log(topic).await? {
                continue;
            }
            self.topic(topic, *tail, None).await?;
            self.resume_after = through;
        }
        Ok(())
    }

    /// Exports the events of the default log after a position; returns their topics.
    async fn default_log(&mut self, after: u64) -> CliResult<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        let mut after = after;
        let mut end = None;
        loop {
            let query = [("after".to_owned(), after.to_string())];
            let page: ExportedLogPage = self.client.get(&["log"], &query).await?;
            let end = *end.get_or_insert(page.tail);
            self.bar.set_length(end);
            for event in &page.items {
                let numbers = numbers(event)?;
                if numbers.position > end {
                    return Ok(seen);
                }
                if numbers.topic.contains(TopicId::RESERVED) {
                    self.left_out.insert(numbers.topic);
                    self.resume_after = numbers.position;
                    continue;
                }
                self.write(event, numbers.position)?;
                seen.insert(numbers.topic);
            }
            if page.next_position <= after || page.next_position >= end {
                return Ok(seen);
            }
            after = page.next_position;
            self.bar.set_position(after);
        }
    }

    /// Whether a topic without events after `--after` has events before that position.
    async fn lives_in_default_log(&self, topic: &str) -> CliResult<bool> {
        let one = [("limit".to_owned(), "1".to_owned())];
        let page = reading::page(&self.client, topic, ReadOffset::Earliest, &one).await?;
        let Some(first) = page.items.first() else { return Ok(false) };
        let first = numbers(first)?;
        let query = [("after".to_owned(), (first.position - 1).to_string()), ("limit".to_owned(), "1".to_owned())];
        let page: ExportedLogPage = self.client.get(&["log"], &query).await?;
        let there = page.items.first().map(|event| numbers(event)).transpose()?;
        Ok(there.is_some_and(|there| there.topic == first.topic && there.sequence == first.sequence))
    }

    fn write(&mut self, event: &RawValue, number: u64) -> CliResult<()> {
        self.sink.line(&output::on_one_line(event.get()))?;
        self.written += 1;
        self.resume_after = number;
        self.bar.set_message(format!("{} events", self.written));
        Ok(())
    }

    /// Prints the result, and how to continue if the export was interrupted.
    fn report(&mut self, arguments: &ExportArgs, outcome: CliResult<()>) -> CliResult {
        let Self { written, resume_after: through, left_out, .. } = self;
        match outcome {
            Ok(()) if arguments.json => {
                CliOutput::new().json(&json!({"events": written, "after": through}))?;
                Ok(ExitCode::SUCCESS)
            }
            Ok(()) => {
                print_note(&format_args!("exported {written} events, through {through}"));
                for topic in left_out.iter() {
                    print_note(&format_args!("not exported, because it is the broker's own topic: {topic}"));
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(CliError::Closed) => Err(CliError::Closed),
            Err(failure) if *written > 0 => {
                // The next export continues after what was written so far. The failure that is reported is the first one.
                if let Err(error) = self.sink.finish() {
                    print_note(&error);
                }
                Err(CliError::Failed(format!(
                    "{failure}\n  {written} events are written; continue with --after {through}"
                )))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn numbers(event: &RawValue) -> CliResult<EventNumbers> {
    serde_json::from_str(event.get()).map_err(|error| CliError::caused_by("an event cannot be read", error))
}
