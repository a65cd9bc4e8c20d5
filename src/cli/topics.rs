//! `event-broker topics`: creates, changes, trims, republishes and deletes topics.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::{CliError, CliResult};
use super::input;
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Lists, shows, creates, changes, trims, republishes and deletes topics.
///
/// A topic is a named stream of events with its own order and retention. Durations are ISO 8601: PT24H, P30D.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker topics list\n  \
    event-broker topics create shop.orders --retention P30D\n  \
    event-broker topics change shop.orders --retention P90D\n  \
    event-broker topics change shop.orders --remove retention\n  \
    event-broker topics segments gts.hx.core.events.topic.v1~ --json")]
pub(super) struct TopicsArgs {
    #[command(flatten)]
    client: ClientArgs<TopicsCommand>,
}

#[derive(clap::Subcommand)]
enum TopicsCommand {
    /// Lists topics.
    List {
        /// Only topics whose id matches; a pattern may end in *.
        pattern: Option<String>,
    },
    /// Shows one topic.
    Show {
        /// Its id.
        topic: String,
    },
    /// Creates a topic. The same definition again changes nothing; another definition under the same id is refused.
    #[command(after_help = "Examples:\n  \
        event-broker topics create gts.hx.core.events.topic.v1~vendor.orders.v1 --description 'Orders of the shop'\n  \
        event-broker topics create gts.hx.core.events.topic.v1~vendor.clicks.v1 --storage memory\n  \
        event-broker topics create --file topic.json")]
    Create {
        /// Its id.
        #[arg(required_unless_present = "file")]
        topic: Option<String>,
        /// Read the definitions from this file, as JSON (- is standard input).
        #[arg(long, value_name = "FILE", conflicts_with = "topic")]
        file: Option<PathBuf>,
        #[command(flatten)]
        settings: TopicSettingsArgs,
        #[command(flatten)]
        placing: TopicPlacementArgs,
    },
    /// Changes settings of a topic; settings that are not named stay as they are.
    Change {
        /// Its id.
        topic: String,
        #[command(flatten)]
        settings: TopicSettingsArgs,
        /// Remove this setting, so that its default applies; may be repeated.
        #[arg(long, value_name = "SETTING")]
        remove: Vec<TopicSetting>,
    },
    /// Republishes events: for all readers of the topic, for one shared group, or for subscriptions.
    Republish {
        /// The topic's id.
        topic: String,
        /// The first sequence.
        #[arg(long, value_name = "SEQUENCE")]
        from: u64,
        /// The last sequence.
        #[arg(long, value_name = "SEQUENCE")]
        to: u64,
        /// Deliver the events that this shared group has finished to it again, instead of appending copies.
        #[arg(long, value_name = "NAME", conflicts_with = "subscription")]
        group: Option<String>,
        /// Deliver the events to this subscription again, or with `all` to all of the topic, instead of appending copies.
        #[arg(long, value_name = "CODE")]
        subscription: Option<String>,
        /// Only count the events.
        #[arg(long)]
        dry_run: bool,
    },
    /// Compacts a topic now: keeps the latest event of each aggregate (topics with `cleanup: compact`).
    Compact {
        /// The topic's id.
        topic: String,
        /// Also erase the bytes of the removed events from the files before the command returns.
        #[arg(long)]
        erase: bool,
    },
    /// Removes a topic's oldest events now.
    Trim {
        /// The topic's id.
        topic: String,
        /// The last sequence to remove.
        #[arg(long, value_name = "SEQUENCE", required_unless_present = "before")]
        through: Option<u64>,
        /// Remove events that were stored before this time (RFC 3339).
        #[arg(long, value_name = "TIME", conflicts_with = "through")]
        before: Option<String>,
        /// Also erase the bytes of the removed events from the files before the command returns.
        #[arg(long)]
        erase: bool,
    },
    /// Deletes a topic with its events. Refused while subscriptions, consumers or projections use it.
    Delete {
        /// The topic's id.
        topic: String,
        /// Also delete the subscriptions, consumers and projections that use it.
        #[arg(long)]
        force: bool,
        /// Only print what --force would delete.
        #[arg(long, conflicts_with = "force")]
        dry_run: bool,
    },
    /// Lists the segments that hold a topic's events.
    Segments {
        /// Its id.
        topic: String,
        /// Newest first.
        #[arg(long)]
        descending: bool,
    },
}

/// A setting that may change at any time.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TopicSetting {
    Description,
    Retention,
    IdempotentRetention,
    OnPayloadMismatch,
    Secrets,
}

