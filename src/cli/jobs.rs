//! `event-broker jobs`: deliveries to URLs, and what to do about those that failed.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, cell_text, escape_controls, member};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

/// The interval between two lists of jobs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The final statuses of a job.
const FINAL_STATUSES: [&str; 4] = ["COMPLETED", "ERROR", "CANCELLED", "EXPIRED"];

/// Lists, shows and watches dispatch jobs, and retries, cancels or completes them.
///
/// A job is the delivery of one event to one subscription, or of one task to a URL.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
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
    /// Lists jobs in the order of subscription and sequence.
    List {
        /// Only jobs in this status: PENDING, QUEUED, IN_PROGRESS, COMPLETED, ERROR, CANCELLED or EXPIRED.
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only jobs of this subscription.
        #[arg(long, value_name = "CODE")]
        subscription: Option<String>,
        /// Only jobs of this event.
        #[arg(long, value_name = "UUID")]
        event: Option<String>,
        /// Only jobs of this message group, as `jobs list` prints it.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Prints a line whenever the status of a job changes or an attempt is made.
    Watch {
        /// Only jobs of this subscription.
        #[arg(long, value_name = "CODE", required_unless_present = "event")]
        subscription: Option<String>,
        /// Only jobs of this event.
        #[arg(long, value_name = "UUID")]
        event: Option<String>,
        /// Only jobs of this message group, as `jobs list` prints it.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Exit when every job is in a final status.
        #[arg(long)]
        until_over: bool,
    },
    /// Shows one job with its attempts.
    Show {
        /// Its id.
        id: String,
    },
    /// Sends a job again now.
    Retry {
        /// Its id.
        id: String,
    },
    /// Cancels a job: it is not delivered.
    Cancel {
        /// Its id.
        id: String,
    },
    /// Marks a failed job as completed: it need not be delivered any more.
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
            let parameters = [("status", status), ("subscription", subscription), ("event", event), ("group", group)];
            print_list(&mut output, json, &client.list(&["dispatch-jobs"], &query(&parameters), "items").await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Watch { subscription, event, group, until_over } => {
            let parameters = [("subscription", subscription), ("event", event), ("group", group)];
            watch(&client, &mut output, json, &query(&parameters), *until_over).await?;
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
    // A repetition would be refused because of the effect of the first request.
    let job = client.send_json(Method::POST, &["dispatch-jobs", &path], &json!({}), RequestRetry::Never).await?;
    print(&mut output, json, &job)?;
    Ok(ExitCode::SUCCESS)
}

/// The query parameters that have a value.
fn query(parameters: &[(&str, &Option<String>)]) -> Vec<(String, String)> {
    parameters.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value).clone()?))).collect()
}

/// Lists the jobs at intervals, and prints those that have changed.
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
            let state = (member(job, "status"), attempts);
            if seen.insert(member(job, "id"), state.clone()) != Some(state) {
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
