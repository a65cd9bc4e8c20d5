//! `event-broker dead-letters`: work that was given up, and how it is resolved.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::{CliError, CliResult};
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Lists, shows, redrives and discards dead letters.
///
/// An event whose work failed too often, or cannot succeed, is a dead letter: no worker receives it until an operator resolves
/// it. A redriven event may be claimed again under its own id; a discarded event counts as done.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker dead-letters summary\n  \
    event-broker dead-letters list --name billing\n  \
    event-broker dead-letters redrive 5f0c9a4e-6b1d-8c2e-9a3f-0d1e2f3a4b5c\n  \
    event-broker dead-letters redrive ID --data '{\"total\":9}'        publish a corrected event instead\n  \
    event-broker dead-letters redrive --all --name billing --dry-run  count first\n  \
    event-broker dead-letters discard ID --reason 'the tenant is gone'")]
pub(super) struct DeadLettersArgs {
    #[command(flatten)]
    client: ClientArgs<DeadLettersCommand>,
}

#[derive(clap::Subcommand)]
enum DeadLettersCommand {
    /// Lists dead letters, the oldest first.
    List {
        #[command(flatten)]
        which: LetterFilterArgs,
        /// Also list the resolved ones.
        #[arg(long)]
        resolved: bool,
    },
    /// Counts the open dead letters by handler or subscription, and topic.
    Summary,
    /// Shows one dead letter with its event and all attempts.
    Show {
        /// Its id.
        id: String,
    },
    /// Redrives one dead letter, or with --all every one that the filters select.
    Redrive {
        #[command(flatten)]
        target: LetterTargetArgs,
        /// Publish a corrected event with this payload instead of the old event.
        #[arg(long, value_name = "JSON", conflicts_with = "all")]
        data: Option<String>,
        /// Publish a new event even if the payload is the same.
        #[arg(long, conflicts_with = "all")]
        new_event_id: bool,
        /// Why.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Discards one dead letter, or with --all every one that the filters select.
    Discard {
        #[command(flatten)]
        target: LetterTargetArgs,
        /// Why.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// Which dead letters are selected.
#[derive(clap::Args)]
struct LetterFilterArgs {
    /// Only those of handlers, or only those of subscriptions: handler or subscription.
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only those of this handler or subscription.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only those of this topic's events.
    #[arg(long, value_name = "ID")]
    topic: Option<String>,
}

#[derive(clap::Args)]
struct LetterTargetArgs {
    /// The dead letter's id.
    #[arg(required_unless_present = "all", conflicts_with_all = ["all", "source", "name", "topic"])]
    id: Option<String>,
    /// All open ones that match --source, --name and --topic.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: LetterFilterArgs,
    /// Change nothing; print what would be done.
    #[arg(long)]
    dry_run: bool,
}

impl LetterFilterArgs {
    fn members(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let members = [("source", &self.source), ("name", &self.name), ("topic", &self.topic)];
        members.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }
}

pub(super) fn run(arguments: &DeadLettersArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<DeadLettersCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    match verb {
        DeadLettersCommand::List { which, resolved } => {
            let mut query: Vec<_> = which.members().map(|(name, value)| (name.to_owned(), value.clone())).collect();
            query.extend(resolved.then(|| ("status".to_owned(), "all".to_owned())));
            let dead_letters = client.list(&["dead-letters"], &query, "items").await?;
            print_letters(&mut output, json, &dead_letters)?;
        }
        DeadLettersCommand::Summary => {
            let summary: Value = client.get(&["dead-letters", "summary"], &[]).await?;
            print_summary(&mut output, json, &summary)?;
        }
        DeadLettersCommand::Show { id } => print(&mut output, json, &client.get(&["dead-letters", id], &[]).await?)?,
        DeadLettersCommand::Redrive { target, data, new_event_id, reason } => {
            let mut body = order_body(target, reason.as_deref());
            if data.is_some() || *new_event_id {
                body.insert("override".to_owned(), changes(data.as_deref(), *new_event_id)?);
            }
            resolve(&client, &mut output, json, target, "redrive", body).await?;
        }
        DeadLettersCommand::Discard { target, reason } => {
            let mut body = order_body(target, Some(reason));
            if target.dry_run && !target.all {
                let dead_letter: Value =
                    client.get(&["dead-letters", target.id.as_deref().unwrap_or_default()], &[]).await?;
                print(&mut output, json, &dead_letter)?;
                return Ok(ExitCode::SUCCESS);
            }
            if !target.all {
                body.remove("dryRun");
            }
            resolve(&client, &mut output, json, target, "discard", body).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The body of a request for one dead letter or for many.
fn order_body(target: &LetterTargetArgs, reason: Option<&str>) -> Map<String, Value> {
    let which = target.which.members().map(|(name, value)| (name.to_owned(), json!(value)));
    let mut order: Map<_, _> = which.collect();
    order.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
    order.extend(target.dry_run.then(|| ("dryRun".to_owned(), json!(true))));
    order
}

fn changes(data: Option<&str>, new_event_id: bool) -> CliResult<Value> {
    let mut changes = Map::new();
    if let Some(data) = data {
        let data =
            serde_json::from_str(data).map_err(|error| CliError::Misused(format!("--data is not JSON: {error}")))?;
        changes.insert("data".to_owned(), data);
    }
    changes.extend(new_event_id.then(|| ("newEventId".to_owned(), json!(true))));
    Ok(Value::Object(changes))
}

async fn resolve(
    client: &BrokerClient,
    output: &mut CliOutput,
    json: bool,
    target: &LetterTargetArgs,
    command: &str,
    body: Map<String, Value>,
) -> CliResult<()> {
    let body = Value::Object(body);
    let Some(id) = &target.id else {
        let path = [format!("dead-letters:{command}")];
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let resolved = client.send_json(Method::POST, &path, &body, RequestRetry::Freely).await?;
        return if json { output.json(&resolved) } else { output.line(&member(&resolved, "count")) };
    };
    // A repetition would be refused because of the effect of the first request.
    let dead_letter = client
        .send_json(Method::POST, &["dead-letters", &format!("{id}:{command}")], &body, RequestRetry::Never)
        .await?;
    print(output, json, &dead_letter)
}

fn print(output: &mut CliOutput, json: bool, thing: &Value) -> CliResult<()> {
    if json { output.json(thing) } else { output.members(thing) }
}

fn print_letters(output: &mut CliOutput, json: bool, dead_letters: &[Value]) -> CliResult<()> {
    if json {
        return dead_letters.iter().try_for_each(|dead_letter| output.json(dead_letter));
    }
    let names = ["id", "name", "original_topic", "sequence", "exc_class", "exc_msg", "status", "createdAt"];
    let rows = dead_letters.iter().map(|dead_letter| names.iter().map(|name| member(dead_letter, name)).collect());
    let headings = ["DEAD LETTER", "NAME", "TOPIC", "SEQUENCE", "CLASS", "MESSAGE", "STATUS", "GIVEN UP"];
    output.table(&headings, rows.collect())
}

fn print_summary(output: &mut CliOutput, json: bool, summary: &Value) -> CliResult<()> {
    if json {
        return output.json(summary);
    }
    let names = ["source", "name", "original_topic", "count", "oldest", "newest"];
    let items = summary.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let rows = items.iter().map(|item| names.iter().map(|name| member(item, name)).collect());
    output.table(&["SOURCE", "NAME", "TOPIC", "COUNT", "OLDEST", "NEWEST"], rows.collect())
}