impl TopicSetting {
    /// Its member in the API.
    const fn member(self) -> &'static str {
        match self {
            Self::Description => "description",
            Self::Retention => "retention",
            Self::IdempotentRetention => "idempotentRetention",
            Self::OnPayloadMismatch => "onPayloadMismatch",
            Self::Secrets => "secrets",
        }
    }
}

/// Settings that may change at any time.
#[derive(clap::Args)]
struct TopicSettingsArgs {
    /// A description for people.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// How long events are kept, such as P30D; forever when absent.
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// How long idempotency keys are remembered.
    #[arg(long, value_name = "DURATION")]
    idempotent_retention: Option<String>,
    /// What happens when an idempotency key is repeated with other data: duplicate, flag or reject.
    #[arg(long, value_name = "WHAT")]
    on_payload_mismatch: Option<String>,
    /// What happens to events that seem to contain a secret: off, flag or reject.
    #[arg(long, value_name = "WHAT")]
    secrets: Option<String>,
}

/// Settings that are fixed when a topic is created.
#[derive(clap::Args)]
struct TopicPlacementArgs {
    /// The engine of a log of its own, instead of the default log: memory or file.
    #[arg(long, value_name = "TYPE")]
    storage: Option<String>,
    /// Which submissions are duplicates: submission (id, type, subject, time and producer are equal) or id (only the id).
    #[arg(long, value_name = "WHAT")]
    deduplicate_by: Option<String>,
    /// The location of its own log, such as a folder below the data folder.
    #[arg(long, value_name = "PLACE")]
    location: Option<String>,
    /// What retention removes: delete (events past their age) or compact (events that are not the latest of their
    /// aggregates).
    #[arg(long, value_name = "WHAT")]
    cleanup: Option<String>,
    /// How subjects are normalised before they are compared: trim, caseFold, nfc. May be repeated.
    #[arg(long, value_name = "RULE")]
    aggregate_normalisation: Vec<String>,
    /// Do not list it for ordinary callers.
    #[arg(long)]
    internal: bool,
}

