//! Tidy: the repository checks itself.
//!
//! - Files are read as text ([`text`]). Nothing is built, and nothing outside the repository is read.
//! - A check that fails names every place and says how to fix it.
//! - Forbidden words are assembled from parts here; otherwise the check would find them in this file.

mod constants;
mod limits_page;
mod names;
mod no_limits;
mod text;

use std::collections::BTreeSet;
use text::{
    TextFile, between, code, dependencies, functions, has_word, headings, links, numbered, paths, repository,
    without_unit_tests,
};

const FILE_LINES_MAX: usize = 450;
const FUNCTION_LINES_MAX: usize = 80;

/// The modules of `src` in layers, from the lowest. A module uses the layers below its own and, within its layer, the
/// modules listed before it.
const LAYERS: [&[&str]; 8] = [
    &["clock", "memory"],
    &["ledger"],
    &["config"],
    &["logs"],
    &[
        "secrets",
        "filters",
        "types",
        "events",
        "topics",
        "lag",
        "idempotency",
        "projections",
        "claims",
        "shared_groups",
        "consumers",
        "delivery",
        "subscriptions",
        "dispatch",
        "dead_letters",
    ],
    &["broker"],
    &["rest", "cli"],
    &["lib", "main"],
];
/// The first layer that may use HTTP, SQL and the command line.
const OUTER_LAYER: usize = 6;
/// Crates that only modules of that layer and above may use.
const OUTER_CRATES: &str = "async_nats axum axum_core clap http http_body hyper postgres reqwest rusqlite sqlx \
    tokio_postgres tower tower_http";
/// The one inner module that uses HTTP, as a client: it delivers events to URLs. It may use these of the crates above.
const CALLING_MODULE: &str = "delivery";
const CALLING_CRATES: &str = "http http_body hyper tower";

/// The only crates that the contract uses.
const CONTRACT_DEPENDENCIES: &str = "bytes gts-id jiff serde serde_json uuid";
/// What the contract never mentions: storage, the broker, a runtime, the outside world.
const NOT_FOR_THE_CONTRACT: &str = "async_std event_broker futures log rustix smol tokio std::env std::fs std::net \
    std::process std::thread std::time::Instant std::time::SystemTime";

/// The files of the broker and its engines that hold a lock across an await, and what for.
const LOCKS_ACROSS_AWAIT: [(&str, &str); 11] = [
    ("log-postgres/src/append.rs", "appends are sent in their order"),
    ("log-postgres/src/remove.rs", "removals share one session"),
    ("src/delivery/tokens.rs", "an OAuth token is fetched once"),
    ("src/events/import.rs", "an import with republished copies is stored alone"),
    ("src/lag/mod.rs", "one caller reads on for the lag of a reader"),
    ("src/logs/mod.rs", "a topic is written to two logs"),
    ("src/shared_groups/scan.rs", "a shared group's next page of work is read once"),
    ("src/subscriptions/mod.rs", "codes of subscriptions are unique over all logs"),
    ("src/subscriptions/pools.rs", "a pool in use is not deleted"),
    ("src/topics/deletion.rs", "no subscription begins to use a topic that is deleted"),
    ("src/types/deletion.rs", "one search at a time for events of a type that is deleted"),
];

const DECISION_HEADINGS: [&str; 4] = ["Situation", "Choice", "Price", "What would change our mind"];

// The dependency rule: main → rest, cli → broker → domain modules → logs → config → ledger → log → contract.

#[test]
fn every_module_belongs_to_a_layer() {
    let files = repository();
    let existing: BTreeSet<&str> = files.iter().filter_map(TextFile::top_module).collect();
    let listed: BTreeSet<&str> = LAYERS.iter().flat_map(|modules| modules.iter().copied()).collect();
    let found: Vec<_> = existing.symmetric_difference(&listed).map(|module| format!("src/{module}")).collect();
    refuse(&found, "LAYERS in tests/it/tidy/mod.rs lists exactly the modules of src: add the new one to its layer.");
}

