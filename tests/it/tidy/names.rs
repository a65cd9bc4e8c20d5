//! Names of types: a name says what the thing is without its module, and no two types of a crate share a name.
//!
//! - A name of one word is in the list below: the word is a term of the trade, and only this type has it.
//! - A word without a meaning of its own is never a whole name.

use super::refuse;
use super::text::{TextFile, code, repository, without_unit_tests};
use std::collections::BTreeMap;

/// Names of one word. All other names have two words or more.
const ONE_WORD_NAMES: &str = "Actor Aggregate Appender Atomicity Broker Checkpoint Claim Claims Client Clock Command \
    Completion Config Consumer Consumers Cursor Decision Delete Deliver Disk Distribution Entry Error Event Handler \
    Identifier Kind Lane Ledger Log Logs Overlay Page Planner Pool Problem Projection Projections Record Registry Replay \
    Reply Resolve Result Segment Session Subscription Subscriptions Supervisor Timestamp Topic Violation";

/// Two types of one crate that share a name, with the reason.
const SHARED_NAMES: [(&str, &str); 0] = [];

#[test]
fn a_type_name_of_one_word_is_a_term_of_the_trade() {
    let mut found = Vec::new();
    for (name, places) in type_names() {
        let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
        if is_one_word && !ONE_WORD_NAMES.split_whitespace().any(|allowed| allowed == name) {
            found.extend(places.iter().map(|place| format!("{place}: `{name}`")));
        }
    }
    refuse(
        &found,
        "Name the type by two words that say what it is (`IdempotencyKey`), or list the term in ONE_WORD_NAMES.",
    );
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let mut found = Vec::new();
    for (name, places) in type_names() {
        let mut by_crate: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for place in &places {
            by_crate.entry(crate_of(place)).or_default().push(place);
        }
        let is_listed = SHARED_NAMES.iter().any(|(shared, _)| *shared == name);
        let doubles = by_crate.into_values().filter(|places| places.len() > 1 && !is_listed);
        found.extend(doubles.map(|places| format!("`{name}`: {}", places.join(", "))));
    }
    refuse(&found, "Give one of them a name of its own, or list both in SHARED_NAMES with the reason.");
}

fn crate_of(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Every type declared outside tests, with the files that declare it.
fn type_names() -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in repository().iter().filter(|file| file.is_source() && !file.is_test()) {
        for name in declared_types(file) {
            names.entry(name).or_default().push(file.path.clone());
        }
    }
    assert!(names.len() > 500, "only {} type names found: has their form changed?", names.len());
    names
}

fn declared_types(file: &TextFile) -> Vec<String> {
    let declared = |(_, line): (usize, &str)| {
        let head = line.trim_start();
        let mut words = head.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let keyword = words.next()?;
        // An indented `type` is an associated type, named by its trait.
        let declares = matches!(keyword, "struct" | "enum" | "trait" | "union") || (keyword == "type" && head == line);
        let name = words.next().filter(|_| declares)?;
        let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
        name.starts_with(char::is_uppercase).then_some(name)
    };
    code(without_unit_tests(&file.text)).filter_map(declared).collect()
}
