//! `event-broker projections`: the checkpoints of views, and resetting a view.

use super::client::{self, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists, shows, resets and deletes projections.
///
/// A projection is a reader that keeps a view (a table, an index) and records its checkpoint in the broker. A reset starts a
/// new generation; the program that keeps the view clears it and applies the events again.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker projections list\n  \
    event-broker projections get accounts\n  \
    event-broker projections reset accounts           rebuild it from the beginning\n  \
    event-broker projections reset accounts --to 1200")]
pub(super) struct ProjectionsArgs {
    #[command(flatten)]
    client: ClientArgs<ProjectionsCommand>,
}

#[derive(clap::Subcommand)]
enum ProjectionsCommand {
    /// Lists projections with their lag.
    List,
    /// Shows one projection.
    #[command(visible_alias = "show")]
    Get {
        /// Its name.
        name: String,
    },
    /// Starts a projection's next generation: its view is rebuilt.
    Reset {
        /// Its name.
        name: String,
        /// The sequence (for a projection of the log: the position) after which the view starts.
        #[arg(long, value_name = "OFFSET", default_value_t = 0)]
        to: u64,
    },
    /// Deletes a projection. Its view belongs to the program that keeps it, and stays.
    Delete {
        /// Its name.
        name: String,
    },
}

pub(super) fn run(arguments: &ProjectionsArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<ProjectionsCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    match verb {
        ProjectionsCommand::List => {
            let projections = client.list(&["projections"], &[], "items").await?;
            print_all(&mut output, json, &projections)?;
        }
        ProjectionsCommand::Get { name } => {
            let projection = client.get(&["projections", name], &[]).await?;
            print(&mut output, json, &projection)?;
        }
        ProjectionsCommand::Reset { name, to } => {
            let path = ["projections", &format!("{name}:reset")];
            // A repetition would start another generation.
            let body = json!({"offset": to});
            let projection = client.send_json(Method::POST, &path, &body, RequestRetry::Never).await?;
            print(&mut output, json, &projection)?;
        }
        ProjectionsCommand::Delete { name } => {
            client.send(client.request(Method::DELETE, &["projections", name], &[]), RequestRetry::Never).await?;
            output.line(&if json { json!({"deleted": name}).to_string() } else { format!("deleted {name}") })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(output: &mut CliOutput, json: bool, projection: &Value) -> CliResult<()> {
    if json { output.json(projection) } else { output.members(projection) }
}

fn print_all(output: &mut CliOutput, json: bool, projections: &[Value]) -> CliResult<()> {
    if json {
        return projections.iter().try_for_each(|projection| output.json(projection));
    }
    let row = |projection: &Value| {
        let reads = if projection.get("topic").is_some() { member(projection, "topic") } else { "the log".to_owned() };
        let lag = projection.get("lag").cloned().unwrap_or_default();
        vec![
            member(projection, "name"),
            reads,
            member(projection, "checkpoint"),
            member(&lag, "events"),
            format!("{} s", member(&lag, "seconds")),
            member(projection, "generation"),
        ]
    };
    let headings = ["PROJECTION", "READS", "CHECKPOINT", "LAG", "BEHIND", "GENERATION"];
    output.table(&headings, projections.iter().map(row).collect())
}