#[test]
fn a_module_uses_only_lower_layers_and_the_modules_listed_before_it() {
    let mut found = Vec::new();
    for file in repository().iter().filter(|file| file.is_source() && !file.is_test()) {
        let Some(own) = file.top_module().and_then(place_of).filter(|own| own.0 < LAYERS.len() - 1) else { continue };
        for (line, path) in paths(without_unit_tests(&file.text)) {
            let inside = file.resolve(&path);
            let Some(used) = inside.first() else { continue };
            if place_of(used) > Some(own) {
                found.push(format!("{}:{line}: `{path}` is above this module", file.path));
            }
            if path.starts_with("crate::") && used.starts_with(char::is_uppercase) {
                found.push(format!("{}:{line}: `{path}` hides its module; write `crate::<module>::{used}`", file.path));
            }
        }
    }
    refuse(&found, "Reverse the dependency: pass a value in, or move what both modules need to the lower one.");
}

#[test]
fn inner_modules_know_nothing_of_http_sql_or_the_command_line() {
    let files = repository();
    let (calling, inner): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|file| layer(file).is_some_and(|layer| layer < OUTER_LAYER))
        .partition(|file| file.top_module() == Some(CALLING_MODULE));
    let kept_out: Vec<_> =
        OUTER_CRATES.split(' ').filter(|name| !CALLING_CRATES.split(' ').any(|calling| calling == *name)).collect();
    let mut found = mentions(inner.into_iter(), OUTER_CRATES);
    found.extend(mentions(calling.into_iter(), &kept_out.join(" ")));
    refuse(&found, "Do this in an outer module (src/cli, src/rest) or in an engine's own crate.");
}

#[test]
fn the_contract_rests_on_its_own_vocabulary_only() {
    let files = repository();
    let mut found = mentions(under(&files, "contract/src/"), NOT_FOR_THE_CONTRACT);
    for (line, name) in dependencies(&named(&files, "contract/Cargo.toml").text) {
        if !CONTRACT_DEPENDENCIES.split(' ').any(|allowed| allowed == name) {
            found.push(format!("contract/Cargo.toml:{line}: {name}"));
        }
    }
    refuse(&found, "The contract is plain types, for clients too: keep I/O, runtimes and storage out of it.");
}

#[test]
fn the_log_knows_nothing_of_the_broker_above_it() {
    let files = repository();
    let manifest = named(&files, "log/Cargo.toml");
    let mut found = mentions(under(&files, "log/"), "event_broker");
    let is_broker = |line: &str| {
        let key = line.split(['.', ' ', '=']).next();
        key == Some("event-broker") || line.contains("\"event-broker\"") || line.contains("\"..\"")
    };
    found.extend(manifest.places(numbered(&manifest.text), is_broker));
    refuse(&found, "An engine stores records and knows no meaning: move this up into src/ledger or a domain module.");
}

#[test]
fn only_the_command_line_prints() {
    let speaking = ["print!", "println!", "eprint!", "eprintln!", "dbg!", "stdout()", "stderr()"];
    let speaks = |line: &str| speaking.iter().any(|needle| has_word(line, needle));
    let files = repository();
    let silent = files.iter().filter(|file| file.is_source() && !matches!(file.top_module(), Some("cli" | "main")));
    let found: Vec<_> = silent.flat_map(|file| file.places(code(&file.text), speaks)).collect();
    refuse(&found, "Return a value or an error; src/cli and src/main.rs say it to people.");
}

#[test]
fn the_ledger_the_log_and_the_contract_read_no_clock() {
    let clocks = ["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now"];
    let reads_one = |line: &str| clocks.iter().any(|clock| has_word(line, clock));
    let files = repository();
    let inner = files.iter().filter(|file| {
        file.is_source() && !file.path.starts_with("client/") && matches!(file.top_module(), None | Some("ledger"))
    });
    let found: Vec<_> = inner.flat_map(|file| file.places(code(&file.text), reads_one)).collect();
    refuse(&found, "Take the time as a value (`now`); src/clock/mod.rs is the one place that asks the machine.");
}

