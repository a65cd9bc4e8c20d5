//! `event-broker types`: event types and the versions of their schemas.

use super::client::{self, BrokerClient, ClientArgs, RequestRetry};
use super::error::{CliError, CliResult};
use super::input::{self, InputSource};
use super::output::{CliOutput, escape_controls, member, print_note};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Lists, shows, registers, archives and deletes event types, and manages the versions of their schemas.
///
/// A version starts as FINALISING and may still be replaced; `finalise` makes it CURRENT, after which it never changes, and
/// makes the previous CURRENT version of the same major DEPRECATED. Events of DEPRECATED versions are still accepted.
///
/// Exit code 0: success. 1: the broker refused the request, or could not be reached.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker types list 'gts.hyperspot.core.events.type.v1~vendor.*'\n  \
    event-broker types register order_placed.json\n  \
    event-broker types add-version gts.hyperspot.core.events.type.v1~vendor.orders.placed.v1 1.1 schema.json\n  \
    event-broker types finalise gts.hyperspot.core.events.type.v1~vendor.orders.placed.v1 1.1\n  \
    event-broker types archive shop.order.opened && event-broker types delete shop.order.opened\n  \
    event-broker types list --json > types.ndjson && event-broker types register types.ndjson --url http://other:8087")]
pub(super) struct TypesArgs {
    #[command(flatten)]
    client: ClientArgs<TypesCommand>,
}

#[derive(clap::Subcommand)]
enum TypesCommand {
    /// Lists event types.
    List {
        /// Only those that match; a pattern may end in *.
        pattern: Option<String>,
        /// Only those whose events go to this topic; a pattern may end in *.
        #[arg(long, value_name = "ID")]
        topic: Option<String>,
    },
    /// Shows an event type with its schemas.
    Show {
        /// Its id.
        id: String,
    },
    /// Registers event types from JSON: one, an array, or one per line, as the API accepts them or `types list --json`
    /// printed them. The same again changes nothing; another definition under the same id is refused. A type that was
    /// archived when it was printed is archived here, too.
    Register {
        /// The file; standard input when absent, or -.
        file: Option<PathBuf>,
        /// Do not archive types that were archived: they accept events, such as the lines of an import.
        #[arg(long)]
        unarchived: bool,
    },
    /// Adds a version of the schema, or replaces a version that is not finalised.
    AddVersion {
        /// The type's id.
        id: String,
        /// MAJOR.MINOR.
        version: String,
        /// The file with the schema; standard input when absent, or -.
        file: Option<PathBuf>,
        /// The language of the schema: JSON_SCHEMA, PROTO or XSD.
        #[arg(long, value_name = "LANGUAGE", default_value = "JSON_SCHEMA")]
        schema_type: String,
        /// The media type of what the schema describes.
        #[arg(long, value_name = "MEDIA")]
        mime_type: Option<String>,
    },
    /// Makes a version CURRENT.
    Finalise {
        /// The type's id.
        id: String,
        /// MAJOR.MINOR.
        version: String,
    },
    /// Makes a version DEPRECATED.
    Deprecate {
        /// The type's id.
        id: String,
        /// MAJOR.MINOR.
        version: String,
    },
    /// Archives an event type: new events of it are refused.
    Archive {
        /// Its id.
        id: String,
    },
    /// Deletes an archived event type of which no event is stored. Its name may be registered again.
    Delete {
        /// Its id.
        id: String,
    },
}

pub(super) fn run(arguments: &TypesArgs) -> ExitCode {
    client::run(Box::pin(execute(&arguments.client)))
}

