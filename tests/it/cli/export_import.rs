//! `export` and `import`: every event is exported and imported unchanged.

use super::{ask, feed, finish, lines, program, run, server};
use crate::http::{CREATED, Server, TENANT, TOPIC};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use tempfile::TempDir;

const ORDERS: &str = "gts.hx.core.events.topic.v1~vendor.orders.v1";
const APART: &str = "gts.hx.core.events.topic.v1~vendor.apart.v1";

fn type_of(topic: &str) -> String {
    format!("gts.hyperspot.core.events.type.v1~vendor.{}.happened.v1", topic.rsplit('.').nth(1).unwrap())
}

/// A broker with three topics, one of them in its own log.
fn with_topics() -> Server {
    let server = server();
    ask(&server, &["topics", "create", ORDERS]).expect(0);
    ask(&server, &["topics", "create", APART, "--storage", "file", "--location", "apart"]).expect(0);
    for topic in [ORDERS, APART] {
        feed(&server, &["types", "register"], &json!({"id": type_of(topic), "topic": topic}).to_string()).expect(0);
    }
    server
}

/// Events of all three topics, mixed; some span several lines.
fn events(count: usize) -> String {
    let types = [CREATED.to_owned(), type_of(ORDERS), type_of(APART)];
    let event = |number: usize| {
        let data = json!({"number": number, "text": "ü\n\u{2028}"});
        let data = if number.is_multiple_of(7) { format!("{data:#}") } else { data.to_string() };
        let subject = number % 5;
        let event_type = &types[number / 2 % 3];
        format!(
            r#"{{"type":"{event_type}","source":"test","subject":"{subject}","tenant":"{TENANT}","context":{{"a":"b"}},"data":{data}}}"#
        )
    };
    (0..count).map(|number| event(number) + "\n").collect()
}

/// The members that must be equal in every log, by topic, in order.
fn kept(exported: &str) -> BTreeMap<String, Vec<Value>> {
    let mut topics = BTreeMap::<_, Vec<_>>::new();
    for line in exported.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        let members = event.as_object_mut().unwrap();
        members.remove("position").unwrap();
        members.remove("createdAt").unwrap();
        topics.entry(event["topic"].as_str().unwrap().to_owned()).or_default().push(event);
    }
    topics
}

#[test]
fn what_was_exported_is_the_same_after_an_import() {
    let (old, new) = (with_topics(), with_topics());
    feed(&old, &["publish", "-"], &events(420)).expect(0);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("all.ndjson");
    let file = file.to_str().unwrap();
    let run = ask(&old, &["export", "--all", "--output", file]).expect(0);
    assert!(run.err.starts_with("event-broker: exported 420 events"), "{}", run.err);
    let run = ask(&new, &["import", file]).expect(0);
    assert_eq!(run.out, "imported 420, duplicates 0, failed 0\n");
    let exported = std::fs::read_to_string(file).unwrap();
    let again = ask(&new, &["export", "--all"]).expect(0).out;
    assert_eq!(exported.lines().count(), 420);
    assert_eq!(kept(&exported).len(), 3);
    assert_eq!(kept(&again), kept(&exported), "sequences, ids, times and data are the same, in the same order");
    let order = |text: &str| -> Vec<String> {
        let ids = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string());
        ids.collect()
    };
    assert_eq!(order(&again), order(&exported), "the order across topics is the same");
    // Importing again changes nothing.
    let run = feed(&new, &["import", "-", "--json"], &exported).expect(0);
    let counted = json!({"lines": 420, "imported": 0, "duplicates": 420, "failed": 0, "done": true});
    assert_eq!(run.json(), [counted]);
}

#[test]
fn an_export_goes_on_where_it_stopped() {
    let server = with_topics();
    feed(&server, &["publish", "-"], &lines(250)).expect(0);
    let whole = ask(&server, &["export"]).expect(0).out;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("topic.ndjson");
    let file = path.to_str().unwrap();
    // The file that an interrupted export leaves: whole lines, and half of one.
    let lines: Vec<_> = whole.lines().collect();
    std::fs::write(&path, format!("{}\n{}", lines[..100].join("\n"), &lines[100][..40])).unwrap();
    let refused = ask(&server, &["export", "--output", file]).expect(2);
    assert!(refused.err.contains("exists already"), "{}", refused.err);
    let run = ask(&server, &["export", TOPIC, "--after", "100", "--output", file, "--json"]).expect(0);
    assert_eq!(run.json(), [json!({"events": 150, "after": 250})]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    // An export of the whole log resumes by position.
    feed(&server, &["publish", "-"], &events(60)).expect(0);
    let all = ask(&server, &["export", "--all"]).expect(0).out;
    let lines: Vec<_> = all.lines().collect();
    let position = serde_json::from_str::<Value>(lines[119]).unwrap()["position"].to_string();
    std::fs::write(&path, lines[..120].join("\n") + "\n").unwrap();
    ask(&server, &["export", "--all", "--after", &position, "--output", file]).expect(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), all);
    // After the end of the default log only the topics in other logs are added.
    let tail = serde_json::from_str::<Value>(lines.iter().rfind(|line| !line.contains(APART)).unwrap()).unwrap();
    let rest = ask(&server, &["export", "--all", "--after", &tail["position"].to_string()]).expect(0).out;
    assert_eq!(kept(&rest).into_keys().collect::<Vec<_>>(), [APART]);
}

