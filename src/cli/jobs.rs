//! `event-broker jobs`: what is delivered, what failed, and what to make of it.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, cell_text, escape_controls, member};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

/// How often jobs are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How a job stands that nothing more happens to by itself.
const FINAL_STATUSES: [&str; 4] = ["COMPLETED", "ERROR", "CANCELLED", "EXPIRED"];

/// Lists, shows and watches dispatch jobs, and retries, cancels or completes them.
///
/// Exit code 0: done. 1: the broker refused, or could not be asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker jobs list --status ERROR\n  \
    event-broker jobs watch --subscription mailer\n  \
    event-broker jobs list --subscription mailer --event 550e8400-e29b-41d4-a716-446655440000\n  \
    event-broker jobs retry 0b2f4c1e5a774f0e9d4c2f6f3a1b7c90-12345")]
pub(super) struct JobsArgs {
    #[command(flatten)]
    client: ClientArgs<JobsCommand>,
}

#[derive(clap::Subcommand)]
enum JobsCommand {
    /// Lists jobs by subscription and sequence.
    List {
        /// PENDING, QUEUED, IN_PROGRESS, COMPLETED, ERROR, CANCELLED or EXPIRED.
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Of this subscription.
        #[arg(long, value_name = "CODE")]
        subscription: Option<String>,
        /// Of this event.
        #[arg(long, value_name = "UUID")]
        event: Option<String>,
        /// Of this message group, as jobs show it.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Prints a line whenever the status of a job changes, or another attempt was made.
    Watch {
        /// Of this subscription.
        #[arg(long, value_name = "CODE", required_unless_present = "event")]
        subscription: Option<String>,
        /// Of this event.
        #[arg(long, value_name = "UUID")]
        event: Option<String>,
        /// Of this message group, as jobs show it.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// End when every job is over.
        #[arg(long)]
        until_over: bool,
    },
    /// Shows one job with everything that was tried.
    Show {
        /// Its id.
        id: String,
    },
    /// Tries a job again now.
    Retry {
        /// Its id.
        id: String,
    },
    /// Calls a job off.
    Cancel {
        /// Its id.
        id: String,
    },
    /// Says that a job that failed need not be delivered any more.
    Complete {
        /// Its id.
        id: String,
    },
}

pub(super) fn run(arguments: &JobsArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<JobsCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    let (id, verb) = match verb {
        JobsCommand::List { status, subscription, event, group } => {
            let given = [("status", status), ("subscription", subscription), ("event", event), ("group", group)];
            print_list(&mut output, json, &client.list(&["dispatch-jobs"], &query(&given), "items").await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Watch { subscription, event, group, until_over } => {
            let given = [("subscription", subscription), ("event", event), ("group", group)];
            watch(&client, &mut output, json, &query(&given), *until_over).await?;
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Show { id } => {
            print(&mut output, json, &client.get(&["dispatch-jobs", id], &[]).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Retry { id } => (id, "retry"),
        JobsCommand::Cancel { id } => (id, "cancel"),
        JobsCommand::Complete { id } => (id, "complete"),
    };
    let path = format!("{id}:{verb}");
    // Twice, it would be refused for its own effect.
    let job = client.send_json(Method::POST, &["dispatch-jobs", &path], &json!({}), RequestRetry::Never).await?;
    print(&mut output, json, &job)?;
    Ok(ExitCode::SUCCESS)
}

/// What was given of a query.
fn query(given: &[(&str, &Option<String>)]) -> Vec<(String, String)> {
    given.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value).clone()?))).collect()
}

/// Looks again and again, and prints what is another than the last time.
async fn watch(
    client: &BrokerClient,
    output: &mut CliOutput,
    json: bool,
    query: &[(String, String)],
    until_over: bool,
) -> CliResult<()> {
    let mut seen: HashMap<String, (String, usize)> = HashMap::new();
    loop {
        let jobs = client.list(&["dispatch-jobs"], query, "items").await?;
        for job in &jobs {
            let attempts = job.get("attempts").and_then(Value::as_array).map_or(0, Vec::len);
            let stands = (member(job, "status"), attempts);
            if seen.insert(member(job, "id"), stands.clone()) != Some(stands) {
                print_change(output, json, job)?;
            }
        }
        let is_over = |job: &Value| FINAL_STATUSES.contains(&member(job, "status").as_str());
        if until_over && jobs.iter().all(is_over) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_change(output: &mut CliOutput, json: bool, job: &Value) -> CliResult<()> {
    if json {
        return output.json(job);
    }
    let attempts = job.get("attempts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let last = attempts.last().map(|last| match last.pointer("/error/class") {
        Some(class) => format!("  attempt {}: {}", member(last, "number"), cell_text(class)),
        None => format!("  attempt {}: {}", member(last, "number"), member(last, "status")),
    });
    let names = ["id", "messageGroup", "status"].map(|name| escape_controls(&member(job, name)));
    output.line(&format!("{}{}", names.join("  "), escape_controls(&last.unwrap_or_default())))
}

fn print(output: &mut CliOutput, json: bool, thing: &Value) -> CliResult<()> {
    if json { output.json(thing) } else { output.members(thing) }
}

fn print_list(output: &mut CliOutput, json: bool, items: &[Value]) -> CliResult<()> {
    if json {
        return items.iter().try_for_each(|item| output.json(item));
    }
    let names = ["id", "subscription", "sequence", "messageGroup", "status"];
    let rows = items.iter().map(|item| {
        let mut row: Vec<_> = names.iter().map(|name| member(item, name)).collect();
        let (attempts, error) = attempt_summary(item);
        row.extend([attempts, error, member(item, "scheduledFor"), member(item, "createdAt")]);
        row
    });
    let headings = ["JOB", "SUBSCRIPTION", "SEQUENCE", "GROUP", "STATUS", "ATTEMPTS", "LAST ERROR", "NEXT", "SINCE"];
    output.table(&headings, rows.collect())
}

/// How many attempts a job has had, and why the last one failed or was deferred.
fn attempt_summary(job: &Value) -> (String, String) {
    let attempts = job.get("attempts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let last = attempts.last();
    let error = last.and_then(|last| last.get("error")).map(|error| {
        let (class, message) = (member(error, "class"), member(error, "message"));
        if message.is_empty() { class } else { format!("{class}: {message}") }
    });
    let deferred = job.pointer("/deferred/reason").map(|reason| format!("deferred: {}", cell_text(reason)));
    let number = last.map_or_else(|| "0".to_owned(), |last| member(last, "number"));
    (number, deferred.or(error).unwrap_or_default())
}
