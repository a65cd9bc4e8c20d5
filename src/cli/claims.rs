//! `event-broker claims`: open claims, and handlers.

use super::client::{self, ClientArgs, RequestRetry};
use super::error::CliResult;
use super::output::{CliOutput, member};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists and releases the open claims of a handler, and shows and deletes handlers.
///
/// A claim is a handler's exclusive hold on one event. It is open until the work is done: a worker holds it, or it failed and
/// waits for its next attempt, or it was given up and is a dead letter.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker claims handlers\n  \
    event-broker claims handler billing\n  \
    event-broker claims list billing\n  \
    event-broker claims delete old-billing")]
pub(super) struct ClaimsArgs {
    #[command(flatten)]
    client: ClientArgs<ClaimsCommand>,
}

#[derive(clap::Subcommand)]
enum ClaimsCommand {
    /// Lists a handler's claims that are not finished.
    List {
        /// The handler's name.
        handler: String,
    },
    /// Shows one claim that is not finished.
    Show {
        /// Its id.
        id: String,
    },
    /// Releases a claim: the event may be claimed again at once, and no attempt is counted.
    Release {
        /// The claim's id.
        id: String,
        /// Its fencing token, as `claims show` prints it.
        token: u64,
    },
    /// Deletes a handler: its policy, its open claims and the record of what it has done. Its open dead letters are closed.
    /// Events that it has done may be claimed again.
    Delete {
        /// The handler's name.
        handler: String,
    },
    /// Lists handlers with their open claims and their lag.
    Handlers,
    /// Shows one handler.
    Handler {
        /// Its name.
        name: String,
    },
}

pub(super) fn run(arguments: &ClaimsArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<ClaimsCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    let json = *json;
    match verb {
        ClaimsCommand::List { handler } => {
            let query = [("handler".to_owned(), handler.clone())];
            let claims = client.list(&["claims"], &query, "items").await?;
            let names = ["id", "topic", "sequence", "status", "attempt", "owner", "leaseExpiresAt", "retryAt"];
            let headings = ["CLAIM", "TOPIC", "SEQUENCE", "STATUS", "ATTEMPT", "OWNER", "HELD UNTIL", "AGAIN AT"];
            print_rows(&mut output, json, &claims, &headings, &names)?;
        }
        ClaimsCommand::Handlers => {
            let handlers = client.list(&["handlers"], &[], "items").await?;
            let names = ["name", "order", "inFlight", "failed", "deadLetters", "lag", "stale", "oldestFailure"];
            let headings =
                ["HANDLER", "ORDER", "IN FLIGHT", "FAILED", "DEAD LETTERS", "LAG", "STALE", "OLDEST FAILURE"];
            print_rows(&mut output, json, &handlers, &headings, &names)?;
        }
        ClaimsCommand::Release { id, token } => {
            let path = ["claims", &format!("{id}:release")];
            let claim = client.send_json(Method::POST, &path, &json!({"token": token}), RequestRetry::Never).await?;
            print(&mut output, json, &claim)?;
        }
        ClaimsCommand::Delete { handler } => {
            client.send(client.request(Method::DELETE, &["handlers", handler], &[]), RequestRetry::Never).await?;
            output.line(&if json { json!({"deleted": handler}).to_string() } else { format!("deleted {handler}") })?;
        }
        ClaimsCommand::Show { id } => print(&mut output, json, &client.get(&["claims", id], &[]).await?)?,
        ClaimsCommand::Handler { name } => print(&mut output, json, &client.get(&["handlers", name], &[]).await?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(output: &mut CliOutput, json: bool, thing: &Value) -> CliResult<()> {
    if json { output.json(thing) } else { output.members(thing) }
}

fn print_rows(
    output: &mut CliOutput,
    json: bool,
    things: &[Value],
    headings: &[&str],
    names: &[&str],
) -> CliResult<()> {
    if json {
        return things.iter().try_for_each(|thing| output.json(thing));
    }
    let rows = things.iter().map(|thing| names.iter().map(|name| member(thing, name)).collect());
    output.table(headings, rows.collect())
}
