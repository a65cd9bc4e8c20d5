//! `event-broker config`: the configuration in force, and the source of each value.

use super::error::{self, CliError, CliResult};
use super::output::print_note;
use super::serve;
use super::settings::SettingsArgs;
use comfy_table::{Table, presets};
use contract::Error;
use event_broker::check_declared;
use event_broker::config::{FileBudget, LoadedConfig, ValueSources, keys};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints the configuration in force, and where each value came from.
///
/// Values come from four layers: built-in defaults, the file named with --config, environment variables and flags. A later
/// layer overrides the earlier ones. A key of the file such as `polling.max_timeout_secs` is the variable
/// `EVENT_BROKER__POLLING__MAX_TIMEOUT_SECS`; its value is written as in YAML.
///
/// Declared topics and event types are checked as `serve` would check them on an empty log: invalid schemas and unknown
/// topics are reported, and so are files of TLS that cannot be used. Nothing is written.
///
/// Exit code 0: the configuration is valid. 1: something that it declares is refused. 2: a key or a value is wrong. Each
/// reason is printed with its place.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker config --config config/quickstart.yaml\n  \
    EVENT_BROKER__BATCH__MAX_SIZE=50 event-broker config --json\n  \
    event-broker config --keys")]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Print JSON: `config` with the values in force, `sources` by key, and `notes`.
    #[arg(long)]
    json: bool,
    /// Print only a Markdown table of all keys, with their values and meanings.
    #[arg(long, conflicts_with = "json")]
    keys: bool,
}

pub(super) fn run(arguments: &ConfigArgs) -> ExitCode {
    if arguments.keys {
        return print_text(&keys::table());
    }
    let loaded = match arguments.settings.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            error.problems.iter().for_each(|problem| print_note(problem));
            return ExitCode::from(2);
        }
    };
    if let Err(failure) = check(&loaded) {
        return error::exit_code(Err(failure));
    }
    let mut loaded = loaded;
    loaded.notes.extend(connections_note(loaded.config.server.max_connections));
    match arguments.json {
        true => print_text(&as_json(&loaded)),
        false => print_text(&as_table(&loaded)),
    }
}

/// Refuses what `serve` would refuse of the declared topics and event types.
fn check(loaded: &LoadedConfig) -> CliResult<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::caused_by("cannot check what is declared", cause))?;
    let refused = runtime.block_on(check_declared(&loaded.config));
    let refused = refused.map_err(|error| CliError::Failed(error.to_string()))?;
    let mut lines: Vec<_> = refused.iter().map(|(path, error)| refusal(&loaded.sources, path, error)).collect();
    lines.extend(serve::load_tls(&loaded.config, &loaded.sources).err());
    match lines.is_empty() {
        true => Ok(()),
        false => Err(CliError::Failed(lines.join("\n"))),
    }
}

/// Why something that is declared is refused, after its place in the configuration: the line of the member where known.
pub(super) fn refusal(sources: &ValueSources, path: &str, error: &Error) -> String {
    let pointer = error.violations().first().map_or("", |violation| violation.pointer.as_str());
    let place = sources.of(&format!("{path}{}", pointer.replace('/', ".")));
    format!("{place}: {path}: {error}")
}

/// How many connections `serve` would accept here, if that differs from what is configured.
fn connections_note(configured: usize) -> Option<String> {
    let budget = FileBudget::of_process_at_most();
    match budget.connections_of(configured) {
        Ok(connections) if connections == configured => None,
        Ok(connections) => Some(format!(
            "`server.max_connections` is {configured}, but the limit of open files here, {}, leaves {connections}.",
            budget.limit
        )),
        Err(refusal) => Some(refusal),
    }
}

/// A closed standard output (`| head`) is no failure.
fn print_text(text: &str) -> ExitCode {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn as_json(loaded: &LoadedConfig) -> String {
    let sources: BTreeMap<_, _> = loaded.sources.iter().collect();
    let answer = json!({"config": loaded.config, "sources": sources, "notes": loaded.notes});
    format!("{answer:#}\n")
}

fn as_table(loaded: &LoadedConfig) -> String {
    let values = serde_json::to_value(&loaded.config).unwrap_or_default();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["KEY", "VALUE", "SOURCE"]);
    for (key, source) in loaded.sources.iter() {
        let value = values.pointer(&format!("/{}", key.replace('.', "/"))).unwrap_or(&Value::Null);
        table.add_row([key.to_owned(), cell_text(value), source.to_string()]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    for note in &loaded.notes {
        let _ = writeln!(text, "\nnote: {note}");
    }
    text
}

/// A value in a cell. Declared topics and types are only counted; `--json` prints them completely.
fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().any(Value::is_object) => format!("{} declared", items.len()),
        other => other.to_string(),
    }
}
