//! `event-broker publish`: publishes events from the command line, a file or standard input, in their order.

mod batch_sender;
mod event_flags;

use super::client::{self, BrokerUrl};
use super::error::{CliError, CliResult};
use super::input::{self, JsonValues};
use super::output::{CliOutput, TextColour, escape_controls, print_note};
use batch_sender::{BatchSender, EventAnswer, InputReader};
use event_flags::EventFlags;
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Publishes events: one from the command line, or many from a file or standard input.
///
/// An event is JSON, as the API accepts it, or is built from flags. A file holds one event, an array of events, or one event
/// per line. Several events are sent in batches of at most 100 events and 1 MiB, in their order; if an event of a batch is
/// refused, the other events of its topic in the batch are refused too. Events that arrive slowly on standard input do not
/// wait for a full batch. Events without an `id` get one here, so that a request that is repeated after a broken connection
/// does not store a second event.
///
/// Exit code 0: all events are stored, now or before. 1: some were refused, each with its reason, or the broker could not be
/// reached. 2: there was nothing to publish.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker publish '{\"type\":\"gts.…\",\"source\":\"shop\",\"subject\":\"o-1\",\"data\":{\"total\":9}}'\n  \
    event-broker publish --type gts.… --subject o-1 --tenant 6b1c… --data '{\"total\":9}'\n  \
    event-broker publish --file events.ndjson\n  \
    generate-events | event-broker publish - --producer-id generator-1 --json")]
pub(super) struct PublishArgs {
    #[command(flatten)]
    server: BrokerUrl,
    /// The event as JSON, or - for standard input.
    #[arg(value_name = "EVENT")]
    event: Option<String>,
    /// Read the events from this file (- is standard input).
    #[arg(long, value_name = "FILE", conflicts_with = "event")]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: EventFlags,
    /// The name of the program instance that publishes; idempotency keys of different producers are different.
    #[arg(long, value_name = "ID")]
    producer_id: Option<String>,
    /// All or nothing: the events go in one request and are stored together or not at all.
    #[arg(long, value_name = "WHAT")]
    atomic: Option<AtomicScope>,
    /// Print a JSON line {index, status, event | error} for every event.
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum AtomicScope {
    /// The whole request.
    All,
}

pub(super) fn run(arguments: &PublishArgs) -> ExitCode {
    client::run(Box::pin(publish(arguments)))
}

async fn publish(arguments: &PublishArgs) -> CliResult {
    let (values, paced) = events(arguments)?;
    let client = arguments.server.client()?;
    let mut events = InputReader::start(values, paced);
    let mut report = PublishReport { output: CliOutput::new(), json: arguments.json, stored: 0, refused: 0 };
    let mut sending = BatchSender::new(client, arguments.producer_id.clone(), arguments.atomic.is_some());
    let sent = sending.send_all(&mut events, |answered| report.take(answered)).await;
    if let Err(failure) = sent {
        return Err(report.interrupted(failure));
    }
    match (report.stored, report.refused) {
        (0, 0) => Err(CliError::Misused("there is no event to publish".to_owned())),
        (_, 0) => Ok(ExitCode::SUCCESS),
        (stored, refused) => Err(CliError::Failed(format!("{refused} of {} events were refused", stored + refused))),
    }
}

/// The source of the events, and whether they may arrive slowly.
fn events(arguments: &PublishArgs) -> CliResult<(JsonValues, bool)> {
    if let Some(event) = arguments.flags.event()? {
        return Ok((Box::new(std::iter::once(Ok(event))), false));
    }
    match &arguments.event {
        Some(text) if text != "-" => {
            let event = RawValue::from_string(text.clone());
            let event = event.map_err(|error| CliError::Misused(format!("EVENT is not JSON: {error}")))?;
            Ok((Box::new(std::iter::once(Ok(event))), false))
        }
        event => {
            let file = arguments.file.as_deref().or(event.as_deref().map(Path::new));
            let source = input::open(file)?;
            let paced = source.bytes.is_none();
            Ok((input::values(source), paced))
        }
    }
}

/// The results so far.
struct PublishReport {
    output: CliOutput,
    json: bool,
    stored: u64,
    refused: u64,
}

impl PublishReport {
    fn take(&mut self, answered: &EventAnswer) -> CliResult<()> {
        match &answered.refusal {
            None => self.stored += 1,
            Some(refusal) => {
                self.refused += 1;
                if !self.json {
                    print_note(&format_args!("event {} was refused: {refusal}", answered.index + 1));
                }
            }
        }
        if !answered.secret_suspected.is_empty() && !self.json {
            let places = escape_controls(&answered.secret_suspected.join(", "));
            print_note(&format_args!("event {} seems to contain a secret: {places}", answered.index + 1));
        }
        match (&answered.event, self.json) {
            (_, true) => self.output.line(&answered.as_json()),
            (Some(event), false) => {
                let line = self.line(answered, event);
                self.output.line(&line)
            }
            (None, false) => Ok(()),
        }
    }

    /// `stored <topic> #<sequence> <id>`.
    fn line(&self, answered: &EventAnswer, event: &RawValue) -> String {
        let event: Value = serde_json::from_str(event.get()).unwrap_or_default();
        let (word, colour) = match answered.is_new() {
            true => ("stored", TextColour::Green),
            false => ("duplicate", TextColour::Yellow),
        };
        let text = |name| escape_controls(event.get(name).and_then(Value::as_str).unwrap_or_default());
        let sequence = event.get("sequence").and_then(Value::as_u64).unwrap_or_default();
        let mismatch = if answered.payload_mismatch { " (with other data)" } else { "" };
        format!("{} {} #{sequence} {}{mismatch}", self.output.coloured(word, colour), text("topic"), text("id"))
    }

    /// A failure with the number of events that were answered before it.
    fn interrupted(&self, failure: CliError) -> CliError {
        let answered = self.stored + self.refused;
        if answered == 0 || matches!(failure, CliError::Closed) {
            return failure;
        }
        let next = answered + 1;
        CliError::Failed(format!(
            "{failure}\n  {answered} events were answered before; the next to send is event {next}"
        ))
    }
}
