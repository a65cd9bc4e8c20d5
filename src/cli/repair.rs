//! `event-broker repair`: repairs a damaged data folder so that a broker can open it.
//!
//! - The files are repaired first, then the ledger records what was lost, then `state/` is moved away if it is unusable.
//! - The losses are written to `cut/` before the files are changed: an interrupted repair is run again, and no loss is
//!   forgotten.

use super::data_folders;
use super::error::{self, CliError, CliResult};
use super::output::{CliOutput, print_note};
use contract::{Position, Sequence};
use event_broker::{RepairLosses, STATE_FOLDER, SalvageReport, acknowledged_state, pending_repair, salvage};
use log::LogError;
use log::file::{self, CUT_FOLDER, RepairFinding, RepairReport, private_file, private_folder};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Repairs the logs of a damaged data folder, keeping everything that can still be read.
///
/// If there is a backup, restore it instead (`event-broker restore`): a repair cannot bring back what the disk has lost. Run
/// it with --dry-run first, which changes nothing: it prints every damaged place, what would be done about it, and what is
/// lost. No broker may have the folder open.
///
/// Damaged records are removed. Their positions and sequences are never assigned to other events; readers skip them, as they
/// skip trimmed events. Replaced files are kept in DIR/cut/, with `state/` if it could not be used: inspect them, then delete
/// them. Lost events are printed with topic number, sequence and, if known, id. Lost facts (registrations, claims, offsets, …)
/// are printed with their positions; their effect is still known if the checkpoint in `state/` is newer.
///
/// Exit code 0: repaired, or there was nothing to do. 1: it cannot be repaired. 2: there is no log.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    event-broker verify --data ./data                 find the damage\n  \
    event-broker repair --data ./data --dry-run       print what would be done, and what is lost\n  \
    event-broker repair --data ./data                 repair\n  \
    event-broker repair --data ./data/logs/var/lib/x  one topic's own log alone")]
pub(super) struct RepairArgs {
    /// The data folder, or the folder of one topic's own log.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON line per log.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &RepairArgs) -> ExitCode {
    error::exit_code(repair(arguments))
}

fn repair(arguments: &RepairArgs) -> CliResult {
    let data = &arguments.data;
    let folders = data_folders::log_folders(data).map_err(|cause| CliError::caused_by(data.display(), cause))?;
    if folders.is_empty() {
        let reason = format!("there is no log in {}; name the data folder with --data", data.display());
        return Err(CliError::Misused(reason));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| CliError::caused_by("cannot start", cause))?;
    for folder in folders {
        let done = match arguments.dry_run {
            true => {
                let is_pending = pending_repair(&folder).exists();
                LogRepair { repair: survey(&folder, true)?, is_pending, ..LogRepair::default() }
            }
            false => runtime.block_on(repair_log(&folder))?,
        };
        match arguments.json {
            true => print_json(&folder, &done, arguments)?,
            false => print(&folder, &done, arguments)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The repair of one log.
#[derive(Default)]
struct LogRepair {
    repair: RepairReport,
    saved: SalvageReport,
    /// Where `state/` is now, if it was moved away.
    state: Option<PathBuf>,
    /// An earlier repair was interrupted, and this one was a dry run.
    is_pending: bool,
}

fn survey(folder: &Path, dry_run: bool) -> CliResult<RepairReport> {
    let known = acknowledged_state(folder).map_err(|cause| CliError::caused_by(folder.display(), cause))?;
    file::repair(folder, &known, dry_run).map_err(|error| CliError::caused_by(folder.display(), error))
}

async fn repair_log(folder: &Path) -> CliResult<LogRepair> {
    let failed = |cause: io::Error| CliError::caused_by(folder.display(), cause);
    let foretold = survey(folder, true)?;
    let mut losses = RepairLosses::of(&foretold);
    let pending = pending_repair(folder);
    if let Ok(text) = fs::read(&pending) {
        losses.add(serde_json::from_slice(&text).map_err(|error| CliError::caused_by(pending.display(), error))?);
    }
    if !losses.is_empty() {
        save_losses(&pending, &losses).map_err(failed)?;
    }
    let repair = survey(folder, false)?;
    let (mut state, saved) = (None, salvage(folder, &losses).await);
    let saved = match saved {
        Ok(saved) => saved,
        // Another process has the log open: the checkpoint is not the cause.
        Err(error @ LogError::Locked(_)) => return Err(CliError::caused_by(folder.display(), error)),
        Err(error) => {
            print_note(&format_args!("{}: {error}; trying without {STATE_FOLDER}/", folder.display()));
            state = set_state_aside(folder).map_err(failed)?;
            match salvage(folder, &losses).await {
                Ok(saved) => saved,
                Err(error) => {
                    // The checkpoint was not the cause, and may still be needed.
                    state.iter().try_for_each(|aside| put_state_back(folder, aside)).map_err(failed)?;
                    return Err(CliError::caused_by(folder.display(), error));
                }
            }
        }
    };
    match fs::remove_file(&pending) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(cause)),
        _ => {}
    }
    Ok(LogRepair { repair, saved, state, is_pending: false })
}

fn save_losses(path: &Path, losses: &RepairLosses) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_folder().create(folder)?;
    if let Some(data) = folder.parent() {
        File::open(data)?.sync_all()?;
    }
    // Written under another name first: an incomplete file must not replace what an earlier repair has recorded.
    let draft = path.with_extension("json.part");
    let mut file = private_file().write(true).create(true).truncate(true).open(&draft)?;
    file.write_all(&serde_json::to_vec(losses)?)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(folder)?.sync_all()
}

