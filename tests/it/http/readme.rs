//! The commands in the documents: each one is run as written, and its output must be the printed one.

use super::Server;
use regex::Regex;
use std::path::Path;
use std::process::Command;

#[test]
fn the_five_minutes_of_the_readme_are_true() {
    assert_eq!(run_consoles("README.md"), 5, "five commands");
}

#[test]
fn what_is_printed_of_projections_is_true() {
    assert_eq!(run_consoles("docs/projections.md"), 10);
}

#[test]
fn what_is_printed_for_clients_is_true() {
    assert_eq!(run_consoles("docs/clients.md"), 8);
}

/// Runs every command of a document's consoles, in order, against one server; returns the number of commands.
fn run_consoles(document: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let server = Server::start(&[]);
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split_once("\n```").unwrap().0);
    let steps: Vec<_> = blocks.flat_map(|block| block.split("\n\n")).collect();
    for step in &steps {
        let (command, printed) = step.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
        let command = command.replace("http://127.0.0.1:8087", &server.url);
        let command = command.replace("event-broker ", concat!(env!("CARGO_BIN_EXE_event-broker"), " "));
        let output = Command::new("bash").args(["-c", &command]).env("EVENT_BROKER_URL", &server.url).output().unwrap();
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
        let answered = String::from_utf8(output.stdout).unwrap();
        assert_eq!(masked(answered.trim_end()), masked(printed), "{command}");
    }
    steps.len()
}

/// Replaces what differs on every run: times, and the ids that the broker assigns.
fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (volatile, mask) in [
        (r#""\d{4}-\d\d-\d\dT[0-9:.]+Z""#, r#""TIME""#),
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
        (r#""(id|eventId)":"[0-9a-f-]{36}""#, r#""$1":"ID""#),
        (r#""seconds":\d+"#, r#""seconds":SECONDS"#),
        (r"\d+ s\b", "SECONDS"),
        (r#""traceId":"[0-9a-f]{32}""#, r#""traceId":"TRACE""#),
    ] {
        text = Regex::new(volatile).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}
