//! An event that is built from flags.

use crate::cli::error::{CliError, CliResult};
use crate::cli::input::pair;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The members of an event, each a flag.
#[derive(clap::Args)]
#[command(next_help_heading = "An event from flags")]
pub(super) struct EventFlags {
    /// Its type; with this flag the event is built from flags.
    #[arg(long = "type", value_name = "ID", conflicts_with_all = ["event", "file"])]
    event_type: Option<String>,
    /// The program that publishes it.
    #[arg(long, value_name = "TEXT", requires = "event_type", default_value = "event-broker-cli")]
    source: String,
    /// What it is about, such as an order number.
    #[arg(long, value_name = "TEXT", requires = "event_type")]
    subject: Option<String>,
    /// The type of the subject.
    #[arg(long, value_name = "ID", requires = "event_type")]
    subject_type: Option<String>,
    /// The tenant that it belongs to.
    #[arg(long, value_name = "UUID", requires = "event_type")]
    tenant: Option<String>,
    /// The payload, a JSON object.
    #[arg(long, value_name = "JSON", requires = "event_type", default_value = "{}")]
    data: String,
    /// Version of the type's schema, MAJOR.MINOR.
    #[arg(long, value_name = "VERSION", requires = "event_type")]
    data_version: Option<String>,
    /// Its id; generated when absent.
    #[arg(long, value_name = "UUID", requires = "event_type")]
    id: Option<String>,
    /// The topic; the topic of its type when absent.
    #[arg(long, value_name = "ID", requires = "event_type")]
    topic: Option<String>,
    /// When it happened, RFC 3339; now when absent.
    #[arg(long, value_name = "TIME", requires = "event_type")]
    occurred_at: Option<String>,
    /// The id of the business transaction that it belongs to.
    #[arg(long, value_name = "TEXT", requires = "event_type")]
    correlation_id: Option<String>,
    /// The id of the event that caused it.
    #[arg(long, value_name = "TEXT", requires = "event_type")]
    causation_id: Option<String>,
    /// An idempotency key of your own, instead of the one made of its members.
    #[arg(long, value_name = "TEXT", requires = "event_type")]
    deduplication_id: Option<String>,
    /// The aggregate's last sequence as you know it; 0: the aggregate must be new.
    #[arg(long, value_name = "N", requires = "event_type")]
    expected_aggregate_sequence: Option<u64>,
    /// A context label that readers can filter by; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", requires = "event_type", value_parser = pair)]
    context: Vec<(String, String)>,
}

impl EventFlags {
    /// The event that the flags describe; `None` without `--type`.
    pub(super) fn event(&self) -> CliResult<Option<Box<RawValue>>> {
        let Some(event_type) = &self.event_type else { return Ok(None) };
        // Kept as text from here on: its numbers keep their spelling.
        serde_json::from_str::<&RawValue>(&self.data)
            .map_err(|error| CliError::Misused(format!("--data is not JSON: {error}")))?;
        let mut members = vec![format!("\"type\":{}", json!(event_type)), format!("\"source\":{}", json!(self.source))];
        let texts = [
            ("subject", &self.subject),
            ("subjectType", &self.subject_type),
            ("tenant", &self.tenant),
            ("dataVersion", &self.data_version),
            ("id", &self.id),
            ("topic", &self.topic),
            ("occurredAt", &self.occurred_at),
            ("correlationId", &self.correlation_id),
            ("causationId", &self.causation_id),
            ("deduplicationId", &self.deduplication_id),
        ];
        members.extend(texts.iter().filter_map(|(name, text)| Some(format!("\"{name}\":{}", json!(text.as_ref()?)))));
        members.extend(self.expected_aggregate_sequence.map(|it| format!("\"expectedAggregateSequence\":{it}")));
        if !self.context.is_empty() {
            let labels = self.context.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
            members.push(format!("\"context\":{}", Value::Object(labels.collect())));
        }
        members.push(format!("\"data\":{}", self.data));
        let text = format!("{{{}}}", members.join(","));
        let event = RawValue::from_string(text).map_err(|error| CliError::caused_by("the event", error))?;
        Ok(Some(event))
    }
}