/// Moves `state/` to `cut/`; returns its new path.
fn set_state_aside(folder: &Path) -> io::Result<Option<PathBuf>> {
    let cut = folder.join(CUT_FOLDER);
    private_folder().create(&cut)?;
    let free = (1u32..).map(|number| cut.join(format!("{STATE_FOLDER}.{number}"))).find(|path| !path.exists());
    let Some(free) = free else { return Ok(None) };
    match fs::rename(folder.join(STATE_FOLDER), &free) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
        Ok(()) => Ok(Some(free)),
    }
}

/// Moves `state/` back from `cut/`, in place of what was begun without it.
fn put_state_back(folder: &Path, aside: &Path) -> io::Result<()> {
    let state = folder.join(STATE_FOLDER);
    match fs::remove_dir_all(&state) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    fs::rename(aside, state)
}

/// The losses, one line each.
fn loss_lines(repair: &RepairReport) -> Vec<String> {
    let mut lines = Vec::new();
    for (topic, first, last) in repair.lost_sequences.iter().filter(|(topic, ..)| topic.0 > 0) {
        lines.push(format!("events of topic number {}: sequences {first} to {last}", topic.0));
    }
    for header in repair.lost.iter().filter(|header| header.facets.is_some()) {
        let id = uuid::Uuid::from_u128(header.id);
        lines.push(format!("event {id}: sequence {} of topic number {}", header.sequence, header.topic.0));
    }
    let facts: u64 = repair
        .lost_sequences
        .iter()
        .filter(|(topic, ..)| topic.0 == 0)
        .map(|(_, first, last)| last.get() - first.get() + 1)
        .sum();
    if facts > 0 {
        lines.push(format!("{facts} facts of the broker's own (registrations, claims, offsets, …)"));
    }
    let run = |(first, last): &(Position, Position)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    if !repair.lost_positions.is_empty() {
        let runs: Vec<_> = repair.lost_positions.iter().map(run).collect();
        lines.push(format!("positions {}", runs.join(", ")));
    }
    lines
}

/// What it means that the snapshot of reclaimed entries is lost.
fn lost_snapshot(through: Sequence) -> String {
    format!(
        "lost: the snapshot of the broker's own entries up to {through}. What {STATE_FOLDER}/ did not know of them is gone: \
         topics are registered again by the names their events have; register event types, handlers, subscriptions and \
         projections again, and look at the offsets of groups"
    )
}

fn print(folder: &Path, done: &LogRepair, arguments: &RepairArgs) -> CliResult<()> {
    let LogRepair { repair, saved, state, is_pending } = done;
    let mut output = CliOutput::new();
    let name = if folder == arguments.data { String::new() } else { format!("{}: ", folder.display()) };
    for RepairFinding { damage, remedy } in &repair.findings {
        output.line(&format!("damaged: {damage}: {remedy}"))?;
    }
    loss_lines(repair).iter().try_for_each(|line| output.line(&format!("lost: {line}")))?;
    let cut = folder.join(CUT_FOLDER);
    repair.kept.iter().try_for_each(|file| output.line(&format!("kept aside: {}", cut.join(file).display())))?;
    state.iter().try_for_each(|path| output.line(&format!("kept aside: {}", path.display())))?;
    saved.lost_facts_through.iter().try_for_each(|through| output.line(&lost_snapshot(*through)))?;
    let again = saved.restored.iter().map(|name| format!("recorded again, from the checkpoint: {name}"));
    let renamed = saved.renamed.iter().map(|name| format!("registered again, by the name in its events: {name}"));
    again.chain(renamed).try_for_each(|line| output.line(&line))?;
    let tail = repair.tail;
    let summary = match (repair.findings.len(), arguments.dry_run, state) {
        (0, _, None) if *is_pending => "an earlier repair was interrupted: run it again without --dry-run".to_owned(),
        (0, _, None) => "nothing to do".to_owned(),
        (0, _, Some(_)) => "the log is undamaged; its state was folded again from the log".to_owned(),
        (1, true, _) => format!("1 damaged place; a repair would leave a log that ends at position {tail}"),
        (count, true, _) => format!("{count} damaged places; a repair would leave a log that ends at position {tail}"),
        (1, false, _) => format!("1 damaged place repaired; the log ends at position {tail}"),
        (count, false, _) => format!("{count} damaged places repaired; the log ends at position {tail}"),
    };
    output.line(&format!("{name}{summary}"))
}

fn print_json(folder: &Path, done: &LogRepair, arguments: &RepairArgs) -> CliResult<()> {
    let LogRepair { repair, saved, state, is_pending } = done;
    let finding = |RepairFinding { damage, remedy }: &RepairFinding| json!({"file": damage.file, "offset": damage.offset, "reason": damage.reason, "remedy": remedy});
    let events = repair.lost.iter().filter(|header| header.facets.is_some()).map(|header| {
        let id = uuid::Uuid::from_u128(header.id).to_string();
        json!({"id": id, "topicNumber": header.topic.0, "sequence": header.sequence, "position": header.position})
    });
    let sequences = repair.lost_sequences.iter();
    let sequences = sequences.map(|(topic, first, last)| json!({"topicNumber": topic.0, "first": first, "last": last}));
    let positions = repair.lost_positions.iter().map(|(first, last)| json!({"first": first, "last": last}));
    CliOutput::new().json(&json!({
        "folder": folder, "dryRun": arguments.dry_run, "tail": repair.tail,
        "findings": repair.findings.iter().map(finding).collect::<Vec<_>>(),
        "lost": {
            "events": events.collect::<Vec<_>>(), "sequences": sequences.collect::<Vec<_>>(),
            "positions": positions.collect::<Vec<_>>(),
        },
        "kept": repair.kept, "state": state, "saidAgain": saved.restored, "renamed": saved.renamed,
        "lostFactsThrough": saved.lost_facts_through,
        "pending": is_pending,
    }))
}