#[test]
fn locks_are_held_across_an_await_only_where_that_is_listed() {
    let waits = [".lock().await", ".lock_owned().await", ".read().await", ".write().await"];
    let is_async_lock = |line: &str| {
        let in_time = line.contains("timeout_at(") && line.contains(".lock()");
        in_time || waits.iter().any(|wait| line.contains(wait))
    };
    let files = repository();
    let is_of_broker = |file: &&TextFile| !["client/", "src/cli/"].iter().any(|folder| file.path.starts_with(folder));
    let sources = files.iter().filter(|file| file.is_source() && !file.is_test()).filter(is_of_broker);
    let found: BTreeSet<&str> = sources
        .filter(|file| code(without_unit_tests(&file.text)).any(|(_, line)| is_async_lock(line)))
        .map(|file| file.path.as_str())
        .collect();
    let listed: BTreeSet<&str> = LOCKS_ACROSS_AWAIT.iter().map(|(path, _)| *path).collect();
    let wrong: Vec<_> = found.symmetric_difference(&listed).map(|path| (*path).to_owned()).collect();
    refuse(
        &wrong,
        "LOCKS_ACROSS_AWAIT lists exactly the files with such a lock: prefer a lock that is not held while waiting.",
    );
}

// The form of files.

#[test]
fn every_source_file_opens_with_what_it_is() {
    let files = repository();
    let bare = files.iter().filter(|file| file.is_rust() && !file.text.starts_with("//! "));
    let found: Vec<_> = bare.map(|file| format!("{}:1", file.path)).collect();
    refuse(&found, "Open the file with `//! ` and what it is, its invariants, and what it leaves to others.");
}

#[test]
fn a_module_with_children_is_in_its_folder() {
    let files = repository();
    let rust: Vec<_> = files.iter().filter(|file| file.is_rust() && !file.path.starts_with("bench/")).collect();
    let has_children = |file: &&&TextFile| {
        let folder = format!("{}/", file.path.trim_end_matches(".rs"));
        rust.iter().any(|other| other.path.starts_with(&folder))
    };
    let found: Vec<_> = rust.iter().filter(has_children).map(|file| file.path.clone()).collect();
    refuse(&found, "Move `name.rs` to `name/mod.rs`, beside the files of its children.");
}

#[test]
fn source_files_stay_short() {
    let mut found = Vec::new();
    for file in repository().iter().filter(|file| file.is_measured()) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines", file.path));
        }
    }
    refuse(&found, "Over 450 lines a file is usually looking for its second name: split it by what its parts are.");
}

#[test]
fn functions_stay_short() {
    let mut found = Vec::new();
    for file in repository().iter().filter(|file| file.is_measured()) {
        for (line, lines, head) in functions(&file.text) {
            if lines > FUNCTION_LINES_MAX {
                found.push(format!("{}:{line}: {lines} lines: {head}", file.path));
            }
        }
    }
    refuse(&found, "Over 80 lines a function is usually missing a noun: name its steps and call them.");
}

#[test]
fn no_result_is_within_a_result() {
    let nested = ["Result<Result<", "=> Ok(Ok(", "=> Ok(Err(", ".await??"];
    let files = repository();
    let sources = files.iter().filter(|file| file.is_source() && !file.is_test());
    let is_nested = |line: &str| nested.iter().any(|form| line.contains(form));
    let found: Vec<_> = sources.flat_map(|file| file.places(code(&file.text), is_nested)).collect();
    refuse(&found, "Name the outcomes in an enum, or flatten the results where the outer one is made.");
}

