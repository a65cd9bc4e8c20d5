//! `event-broker projections`: how far views have come, and the order to rebuild one.

use super::client::{self, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists, shows, resets and deletes projections.
///
/// A projection is a reader that keeps a view somewhere and tells the broker how far that has come: its checkpoint. A
/// reset begins a new generation; whoever keeps the view clears it and makes it again.
///
/// Exit code 0: done. 1: the broker refused, or could not be asked.
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
    /// Lists projections, with how far each is behind.
    List,
    /// Shows one projection.
    #[command(visible_alias = "show")]
    Get {
        /// Its name.
        name: String,
    },
    /// Begins a projection's next generation: its view is rebuilt.
    Reset {
        /// Its name.
        name: String,
        /// Behind which sequence (of the log: position) the view begins.
        #[arg(long, value_name = "OFFSET", default_value_t = 0)]
        to: u64,
    },
    /// Ends a projection. Its view is left to its owner.
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
            // A second one would begin yet another generation.
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
