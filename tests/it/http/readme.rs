//! The README's five minutes: every command there, run as written, answers what is printed there.

use super::Server;
use regex::Regex;
use std::process::Command;

#[test]
fn the_five_minutes_of_the_readme_are_true() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, block) = readme.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    let server = Server::start(&[]);
    let steps: Vec<_> = block.split("\n\n").collect();
    assert_eq!(steps.len(), 5, "five commands");
    for step in steps {
        let (command, printed) = step.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
        let command = command.replace("http://127.0.0.1:8087", &server.url);
        let output = Command::new("bash").args(["-c", &command]).output().unwrap();
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
        let answered = String::from_utf8(output.stdout).unwrap();
        assert_eq!(masked(answered.trim_end()), masked(printed), "{command}");
    }
}

/// What is different every time is made the same: times, and the ids the broker makes.
fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (volatile, mask) in [
        (r#""\d{4}-\d\d-\d\dT[0-9:.]+Z""#, r#""TIME""#),
        (r#""id":"[0-9a-f-]{36}""#, r#""id":"ID""#),
        (r#""traceId":"[0-9a-f]{32}""#, r#""traceId":"TRACE""#),
    ] {
        text = Regex::new(volatile).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}
