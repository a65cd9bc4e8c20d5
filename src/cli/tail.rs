//! `event-broker tail`: prints a topic's events as they arrive, or those that are stored.
//!
//! - The start is fixed before the stream is opened, so that no event is skipped if the first stream breaks off at once.
//! - A stream that ends or breaks off is opened again after the last event; a refusal ends the command, unless it is
//!   transient.

use super::client::{self, BrokerClient, BrokerUrl};
use super::error::{CliError, CliResult};
use super::output::{CliOutput, TextColour, escape_controls, on_one_line, print_note, reader_is_gone};
use super::reading::{self, DEFAULT_TOPIC, FilterArgs};
use contract::{Offset, ReadOffset};
use event_broker_client::connection::StreamPart;
use serde_json::Value;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::str::FromStr;

/// Characters of an event's data that are printed without `--json`.
const DATA_CHARS_MAX: usize = 200;

/// Prints a topic's events and follows it.
///
/// It prints one line per event: time, sequence, type, subject and data (shortened if it is long). With --json it prints the
/// events as they are stored, one JSON object per line. After a broken connection or a restart of the broker it continues
/// after the last event.
///
/// Exit code 0: as many events as --limit names, or with --no-follow all events, were printed. 1: the broker refused the
/// request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker tail\n  \
    event-broker tail gts.hx.core.events.topic.v1~vendor.orders.v1 --from earliest --json | jq .data\n  \
    event-broker tail --type 'gts.hx.core.events.type.v1~vendor.*' --filter 'data.total > 100'\n  \
    event-broker tail --from 1000 --limit 10 --no-follow")]
pub(super) struct TailArgs {
    #[command(flatten)]
    server: BrokerUrl,
    /// The topic.
    #[arg(default_value = DEFAULT_TOPIC, hide_default_value = true)]
    topic: String,
    /// Where to start: earliest, latest (only new events), or a sequence. The default is latest, with --no-follow earliest.
    #[arg(long, value_name = "WHERE")]
    from: Option<TailStart>,
    /// Exit after this many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the events that are stored now, and exit.
    #[arg(long)]
    no_follow: bool,
    /// Print the events as they are stored, one JSON object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filters: FilterArgs,
}

/// Where to start.
#[derive(Debug, Clone, Copy)]
enum TailStart {
    Earliest,
    Latest,
    Sequence(u64),
}

impl FromStr for TailStart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            number => number.parse().map(Self::Sequence).map_err(|_| "must be earliest, latest or a number".to_owned()),
        }
    }
}

pub(super) fn run(arguments: &TailArgs) -> ExitCode {
    client::run(Box::pin(tail(arguments)))
}

async fn tail(arguments: &TailArgs) -> CliResult {
    let client = arguments.server.client()?;
    let default = if arguments.no_follow { TailStart::Earliest } else { TailStart::Latest };
    let offset = match arguments.from.unwrap_or(default) {
        TailStart::Earliest => ReadOffset::Earliest,
        // As a number: a stream that breaks off before its first event resumes there, not at a later tail.
        TailStart::Latest => Offset(reading::tail(&client, &arguments.topic).await?).into(),
        TailStart::Sequence(first) => Offset(first.saturating_sub(1)).into(),
    };
    let lines = EventPrinter::new(arguments.json, arguments.limit);
    let mut tail = TailedTopic { client, topic: &arguments.topic, filters: arguments.filters.query(), offset, lines };
    match arguments.no_follow {
        true => tail.read().await?,
        false => tokio::select! {
            followed = tail.follow() => followed?,
            () = reader_is_gone() => {}
        },
    }
    Ok(ExitCode::SUCCESS)
}

struct TailedTopic<'a> {
    client: BrokerClient,
    topic: &'a str,
    filters: Vec<(String, String)>,
    /// Where to continue.
    offset: ReadOffset,
    lines: EventPrinter,
}

impl TailedTopic<'_> {
    /// Prints the events that are stored now.
    async fn read(&mut self) -> CliResult<()> {
        let end = reading::tail(&self.client, self.topic).await?;
        loop {
            let page = reading::page(&self.client, self.topic, self.offset, &self.filters).await?;
            for event in &page.items {
                let event = PrintedEvent::read(event.get())?;
                if event.sequence > end || self.lines.print(&event)?.is_break() {
                    return Ok(());
                }
            }
            // A page that did not advance: only removed events are left.
            let next = ReadOffset::Behind(Offset(page.next_offset));
            if page.next_offset >= end || next == self.offset {
                return Ok(());
            }
            self.offset = next;
        }
    }

    /// Prints events as they arrive.
    async fn follow(&mut self) -> CliResult<()> {
        let query = reading::query(self.topic, &self.filters);
        let mut stream = self.client.follow(query, self.offset).await?;
        loop {
            match stream.next().await.map_err(|failure| self.client.failure(failure))? {
                StreamPart::Event(text) => {
                    if self.lines.print(&PrintedEvent::read(&text)?)?.is_break() {
                        return Ok(());
                    }
                }
                StreamPart::Interrupted => {
                    let next = match stream.offset() {
                        ReadOffset::Behind(offset) => format!("after {offset}"),
                        end => format!("at {end}"),
                    };
                    print_note(&format_args!("the stream from {} ended; continuing {next}", self.client.address()));
                }
            }
        }
    }
}

/// An event to be printed.
struct PrintedEvent {
    text: String,
    event: Value,
    sequence: u64,
}

impl PrintedEvent {
    fn read(text: &str) -> CliResult<Self> {
        let event: Value =
            serde_json::from_str(text).map_err(|error| CliError::caused_by("an event cannot be read", error))?;
        let sequence = event.get("sequence").and_then(Value::as_u64).unwrap_or_default();
        Ok(Self { text: on_one_line(text), event, sequence })
    }

    fn member(&self, name: &str) -> &str {
        self.event.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Prints events as lines, with columns as wide as the widest cell so far.
struct EventPrinter {
    output: CliOutput,
    json: bool,
    left: Option<u64>,
    widths: [usize; 3],
}

impl EventPrinter {
    fn new(json: bool, limit: Option<u64>) -> Self {
        Self { output: CliOutput::new(), json, left: limit, widths: [0; 3] }
    }

    /// Prints an event; `Break` if it was the last one wanted.
    fn print(&mut self, event: &PrintedEvent) -> CliResult<ControlFlow<()>> {
        let line = if self.json { event.text.clone() } else { self.as_line(event) };
        self.output.line(&line)?;
        self.left = self.left.map(|left| left - 1);
        Ok(if self.left == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn as_line(&mut self, event: &PrintedEvent) -> String {
        let cells = [
            format!("#{}", event.sequence),
            short_type(event.member("type")),
            escape_controls(event.member("subject")),
        ];
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.chars().count());
        }
        let [sequence, event_type, subject] = &cells;
        let [sequences, types, subjects] = self.widths;
        let data = event.event.get("data").map(Value::to_string).unwrap_or_default();
        let paint = |text: String, colour| self.output.coloured(&text, colour);
        [
            paint(escape_controls(event.member("occurredAt")), TextColour::Dim),
            paint(format!("{sequence:>sequences$}"), TextColour::Yellow),
            paint(format!("{event_type:types$}"), TextColour::Cyan),
            paint(format!("{subject:subjects$}"), TextColour::Green),
            cut(&escape_controls(&data)),
        ]
        .join("  ")
    }
}

/// The last part of a type's id.
fn short_type(event_type: &str) -> String {
    let trimmed = event_type.strip_suffix('~').unwrap_or(event_type);
    escape_controls(trimmed.rsplit('~').next().unwrap_or(trimmed))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(DATA_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}
