//! `docs/limits.md` and the code agree: the page lists every limit with its value, and nothing else.
//!
//! The page must list every constant of `contract/src/limits.rs`; every constant beside the code whose name ends in
//! `_MAX` or `_KEPT`, or which bounds a body; and every number of the configuration, with its unit. A row may name
//! other constants too; their values are compared with the code as well.

use super::constants::{Constant, Constants};
use super::text::{TextFile, between, numbered, repository};
use super::{named, refuse};
use event_broker::Config;
use event_broker::config::keys::{KEYS, ValueType};
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = "docs/limits.md";
const HEAD: &str = "| what | default | unit | what happens at it | how to change it |";

/// Constants that are named like limits but do not affect users: those of a module, or one.
const NO_LIMITS: [(&str, &str); 34] = [
    ("cli::", "what the command line does as a client"),
    ("client::", "what the client crate does as a client"),
    ("dispatch::model::", "a model for tests"),
    ("rest::openapi::", "what documents say of limits that are listed"),
    ("rest::events::BATCH_BODY", "it is batch.max_payload_bytes"),
    ("rest::claims::DONE", "it is batch.max_payload_bytes, or EVENT_BYTES_MAX, and 64 KiB"),
    ("rest::request::NO_BODY", "there is no body to bound"),
    ("rest::whole_numbers::EXACT_MAX", "a property of doubles"),
    ("rest::read::POSITION_MAX", "a position after every record"),
    ("rest::stream::ID_MAX", "it is rest::query_params::NUMBER_MAX"),
    ("contract::json::POINTER_BYTES_MAX", "how refusals are worded"),
    ("types::schema::json::messages::POINTER_BYTES_MAX", "how refusals are worded"),
    ("types::schema::json::messages::LIST_BYTES_MAX", "how refusals are worded"),
    ("types::schema::proto::messages::POINTER_BYTES_MAX", "how refusals are worded"),
    ("types::schema::xsd::messages::PATH_BYTES_MAX", "how refusals are worded"),
    ("events::prepare::NAMES_COMPARED_MAX", "how refusals are worded"),
    ("ledger::decide::until_known::TRIES_MAX", "a race that is decided again"),
    ("ledger::state::catch_up::OPEN_TRIES_MAX", "a race that is decided again"),
    ("log::file::backup::PASSES_MAX", "a race that is decided again"),
    ("log::file::backup::READS_MAX", "a race that is decided again"),
    ("log_postgres::remove::EMPTY_STEPS_MAX", "a race that is decided again"),
    ("log::file::find::RETRIES_MAX", "a race that is decided again"),
    ("log::file::list_segments::RETRIES_MAX", "a race that is decided again"),
    ("log::file::read::VANISHED_MAX", "a race that is decided again"),
    ("log::file::open_files::MADE_ROOM_MAX", "a race that is decided again"),
    ("config::file_budget::LIMIT_MAX", "stands for no limit"),
    ("ledger::writer::outage::ANSWER_MAX", "how a server that is away is asked"),
    ("ledger::writer::LOOK_MAX", "how a server that is away is asked"),
    ("log_postgres::reconnect::PAUSE_MAX", "how a server that is away is asked"),
    ("ledger::reclaim::PARTS_WAITING_MAX", "a step of work that goes on"),
    ("ledger::disk::table::run_writer::UNSYNCED_BYTES_MAX", "a step of work that goes on"),
    ("ledger::writer::inbox::TAKE_MAX", "a step of work that goes on"),
    ("log::file::frame::HEADER_BYTES_MAX", "the format of files"),
    ("log::file::writer::BUFFER_BYTES_KEPT", "when a buffer is given back"),
];

/// One row of the page.
struct Row<'a> {
    line: usize,
    default: &'a str,
    unit: &'a str,
    constants: Vec<&'a str>,
    keys: Vec<&'a str>,
}

/// The rows, and the faults in the form of the page.
fn rows(page: &TextFile) -> (Vec<Row<'_>>, Vec<String>) {
    let (mut rows, mut found, mut is_below_head) = (Vec::new(), Vec::new(), false);
    for (line, text) in numbered(&page.text) {
        if !text.starts_with('|') {
            is_below_head = false;
            continue;
        }
        if !is_below_head {
            is_below_head = true;
            if text != HEAD {
                found.push(format!("{PAGE}:{line}: a table begins with `{HEAD}`"));
            }
            continue;
        }
        if text.starts_with("|---") {
            continue;
        }
        let cells: Vec<_> = text.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, default, unit, _, change] = cells[..] else {
            found.push(format!("{PAGE}:{line}: a row has five cells"));
            continue;
        };
        let names = || between(change, "`", "`");
        let is_constant = |name: &&str| name.rsplit("::").next().is_some_and(|last| last.to_uppercase() == last);
        let constants: Vec<_> = names().filter(|name| is_constant(name)).collect();
        let keys: Vec<_> = names().filter(|name| name.contains('.') && !name.contains(' ')).collect();
        if constants.is_empty() && keys.is_empty() {
            found.push(format!("{PAGE}:{line}: the last cell names no constant and no configuration key"));
        }
        rows.push(Row { line, default, unit, constants, keys });
    }
    (rows, found)
}