async fn execute(ClientArgs { server, json, command: verb }: &ClientArgs<TypesCommand>) -> CliResult {
    let client = server.client()?;
    let mut output = CliOutput::new();
    match verb {
        TypesCommand::List { pattern, topic } => {
            let query: Vec<_> = [("type", pattern), ("topic", topic)]
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
                .collect();
            let types = client.list(&["event-types"], &query, "items").await?;
            print_all(&mut output, *json, &types)?;
        }
        TypesCommand::Register { file, unarchived } => {
            register(&client, file.as_ref(), *unarchived, &mut output, *json).await?;
        }
        TypesCommand::Delete { id } => {
            client.send(client.request(Method::DELETE, &["event-types", id], &[]), RequestRetry::Never).await?;
            output.line(&if *json { json!({"deleted": id}).to_string() } else { format!("deleted {id}") })?;
        }
        verb => {
            let answer = execute_for_one(&client, verb).await?;
            print(&mut output, *json, &answer)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands about one type.
async fn execute_for_one(client: &BrokerClient, command: &TypesCommand) -> CliResult<Value> {
    let post =
        async |path: &[&str], body: &Value| client.send_json(Method::POST, path, body, RequestRetry::Freely).await;
    let on_version = |version: &str, command: &str| format!("{version}:{command}");
    match command {
        TypesCommand::Show { id } => client.get(&["event-types", id], &[]).await,
        TypesCommand::AddVersion { id, version, file, schema_type, mime_type } => {
            let schema = schema(input::open(file.as_deref())?, schema_type)?;
            let mut body = json!({"version": version, "schemaType": schema_type, "schema": schema});
            if let (Some(members), Some(mime_type)) = (body.as_object_mut(), mime_type) {
                members.insert("mimeType".to_owned(), json!(mime_type));
            }
            post(&["event-types", id, "versions"], &body).await
        }
        TypesCommand::Finalise { id, version } => {
            post(&["event-types", id, "versions", &on_version(version, "finalise")], &json!({})).await
        }
        TypesCommand::Deprecate { id, version } => {
            post(&["event-types", id, "versions", &on_version(version, "deprecate")], &json!({})).await
        }
        TypesCommand::Archive { id } => post(&["event-types", &on_version(id, "archive")], &json!({})).await,
        TypesCommand::List { .. } | TypesCommand::Register { .. } | TypesCommand::Delete { .. } => Ok(Value::Null),
    }
}

/// A JSON Schema is JSON; other schemas are text.
fn schema(mut source: InputSource, schema_type: &str) -> CliResult<Value> {
    if schema_type == "JSON_SCHEMA" {
        return input::one_value(source);
    }
    let mut text = String::new();
    source.reader.read_to_string(&mut text).map_err(|cause| CliError::caused_by(&source.name, cause))?;
    Ok(Value::String(text))
}

/// Registers all event types of a file, and reports which were refused.
async fn register(
    client: &BrokerClient,
    file: Option<&PathBuf>,
    unarchived: bool,
    output: &mut CliOutput,
    json: bool,
) -> CliResult<()> {
    let (mut registered, mut refused) = (0, 0);
    for value in input::values(input::open(file.map(PathBuf::as_path))?) {
        let value = value?;
        let definition = input::definition(value.get())?;
        match register_one(client, &definition, !unarchived && is_archived(value.get())).await {
            Ok(event_type) if json => output.json(&event_type)?,
            Ok(event_type) => {
                output.line(&format!("registered {}", escape_controls(&member(&event_type, "id"))))?;
            }
            Err(CliError::Refused(refusal)) if refusal.is_client_error() => {
                refused += 1;
                print_note(&format_args!("{} was refused: {refusal}", member(&definition, "id")));
                continue;
            }
            Err(failure) => return Err(failure),
        }
        registered += 1;
    }
    match (registered, refused) {
        (0, 0) => Err(CliError::Misused("there is no event type to register".to_owned())),
        (_, 0) => Ok(()),
        _ => Err(CliError::Failed(format!("{refused} of {} event types were refused", registered + refused))),
    }
}

async fn register_one(client: &BrokerClient, definition: &Value, archive: bool) -> CliResult<Value> {
    let registered = client.send_json(Method::POST, &["event-types"], definition, RequestRetry::Freely).await?;
    if !archive || registered.get("archived") == Some(&Value::Bool(true)) {
        return Ok(registered);
    }
    let id = format!("{}:archive", member(&registered, "id"));
    client.send_json(Method::POST, &["event-types", &id], &json!({}), RequestRetry::Freely).await
}

/// Whether a broker printed this event type as an archived one.
fn is_archived(printed: &str) -> bool {
    let value: Value = serde_json::from_str(printed).unwrap_or_default();
    value.get("createdAt").is_some() && value.get("archived") == Some(&Value::Bool(true))
}

/// Schemas are nested: without `--json` they are indented.
fn print(output: &mut CliOutput, json: bool, event_type: &Value) -> CliResult<()> {
    if json { output.json(event_type) } else { output.line(&format!("{event_type:#}")) }
}

fn print_all(output: &mut CliOutput, json: bool, types: &[Value]) -> CliResult<()> {
    if json {
        return types.iter().try_for_each(|event_type| output.json(event_type));
    }
    let rows = types.iter().map(|event_type| {
        vec![
            member(event_type, "id"),
            member(event_type, "topic"),
            versions(event_type),
            member(event_type, "createdAt"),
            member(event_type, "description"),
        ]
    });
    output.table(&["TYPE", "TOPIC", "VERSIONS", "CREATED", "DESCRIPTION"], rows.collect())
}

/// `1.0 DEPRECATED, 1.1 CURRENT`, or a word for a type without versions.
fn versions(event_type: &Value) -> String {
    if event_type.get("archived") == Some(&Value::Bool(true)) {
        return "archived".to_owned();
    }
    let versions = event_type.get("versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = versions.iter().map(|version| format!("{} {}", member(version, "version"), member(version, "status")));
    let words: Vec<_> = words.collect();
    match (words.is_empty(), event_type.get("dataSchema").is_some()) {
        (false, _) => words.join(", "),
        (true, true) => "one".to_owned(),
        (true, false) => "any object".to_owned(),
    }
}
