//! `docs/limits.md` and the code agree: the page lists every limit with its value, and nothing else.
//!
//! The page must list every constant of `contract/src/limits.rs`; every number, duration or range beside the code,
//! whatever it is called, unless [`super::no_limits`] says why it limits nothing; and every number of the
//! configuration, with its unit. The values of all of them are compared with the code.

use super::constants::{Constant, Constants};
use super::no_limits::{NO_LIMITS, is_excepted, is_named};
use super::text::{TextFile, between, numbered, repository};
use super::{named, refuse};
use event_broker::Config;
use event_broker::config::keys::{KEYS, ValueType};
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = "docs/limits.md";
const HEAD: &str = "| what | default | unit | what happens at it | how to change it |";

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
    let is_number = NUMBERS.contains(&constant.kind) || constant.kind.starts_with("std::ops::RangeInclusive<");
    (is_number || !path.contains("::")) && !is_excepted(path)
}

/// The types of constants that can be limits.
const NUMBERS: [&str; 14] = [
    "usize",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "(u64, u64)",
    "Duration",
    "BodyLimitFn",
];

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
            let row = format!("| … | {value} | {unit} | … | fixed: `{path}` |");
            found.push(format!("add the row: {row}, or say in tests/it/tidy/no_limits.rs why it limits nothing"));
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
    for name in NO_LIMITS.iter().flat_map(|(_, names)| *names) {
        if !constants.0.keys().any(|path| is_named(path, name)) {
            found.push(format!("NO_LIMITS in tests/it/tidy/no_limits.rs names `{name}`, which is not there"));
        }
    }
    refuse(&found, "docs/limits.md has a row for every limit: its value, unit, what happens at it, how to change it.");
}

/// Limits whose names do not end in `_MAX` were missing on the page.
#[test]
fn a_limit_is_missed_on_the_page_whatever_it_is_called() {
    let text = "//! .\nconst PARCELS: usize = 7;\nconst PATIENCE: Duration = Duration::from_secs(3);\n\
        const SIZES: std::ops::RangeInclusive<usize> = 2..=9;\nconst LABEL: &str = \"x\";\nconst VERSION: u32 = 1;\n";
    let files = [TextFile { path: "src/parcels.rs".to_owned(), text: text.to_owned() }];
    let mut found = Vec::new();
    check_constants(&Constants::of(&files), &[], &mut found);
    let missed = found.iter().map(|fault| between(fault, "fixed: `", "`").next().unwrap()).collect::<Vec<_>>();
    assert_eq!(missed, ["parcels::PARCELS", "parcels::PATIENCE", "parcels::SIZES"]);
    assert!(found[2].contains("| 9 |"), "{found:?}");
}
