//! `event-broker subscriptions`: which events are delivered to which URLs.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::{CliError, CliResult};
use super::output::{CliOutput, cell_text, escape_controls, member, print_note, progress_bar};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// The interval between two requests for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Lists, shows, creates, pauses, resumes, tests, replays and deletes subscriptions.
///
/// A subscription delivers the events of a topic to a webhook URL.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached; `test`: the receiver did not accept the
/// event.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker subscriptions list\n  \
    event-broker subscriptions create mailer gts.hx.core.events.topic.v1~ https://example.com/hooks --mode BLOCK_ON_ERROR\n  \
    event-broker subscriptions groups mailer\n  \
    event-broker subscriptions replay mailer --from 1 --to 100 --dry-run      count first\n  \
    event-broker subscriptions replay mailer --from 1 --to 100 --wait")]
pub(super) struct SubscriptionsArgs {
    #[command(flatten)]
    client: ClientArgs<SubscriptionsCommand>,
}

#[derive(clap::Subcommand)]
enum SubscriptionsCommand {
    /// Lists subscriptions in the order of their codes.
    List,
    /// Shows one subscription.
    Show {
        /// Its id or code.
        id: String,
    },
    /// Creates a subscription; prints the secret that signs its deliveries, which is never shown again.
    Create {
        /// Its unique name, such as `mailer`.
        code: String,
        /// The topic whose events are delivered.
        topic: String,
        /// The URL to which they are posted.
        target: String,
        /// Only events of this type, or of types that match this pattern; may be repeated.
        #[arg(long = "type", value_name = "ID")]
        types: Vec<String>,
        /// Only events for which this CEL expression is true.
        #[arg(long, value_name = "CEL")]
        filter: Option<String>,
        /// The order of deliveries: IMMEDIATE, NEXT_ON_ERROR or BLOCK_ON_ERROR.
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
        /// The pool whose concurrency and rate it shares.
        #[arg(long, value_name = "CODE")]
        pool: Option<String>,
        /// Where it starts: latest (the default), earliest, or an offset.
        #[arg(long, value_name = "WHERE")]
        start_from: Option<String>,
    },
    /// Pauses a subscription: its jobs wait.
    Pause {
        /// Its id or code.
        id: String,
        /// Why.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Resumes a paused subscription.
    Resume {
        /// Its id or code.
        id: String,
    },
    /// Closes the circuit breaker of a target that failed too often in a row: it is called again at once.
    CloseBreaker {
        /// Its id or code.
        id: String,
    },
    /// Deletes a subscription with its jobs; its open dead letters are discarded.
    Delete {
        /// Its id or code.
        id: String,
    },
    /// Shows blocked message groups: the job that blocks each, and how many jobs wait.
    Groups {
        /// Its id or code.
        id: String,
    },
    /// Sends a test event, and prints the attempt; exit code 1 unless the receiver responded with 2xx.
    Test {
        /// Its id or code.
        id: String,
    },
    /// Delivers a past range of the topic again.
    Replay {
        /// Its id or code.
        id: String,
        /// The first sequence, or a time.
        #[arg(long, value_name = "FROM")]
        from: String,
        /// The last sequence, or a time; the tail when absent.
        #[arg(long, value_name = "TO")]
        to: Option<String>,
        /// Only count the events.
        #[arg(long)]
        dry_run: bool,
        /// Wait until everything is delivered, and show the progress.
        #[arg(long, conflicts_with = "dry_run")]
        wait: bool,
    },
}

pub(super) fn run(arguments: &SubscriptionsArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<SubscriptionsCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    match verb {
        SubscriptionsCommand::List => {
            print_list(&mut output, json, &client.list(&["subscriptions"], &[], "items").await?)?;
        }
        SubscriptionsCommand::Show { id } => print(&mut output, json, &client.get(&["subscriptions", id], &[]).await?)?,
        SubscriptionsCommand::Groups { id } => {
            let groups = client.list(&["subscriptions", id, "groups"], &[], "items").await?;
            print_groups(&mut output, json, &groups)?;
        }
        SubscriptionsCommand::Create { .. } => {
            let body = definition(verb);
            // A repetition would be refused because of the effect of the first request.
            let created = client.send_json(Method::POST, &["subscriptions"], &body, RequestRetry::Never).await?;
            print(&mut output, json, &created)?;
        }
        SubscriptionsCommand::Delete { id } => {
            let request = client.request(Method::DELETE, &["subscriptions", id], &[]);
            client.send(request, RequestRetry::Never).await?;
        }
        SubscriptionsCommand::Pause { id, reason } => {
            let body = reason.as_ref().map_or_else(|| json!({}), |reason| json!({"reason": reason}));
            print(&mut output, json, &post(&client, id, "pause", &body, RequestRetry::Freely).await?)?;
        }
        SubscriptionsCommand::Resume { id } => {
            print(&mut output, json, &post(&client, id, "resume", &json!({}), RequestRetry::Freely).await?)?;
        }
        SubscriptionsCommand::CloseBreaker { id } => {
            print(&mut output, json, &post(&client, id, "close-breaker", &json!({}), RequestRetry::Freely).await?)?;
        }
        SubscriptionsCommand::Test { id } => {
            // The receiver may take longer than other requests do.
            let client = server.client_without_timeout()?;
            let attempt = post(&client, id, "test", &json!({}), RequestRetry::Never).await?;
            print(&mut output, json, &attempt)?;
            return Ok(if is_delivered(&attempt) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        SubscriptionsCommand::Replay { id, from, to, dry_run, wait } => {
            let mut body = json!({"from": replay_bound(from), "dryRun": dry_run});
            if let (Some(to), Some(body)) = (to, body.as_object_mut()) {
                body.insert("to".to_owned(), replay_bound(to));
            }
            let replayed = post(&client, id, "replay", &body, RequestRetry::Never).await?;
            if let (true, Some(replay)) = (*wait, replayed.get("replay").and_then(Value::as_str)) {
                follow(&client, id, replay).await?;
            }
            let more = if member(&replayed, "countIsLowerBound") == "true" { " or more" } else { "" };
            let count = format!("{}{more}", member(&replayed, "count"));
            if json {
                output.json(&replayed)?;
            } else {
                output.line(&count)?;
            }
            if let (false, Some(damaged)) = (json, replayed.get("damaged")) {
                print_note(&format_args!("damaged on disk, not delivered: {}", cell_text(damaged)));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a test event was accepted: a response of 2xx, of which at most the end was cut off.
fn is_delivered(attempt: &Value) -> bool {
    let status = attempt.get("status").and_then(Value::as_u64).unwrap_or_default();
    let error = attempt.pointer("/error/class").and_then(Value::as_str);
    (200..300).contains(&status) && error.is_none_or(|class| class == "too_large")
}

async fn post(
    client: &BrokerClient,
    id: &str,
    command: &str,
    body: &Value,
    repeat: RequestRetry,
) -> Result<Value, CliError> {
    client.send_json(Method::POST, &["subscriptions", &format!("{id}:{command}")], body, repeat).await
}

/// Shows the progress of a replay until every job of it was delivered or given up.
async fn follow(client: &BrokerClient, id: &str, replay: &str) -> CliResult<()> {
    let bar = progress_bar(Some(0), "{bar:40} {pos}/{len} events, {eta} left");
    loop {
        let running: Value = client.get(&["subscriptions", id, "replays"], &[]).await?;
        let items = running.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let number = |item: &Value, name: &str| item.get(name).and_then(Value::as_u64).unwrap_or_default();
        let Some(here) = items.iter().find(|item| member(item, "id") == replay) else { break };
        let (open, dead) = (number(here, "openJobs"), number(here, "deadJobs"));
        if number(here, "settledThrough") >= number(here, "to") && open == dead {
            bar.finish_and_clear();
            print_note(&format!("{dead} jobs of the replay were given up; resolve their dead letters"));
            return Ok(());
        }
        let before = number(here, "from").saturating_sub(1);
        bar.set_length(number(here, "to").saturating_sub(before));
        bar.set_position(number(here, "settledThrough").saturating_sub(before));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bar.finish_and_clear();
    Ok(())
}

/// A sequence, or else a time.
fn replay_bound(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| json!(text), |sequence| json!(sequence))
}

fn definition(command: &SubscriptionsCommand) -> Value {
    let SubscriptionsCommand::Create { code, topic, target, types, filter, mode, pool, start_from } = command else {
        return Value::Null;
    };
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("code", json!(code));
    put("topic", json!(topic));
    put("target", json!(target));
    if !types.is_empty() {
        put("eventTypes", types.iter().map(|it| json!({"type": it})).collect());
    }
    for (name, text) in [("filter", filter), ("mode", mode), ("pool", pool)] {
        if let Some(text) = text {
            put(name, json!(text));
        }
    }
    if let Some(text) = start_from {
        put("startFrom", text.parse::<u64>().map_or_else(|_| json!(text), |offset| json!({"offset": offset})));
    }
    Value::Object(body)
}

fn print(output: &mut CliOutput, json: bool, thing: &Value) -> CliResult<()> {
    if json { output.json(thing) } else { output.members(thing) }
}

fn print_list(output: &mut CliOutput, json: bool, items: &[Value]) -> CliResult<()> {
    if json {
        return items.iter().try_for_each(|item| output.json(item));
    }
    let names = ["code", "status", "mode", "topic", "target", "settledThrough", "openJobs"];
    let rows = items.iter().map(|item| {
        let mut row: Vec<_> = names.iter().map(|name| member(item, name)).collect();
        row.push(item.pointer("/breaker/state").map(cell_text).unwrap_or_default());
        row
    });
    output.table(&["SUBSCRIPTION", "STATUS", "MODE", "TOPIC", "TARGET", "SETTLED", "OPEN", "BREAKER"], rows.collect())
}

fn print_groups(output: &mut CliOutput, json: bool, items: &[Value]) -> CliResult<()> {
    if json {
        return items.iter().try_for_each(|item| output.json(item));
    }
    let names = ["messageGroup", "blockedBy", "since"];
    let rows = items.iter().map(|item| {
        let mut row: Vec<_> = names.iter().map(|name| member(item, name)).collect();
        let more = if member(item, "waitingIsLowerBound") == "true" { "+" } else { "" };
        row.push(format!("{}{more}", member(item, "waiting")));
        row
    });
    output.table(&["GROUP", "BLOCKED BY", "SINCE", "WAITING"], rows.collect())?;
    for (item, verb) in items.iter().flat_map(|item| ["retry", "cancel", "complete"].map(|verb| (item, verb))) {
        if let Some(what) = item.pointer(&format!("/verbs/{verb}")).and_then(Value::as_str) {
            let job = member(item, "blockedBy");
            output.line(&format!("event-broker jobs {verb} {}: {what}", escape_controls(&job)))?;
        }
    }
    Ok(())
}