#[test]
fn nothing_is_left_unfinished_and_no_test_is_ignored() {
    let marks = [["to", "do!"], ["unimpl", "emented!"], ["FIX", "ME"], ["XX", "X"], ["#[ig", "nore"]];
    let marks = marks.map(|mark| mark.concat());
    let is_marked = |line: &str| marks.iter().any(|mark| has_word(line, mark));
    let files = repository();
    let rust = files.iter().filter(|file| file.is_rust());
    let found: Vec<_> = rust.flat_map(|file| file.places(numbered(&file.text), is_marked)).collect();
    refuse(&found, "Finish it, delete it, or write an issue; a test runs or is not there.");
}

#[test]
fn no_test_sleeps() {
    let needle = ["sle", "ep("].concat();
    let mut found = Vec::new();
    for file in repository().iter().filter(|file| file.is_rust()) {
        let first = if file.is_test() { Some(1) } else { line_of(&file.text, "#[cfg(test)]") };
        let Some(first) = first else { continue };
        let tests = code(&file.text).filter(|(number, _)| *number >= first);
        found.extend(file.places(tests, |line| has_word(line, &needle)));
    }
    refuse(&found, "Wait on the tail, a channel or a child's end instead, or move the clock.");
}

// Content that a public repository must not contain.

#[test]
fn no_file_names_a_path_of_one_machine() {
    let folders = ["work", "root", "farm", "home"].map(|folder| format!("/{folder}/"));
    let begins_there = |line: &str, at: usize| !line[..at].ends_with(|c: char| c.is_ascii_alphabetic());
    let names_one = |line: &str| {
        let mut found = folders.iter().flat_map(|folder| line.match_indices(folder));
        found.any(|(at, _)| begins_there(line, at))
    };
    let found: Vec<_> = repository().iter().flat_map(|file| file.places(numbered(&file.text), names_one)).collect();
    refuse(&found, "Write a path relative to the repository, or make it a setting.");
}

#[test]
fn no_file_names_a_package_registry() {
    let hosts = [["crates", ".io"], ["npm", "js."], ["pypi", ".org"], ["python", "hosted"], ["replace", "-with"]];
    let hosts = hosts.map(|host| host.concat());
    let names_one = |line: &str| hosts.iter().any(|host| line.contains(host));
    let found: Vec<_> = repository().iter().flat_map(|file| file.places(numbered(&file.text), names_one)).collect();
    refuse(&found, "Where packages come from is the builder's setting, not the repository's: leave it out.");
}

// Facts that are stated in two places.

#[test]
fn crash_points_are_listed_where_they_are_met_and_met_where_they_are_listed() {
    let files = repository();
    let list = between(&named(&files, "log/src/crash.rs").text, "CRASH_POINTS: &[&str] = &[", "];").next();
    let listed: BTreeSet<&str> = list.into_iter().flat_map(|list| between(list, "\"", "\"")).collect();
    assert!(!listed.is_empty(), "log/src/crash.rs lists no crash points: has CRASH_POINTS changed its form?");
    let sources = files.iter().filter(|file| file.is_source() && file.path != "log/src/crash.rs");
    let met: BTreeSet<&str> = sources.flat_map(|file| between(&file.text, "crash_point(\"", "\")")).collect();
    let mut found: Vec<_> = listed.difference(&met).map(|name| format!("{name}: listed, never met")).collect();
    found.extend(met.difference(&listed).map(|name| format!("{name}: met, not listed")));
    refuse(&found, "CRASH_POINTS in log/src/crash.rs and the calls `crash_point(\"<name>\")` name the same points.");
}