#[test]
fn an_export_ends_at_the_tail_it_began_with() {
    let server = with_topics();
    feed(&server, &["publish", "-"], &lines(30)).expect(0);
    assert_eq!(ask(&server, &["export", ORDERS]).expect(0).out, "");
    assert_eq!(ask(&server, &["export", "--after", "30"]).expect(0).out, "");
    assert_eq!(ask(&server, &["export", "--after", "29"]).expect(0).out.lines().count(), 1);
}

#[test]
fn lines_that_are_refused_are_told_by_their_number() {
    let server = server();
    let event = |subject| super::line(subject);
    let input = format!("{}\nnot json\n\n{{\"type\":\"gts.vendor.none.such.v1\"}}\n{}\n", event("a"), event("b"));
    let run = feed(&server, &["import"], &input).expect(1);
    assert_eq!(run.out, "imported 2, duplicates 0, failed 2\n");
    for (line, code) in [(2, "EVENT_BROKER_MALFORMED"), (4, "EVENT_BROKER_VALIDATION_ERROR")] {
        let said = run.err.lines().find(|said| said.starts_with(&format!("event-broker: line {line} was refused: ")));
        assert!(said.is_some_and(|said| said.contains(code)), "{line}: {}", run.err);
    }
    let reply = feed(&server, &["import", "--json"], &input).expect(1).json();
    let lines: Vec<_> = reply.iter().map(|row| (row["line"].as_u64(), row["failed"].as_u64())).collect();
    assert_eq!(lines, [(Some(2), None), (Some(4), None), (None, Some(2))]);
    let missing = run_missing();
    assert!(missing.contains("no/such/file: No such file"), "{missing}");
}

fn run_missing() -> String {
    run(&["import", "no/such/file"]).expect(1).err
}

#[test]
fn a_line_that_is_too_long_is_refused_alone() {
    let server = server();
    let input = [lines(10), "x".repeat(3 * 1024 * 1024), "\n".to_owned(), lines(11)].concat();
    let run = feed(&server, &["import"], &input).expect(1);
    assert_eq!(run.out, "imported 21, duplicates 0, failed 1\n");
    assert!(
        run.err.contains("line 11 was refused") && run.err.contains("EVENT_BROKER_PAYLOAD_TOO_LARGE"),
        "{}",
        run.err
    );
    assert_eq!(super::subjects(&server).len(), 21);
}

#[test]
fn an_import_that_breaks_off_says_so() {
    let server = Server::start_with(&[("EVENT_BROKER__SERVER__BODY_TIMEOUT_SECS", "1")], &[]);
    feed(&server, &["types", "register"], &json!({"id": CREATED}).to_string()).expect(0);
    let mut child = program(&["import"]).env("EVENT_BROKER_URL", &server.url).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines(10).as_bytes()).unwrap();
    // The rest of the file does not come; standard input stays open until the program has stopped with an error.
    let run = finish(child);
    drop(stdin);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("EVENT_BROKER_REQUEST_TIMEOUT"), "{}", run.err);
    assert!(run.err.contains("imported 10, duplicates 0, failed 0; repeat the import"), "{}", run.err);
}

#[test]
fn a_long_import_is_not_held_in_memory_and_arrives_in_order() {
    let server = server();
    let run = feed(&server, &["import", "-"], &lines(5000)).expect(0);
    assert_eq!(run.out, "imported 5000, duplicates 0, failed 0\n");
    let expected: Vec<_> = (0..5000).map(|number| format!("s-{number}")).collect();
    assert_eq!(super::subjects(&server), expected);
}

#[test]
fn an_export_of_everything_can_be_imported_although_the_broker_has_events_of_its_own() {
    const OPERATIONS: &str = "gts.hx.core.events.topic.v1~hx.broker.dispatch.operations.v1";
    let (old, new) = (server(), server());
    ask(&old, &["subscriptions", "create", "mail", TOPIC, "https://example.com/"]).expect(0);
    feed(&old, &["publish", "-"], &lines(2)).expect(0);
    ask(&old, &["subscriptions", "pause", "mail"]).expect(0);
    feed(&old, &["publish", "-"], &lines(1)).expect(0);
    let export = ask(&old, &["export", "--all"]).expect(0);
    assert_eq!(kept(&export.out).into_keys().collect::<Vec<_>>(), [TOPIC]);
    assert!(export.err.contains("exported 3 events") && export.err.contains(OPERATIONS), "{}", export.err);
    let import = feed(&new, &["import", "-"], &export.out).expect(0);
    assert_eq!(import.out, "imported 3, duplicates 0, failed 0\n");
    // A topic of the broker is exported if it is named.
    let named = ask(&old, &["export", OPERATIONS]).expect(0);
    assert_eq!(kept(&named.out).into_keys().collect::<Vec<_>>(), [OPERATIONS]);
    assert!(!named.err.contains("not exported"), "{}", named.err);
}