pub(super) fn run(arguments: &TopicsArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<TopicsCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    match verb {
        TopicsCommand::List { pattern } => {
            let query: Vec<_> = pattern.iter().map(|pattern| ("topic".to_owned(), pattern.clone())).collect();
            let topics = client.list(&["topics"], &query, "topics").await?;
            print_all(&mut output, *json, &topics)?;
        }
        TopicsCommand::Show { topic } => print(&mut output, *json, &client.get(&["topics", topic], &[]).await?)?,
        TopicsCommand::Create { topic, file, settings, placing } => {
            for definition in definitions(topic.as_deref(), file.as_ref(), settings, placing)? {
                let created = client.send_json(Method::POST, &["topics"], &definition, RequestRetry::Freely).await?;
                print(&mut output, *json, &created)?;
            }
        }
        TopicsCommand::Change { topic, settings, remove } => {
            let change = change(settings, remove)?;
            let changed = client.send_json(Method::PATCH, &["topics", topic], &change, RequestRetry::Freely).await?;
            print(&mut output, *json, &changed)?;
        }
        TopicsCommand::Republish { topic, from, to, group, subscription, dry_run } => {
            let (target, name) = match (group, subscription.as_deref()) {
                (Some(group), _) => ("group", Some(group.as_str())),
                (None, Some("all")) => ("subscriptions", None),
                (None, code @ Some(_)) => ("subscriptions", code),
                (None, None) => ("topic", None),
            };
            let order = json!({"from": from, "to": to, "target": target, "name": name, "dryRun": dry_run});
            print(&mut output, *json, &run_order(&client, topic, "republish", &order).await?)?;
        }
        TopicsCommand::Compact { topic, erase } => {
            print(&mut output, *json, &run_order(&client, topic, "compact", &json!({"erase": erase})).await?)?;
        }
        TopicsCommand::Trim { topic, through, before, erase } => {
            let trim = json!({"through": through, "before": before, "erase": erase});
            print(&mut output, *json, &run_order(&client, topic, "trim", &trim).await?)?;
        }
        TopicsCommand::Delete { topic, force, dry_run } => {
            let named = [("force", force), ("dryRun", dry_run)].into_iter().filter(|(_, is_set)| **is_set);
            let query: Vec<_> = named.map(|(name, _)| (name.to_owned(), "true".to_owned())).collect();
            let request = client.request(Method::DELETE, &["topics", topic], &query);
            let response = client.send(request, RequestRetry::Never).await?;
            if *dry_run {
                print(&mut output, *json, &client::parse(&client.read_body(response).await?)?)?;
            } else {
                output.line(&if *json { json!({"deleted": topic}).to_string() } else { format!("deleted {topic}") })?;
            }
        }
        TopicsCommand::Segments { topic, descending } => {
            let segments = segments(&client, topic, *descending).await?;
            print_segments(&mut output, *json, &segments)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a command about a topic; returns how many events it affected.
async fn run_order(client: &BrokerClient, topic: &str, command: &str, order: &Value) -> CliResult<Value> {
    client.send_json(Method::POST, &["topics", &format!("{topic}:{command}")], order, RequestRetry::Never).await
}

/// The change that sets and removes these settings.
fn change(settings: &TopicSettingsArgs, remove: &[TopicSetting]) -> CliResult<Value> {
    let mut members = settings.members();
    for setting in remove {
        if members.insert(setting.member().to_owned(), Value::Null).is_some_and(|set| !set.is_null()) {
            return Err(CliError::Misused(format!("`{}` is both set and removed", setting.member())));
        }
    }
    if members.is_empty() {
        return Err(CliError::Misused("nothing to change: name a setting, such as --retention".to_owned()));
    }
    Ok(Value::Object(members))
}

fn definitions(
    topic: Option<&str>,
    file: Option<&PathBuf>,
    settings: &TopicSettingsArgs,
    placing: &TopicPlacementArgs,
) -> CliResult<Vec<Value>> {
    let Some(topic) = topic else {
        let values = input::values(input::open(file.map(PathBuf::as_path))?);
        return values.map(|value| input::definition(value?.get())).collect();
    };
    let mut members = settings.members();
    members.insert("id".to_owned(), json!(topic));
    members.insert("streaming".to_owned(), placing.streaming());
    if let Some(by) = &placing.deduplicate_by {
        members.insert("deduplicateBy".to_owned(), json!(by));
    }
    if let Some(cleanup) = &placing.cleanup {
        members.insert("cleanup".to_owned(), json!(cleanup));
    }
    if !placing.aggregate_normalisation.is_empty() {
        members.insert("aggregateNormalisation".to_owned(), json!(placing.aggregate_normalisation));
    }
    if placing.internal {
        members.insert("internal".to_owned(), json!(true));
    }
    Ok(vec![Value::Object(members)])
}

impl TopicSettingsArgs {
    fn members(&self) -> Map<String, Value> {
        let members = [
            ("description", &self.description),
            ("retention", &self.retention),
            ("idempotentRetention", &self.idempotent_retention),
            ("onPayloadMismatch", &self.on_payload_mismatch),
            ("secrets", &self.secrets),
        ];
        let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        members.collect()
    }
}

impl TopicPlacementArgs {
    fn streaming(&self) -> Value {
        let members = [("type", &self.storage), ("location", &self.location)];
        let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
        let options: Map<_, _> = members.collect();
        if options.is_empty() { Value::Bool(true) } else { Value::Object(options) }
    }
}

async fn segments(client: &BrokerClient, topic: &str, descending: bool) -> CliResult<Vec<Value>> {
    let mut query = vec![("topic".to_owned(), topic.to_owned())];
    if descending {
        query.push(("$orderby".to_owned(), "rangeStart desc".to_owned()));
    }
    client.list(&["topics", "segments"], &query, "segments").await
}

fn print(output: &mut CliOutput, json: bool, topic: &Value) -> CliResult<()> {
    if json { output.json(topic) } else { output.members(topic) }
}

fn print_all(output: &mut CliOutput, json: bool, topics: &[Value]) -> CliResult<()> {
    if json {
        return topics.iter().try_for_each(|topic| output.json(topic));
    }
    let kept = |topic: &Value| match member(topic, "retention") {
        text if text.is_empty() => "for ever".to_owned(),
        text => text,
    };
    let stored = |topic: &Value| match topic.get("streaming") {
        Some(Value::Object(options)) => {
            let options =
                ["type", "location"].map(|name| options.get(name).and_then(Value::as_str).unwrap_or_default());
            options.join(" ").trim().to_owned()
        }
        _ => "default log".to_owned(),
    };
    let rows = topics.iter().map(|topic| {
        vec![member(topic, "id"), kept(topic), stored(topic), member(topic, "createdAt"), member(topic, "description")]
    });
    output.table(&["TOPIC", "KEPT", "STORED", "CREATED", "DESCRIPTION"], rows.collect())
}

fn print_segments(output: &mut CliOutput, json: bool, segments: &[Value]) -> CliResult<()> {
    if json {
        return segments.iter().try_for_each(|segment| output.json(segment));
    }
    let names = ["startSequence", "endSequence", "amount", "startTime", "endTime", "location"];
    let rows = segments.iter().map(|segment| names.iter().map(|name| member(segment, name)).collect());
    output.table(&["FIRST", "LAST", "EVENTS", "FROM", "TO", "LOCATION"], rows.collect())
}