/// A default of the page as a number: `1,000`, `64 MiB`; `None` if there is none.
fn number(text: &str) -> Option<u64> {
    let (digits, factor) = match text.split_once(' ') {
        Some((digits, "KiB")) => (digits, 1 << 10),
        Some((digits, "MiB")) => (digits, 1 << 20),
        Some((digits, "GiB")) => (digits, 1 << 30),
        _ => (text, 1),
    };
    Some(digits.replace(',', "").parse::<u64>().ok()? * factor)
}

fn is_limit(path: &str, constant: &Constant<'_>) -> bool {
    let is_named_so = !path.contains("::") || path.ends_with("_MAX") || path.ends_with("_KEPT");
    let is_excepted =
        NO_LIMITS.iter().any(|(name, _)| path == *name || (name.ends_with("::") && path.starts_with(name)));
    (is_named_so || constant.kind == "BodyLimitFn") && !is_excepted
}

/// The unit in a constant's name.
fn unit_of(path: &str) -> Option<&'static str> {
    let name = path.rsplit("::").next()?;
    let words = [("BYTES", "bytes"), ("SECONDS", "seconds"), ("MILLIS", "milliseconds"), ("HOURS", "hours")];
    let words = words.into_iter().chain([("DAYS", "days"), ("CHARS", "characters")]);
    words.into_iter().find(|(word, _)| name.split('_').any(|part| part == *word)).map(|(_, unit)| unit)
}

fn check_constants(constants: &Constants<'_>, rows: &[Row<'_>], found: &mut Vec<String>) {
    let listed: BTreeSet<_> = rows.iter().flat_map(|row| row.constants.iter().copied()).collect();
    for (path, _) in constants.0.iter().filter(|(path, constant)| is_limit(path, constant)) {
        if !listed.contains(path.as_str()) {
            let (value, unit) = match constants.amount(path) {
                Some(amount) => (amount.number.to_string(), amount.unit.or_else(|| unit_of(path)).unwrap_or("…")),
                None => ("…".to_owned(), "…"),
            };
            found.push(format!("add the row: | … | {value} | {unit} | … | fixed: `{path}` |"));
        }
    }
    for row in rows {
        for path in &row.constants {
            let Some(amount) = constants.amount(path) else {
                found.push(format!("{PAGE}:{}: no constant `{path}` whose value can be told", row.line));
                continue;
            };
            if number(row.default) != Some(amount.number) {
                let (line, default, is) = (row.line, row.default, amount.number);
                found.push(format!("{PAGE}:{line}: the page says {default}, `{path}` is {is}"));
            }
            if let Some(unit) = amount.unit.or_else(|| unit_of(path)).filter(|unit| *unit != row.unit) {
                found.push(format!("{PAGE}:{}: the unit of `{path}` is {unit}, not {}", row.line, row.unit));
            }
        }
    }
}

fn check_keys(rows: &[Row<'_>], found: &mut Vec<String>) {
    let defaults = serde_json::to_value(Config::default()).unwrap();
    let default_of =
        |name: &str| defaults.pointer(&format!("/{}", name.replace('.', "/"))).cloned().unwrap_or_default();
    for key in KEYS {
        let ValueType::Number { unit, .. } = key.expects else { continue };
        let default = default_of(key.name);
        let holds = |row: &&Row<'_>| number(row.default).map(Value::from).unwrap_or_default() == default;
        let mut listed = rows.iter().filter(|row| row.keys.contains(&key.name));
        // A row may name a key that sets something else as well.
        if !listed.any(|row| row.unit == unit && holds(&row)) {
            let default = if default.is_null() { "none".to_owned() } else { default.to_string() };
            found.push(format!("add or correct the row: | … | {default} | {unit} | … | `{}` |", key.name));
        }
    }
    for row in rows {
        for name in row.keys.iter().filter(|name| KEYS.iter().all(|key| key.name != **name)) {
            found.push(format!("{PAGE}:{}: there is no configuration key `{name}`", row.line));
        }
    }
}

#[test]
fn the_page_of_limits_and_the_code_say_the_same() {
    let files = repository();
    let (rows, mut found) = rows(named(&files, PAGE));
    let constants = Constants::of(&files);
    check_constants(&constants, &rows, &mut found);
    check_keys(&rows, &mut found);
    for (name, _) in NO_LIMITS.iter().filter(|(name, _)| !name.ends_with("::")) {
        if !constants.0.contains_key(*name) {
            found.push(format!("NO_LIMITS in tests/it/tidy/limits_page.rs names `{name}`, which is not there"));
        }
    }
    refuse(&found, "docs/limits.md has a row for every limit: its value, unit, what happens at it, how to change it.");
}