#[test]
fn every_fact_of_the_log_is_named_in_the_description_of_its_format() {
    let files = repository();
    let format = &named(&files, "docs/format.md").text;
    let mut found = Vec::new();
    for (path, head) in [
        ("src/ledger/facts/entry/mod.rs", "pub enum Entry {"),
        ("src/ledger/facts/dispatch.rs", "pub enum DispatchFact {"),
    ] {
        let facts = between(&named(&files, path).text, head, "\n}\n").next().unwrap_or_default();
        let is_name = |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
        let names: Vec<_> = facts.lines().filter(is_name).filter_map(|line| line.trim().split(' ').next()).collect();
        assert!(!names.is_empty(), "{path}: has `{head}` changed its form?");
        for name in names {
            let fact = format!("`{}{}`", name[..1].to_lowercase(), &name[1..]);
            if !format.contains(&fact) {
                found.push(format!("{path}: {fact}"));
            }
        }
    }
    refuse(&found, "docs/format.md lists every fact: add it to the table of its kind, with what it says.");
}

#[test]
fn every_decision_has_its_four_headings_and_is_in_the_list() {
    let files = repository();
    let list = named(&files, "docs/decisions/README.md");
    let mut found = Vec::new();
    for file in under(&files, "docs/decisions/").filter(|file| file.path != list.path) {
        let headings: Vec<_> = headings(&file.text).collect();
        for missing in DECISION_HEADINGS.iter().filter(|heading| !headings.contains(heading)) {
            found.push(format!("{}: add the heading `## {missing}`", file.path));
        }
        let name = file.path.trim_start_matches("docs/decisions/");
        if !links(&list.text).any(|(_, target)| target == name) {
            found.push(format!("{}: add a line with a link to {name}", list.path));
        }
    }
    refuse(&found, "A decision is half a page under four headings, found from docs/decisions/README.md.");
}

#[test]
fn links_between_the_markdown_files_resolve() {
    let files = repository();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        // A colon: the link is an address outside the repository.
        for (line, target) in links(&file.text).filter(|(_, target)| !target.contains(':')) {
            if !text::resolves(&files, file, target) {
                found.push(format!("{}:{line}: {target}", file.path));
            }
        }
    }
    refuse(
        &found,
        "Correct the link (relative to its file; `#` and a heading in lower case), or write the page it points to.",
    );
}

/// Fails, and prints every place and how to fix it.
fn refuse(found: &[String], advice: &str) {
    assert!(found.is_empty(), "\n{advice}\n  {}\n", found.join("\n  "));
}

fn named<'a>(files: &'a [TextFile], path: &str) -> &'a TextFile {
    let file = files.iter().find(|file| file.path == path);
    file.unwrap_or_else(|| panic!("{path} is missing, and this test reads it: create it, or change the path here"))
}

fn under<'a>(files: &'a [TextFile], folder: &str) -> impl Iterator<Item = &'a TextFile> {
    files.iter().filter(move |file| file.path.starts_with(folder))
}

fn layer(file: &TextFile) -> Option<usize> {
    place_of(file.top_module()?).map(|(layer, _)| layer)
}

/// A module's layer, and its index within the layer.
fn place_of(module: &str) -> Option<(usize, usize)> {
    LAYERS
        .iter()
        .enumerate()
        .find_map(|(layer, modules)| modules.iter().position(|listed| *listed == module).map(|within| (layer, within)))
}

/// The first line that begins with `needle`.
fn line_of(text: &str, needle: &str) -> Option<usize> {
    numbered(text).find(|(_, line)| line.trim_start().starts_with(needle)).map(|(number, _)| number)
}

/// Where `files` mention one of `names`: crates, or paths inside them, separated by spaces.
fn mentions<'a>(files: impl Iterator<Item = &'a TextFile>, names: &str) -> Vec<String> {
    let is_in =
        |path: &str, name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let mut found = Vec::new();
    for file in files.filter(|file| file.is_rust()) {
        let paths = paths(&file.text).into_iter().filter(|(_, path)| names.split(' ').any(|name| is_in(path, name)));
        found.extend(paths.map(|(line, path)| format!("{}:{line}: `{path}`", file.path)));
    }
    found
}
