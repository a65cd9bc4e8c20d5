//! `tail`: existing events, new events, and events published while the connection was down.

use super::{ask, event_with, feed, line, lines, program, server};
use crate::http::{CREATED, Server, TENANT, TOPIC};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout};

/// A running tail process; killed when the value is dropped.
struct TailProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl TailProcess {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = program(&[&["tail"], arguments].concat()).env("EVENT_BROKER_URL", &server.url).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for TailProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_there_is_printed_from_where_it_is_asked_for() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(150)).expect(0);
    for (arguments, first, last) in [
        (&["--no-follow"][..], 1, 150),
        (&["--no-follow", "--from", "earliest"], 1, 150),
        (&["--no-follow", "--from", "0"], 1, 150),
        (&["--no-follow", "--from", "140"], 140, 150),
        (&["--no-follow", "--from", "2", "--limit", "120"], 2, 121),
        (&["--from", "earliest", "--limit", "130"], 1, 130),
        (&["--from", "149", "--limit", "2"], 149, 150),
    ] {
        let events = ask(&server, &[&["tail", "--json"], arguments].concat()).expect(0).json();
        let sequences: Vec<_> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
        assert_eq!(sequences, (first..=last).collect::<Vec<_>>(), "{arguments:?}");
    }
    assert_eq!(ask(&server, &["tail", "--no-follow", "--from", "latest"]).expect(0).out, "");
    assert_eq!(ask(&server, &["tail", "--no-follow", "--from", "1000"]).expect(0).out, "");
}

#[test]
fn earliest_is_the_first_event_that_retention_has_left() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(6)).expect(0);
    ask(&server, &["topics", "trim", TOPIC, "--through", "4"]).expect(0);
    for arguments in
        [&["--no-follow"][..], &["--no-follow", "--from", "earliest"], &["--from", "earliest", "--limit", "2"]]
    {
        let events = ask(&server, &[&["tail", "--json"], arguments].concat()).expect(0).json();
        let sequences: Vec<_> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
        assert_eq!(sequences, [5, 6], "{arguments:?}");
    }
    let refused = ask(&server, &["tail", "--no-follow", "--from", "2"]).expect(1);
    assert!(refused.err.contains("earliest: 5\n  resumeOffset: 4"), "{}", refused.err);
}

#[test]
fn people_get_a_line_for_each_event() {
    let server = server();
    let pretty = event_with("first", &json!({"n": 1})).replace(r#"{"n":1}"#, "{\n  \"n\": 1\n}");
    ask(&server, &["publish", &pretty]).expect(0);
    ask(&server, &["publish", &event_with("a second\u{1b}[2J", &json!({"t": "x".repeat(500)}))]).expect(0);
    for arguments in [&["tail", "--no-follow"][..], &["tail", "--from", "earliest", "--limit", "2"]] {
        let out = ask(&server, arguments).expect(0).out;
        let rows: Vec<Vec<_>> = out.lines().map(|line| line.split("  ").collect()).collect();
        assert_eq!(rows.len(), 2, "{out}");
        assert_eq!(rows[0][1..], ["#1", "vendor.tenants.tenant_created.v1", "first", "{\"n\":1}"], "{out}");
        assert_eq!(rows[1][1..4], ["#2", "vendor.tenants.tenant_created.v1", "a second\\u{1b}[2J"], "{out}");
        assert!(rows[1][4].ends_with("x…") && rows[1][4].chars().count() == 201, "{out}");
        assert!(!out.contains('\u{1b}'), "no colours if the output is not a terminal");
    }
    // Programs get each event on one line, whatever the producer's formatting.
    let events = ask(&server, &["tail", "--no-follow", "--json"]).expect(0);
    assert_eq!(events.json()[0]["data"], json!({"n": 1}));
    let followed = ask(&server, &["tail", "--from", "1", "--limit", "2", "--json"]).expect(0);
    assert_eq!(followed.json(), events.json());
}

#[test]
fn filters_narrow_and_widen() {
    let server = server();
    let other = "gts.hyperspot.core.events.type.v1~vendor.users.user_seen.v1";
    feed(&server, &["types", "register"], &json!({"id": other}).to_string()).expect(0);
    let event = |event_type: &str, subject: &str, rest: Value| {
        let mut event = json!({"type": event_type, "source": "shop", "subject": subject, "tenant": TENANT, "data": {}});
        event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        event.to_string()
    };
    let events = [
        event(CREATED, "a", json!({"occurredAt": "2026-01-01T00:00:00Z", "data": {"n": 1}})),
        event(CREATED, "b", json!({"occurredAt": "2026-02-01T00:00:00Z", "source": "till", "correlationId": "c"})),
        event(other, "c", json!({"occurredAt": "2026-03-01T00:00:00Z", "context": {"app": "x y&z"}})),
        event(other, "d", json!({"occurredAt": "2026-04-01T00:00:00Z", "subjectType": "gts.vendor.a.b.c.v1~"})),
        event(
            CREATED,
            "e",
            json!({"occurredAt": "2026-05-01T00:00:00Z", "tenant": "00000000-0000-4000-8000-000000000001"}),
        ),
    ];
    feed(&server, &["publish", "-"], &events.join("\n")).expect(0);
    for (filters, expected) in [
        (&["--type", other][..], "cd"),
        (&["--type", "gts.hyperspot.core.events.type.v1~vendor.*"], "abcde"),
        (&["--type", other, "--type", CREATED, "--subject", "a", "--subject", "d"], "ad"),
        (&["--subject-type", "gts.vendor.a.b.c.v1~"], "d"),
        (&["--source", "till"], "b"),
        (&["--correlation-id", "c"], "b"),
        (&["--context", "app=x y&z"], "c"),
        (&["--tenant", "00000000-0000-4000-8000-000000000001"], "e"),
        (&["--filter", "has(data.n) && data.n == 1"], "a"),
        (&["--since", "2026-02-01T00:00:00Z", "--until", "2026-04-01T02:00:00+02:00"], "bc"),
    ] {
        let found = ask(&server, &[&["tail", "--no-follow", "--json"], filters].concat()).expect(0).json();
        let subjects: String = found.iter().map(|event| event["subject"].as_str().unwrap()).collect();
        assert_eq!(subjects, expected, "{filters:?}");
        let limit = expected.len().to_string();
        let arguments = ["tail", "--json", "--from", "earliest", "--limit", &limit];
        let followed = ask(&server, &[&arguments, filters].concat()).expect(0).json();
        assert_eq!(followed, found, "{filters:?}");
    }
    let refused = ask(&server, &["tail", "--filter", "data.n =="]).expect(1);
    assert!(refused.err.contains("EVENT_BROKER_VALIDATION_ERROR"), "{}", refused.err);
}

#[test]
fn it_goes_on_after_a_restart_without_a_gap_and_without_a_repetition() {
    let mut server = server();
    let address = server.url.trim_start_matches("http://").to_owned();
    feed(&server, &["publish", "-"], &lines(3)).expect(0);
    let mut tail = TailProcess::start(&server, &["--from", "2", "--json"]);
    assert_eq!((tail.next()["sequence"].as_u64(), tail.next()["sequence"].as_u64()), (Some(2), Some(3)));
    let mut expected = 4;
    for is_clean in [true, false] {
        let folder = match is_clean {
            true => {
                server.terminate();
                server.wait().1
            }
            false => server.kill(),
        };
        server = Server::start_at(folder, &address, &[]);
        // These events may be published before the tail has reconnected: it must not miss them.
        feed(&server, &["publish", "-"], &lines(120)).expect(0);
        for _ in 0..120 {
            assert_eq!(tail.next()["sequence"], expected);
            expected += 1;
        }
    }
    tail.child.kill().unwrap();
    let mut said = String::new();
    tail.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("ended; continuing after ").count(), 2, "{said}");
}

#[test]
fn from_latest_means_from_now_on() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(5)).expect(0);
    let mut tail = TailProcess::start(&server, &["--json", "--subject", "wanted"]);
    // Events published during the start may precede the tail's first offset; publish until one follows it.
    let seen = std::thread::spawn(move || tail.next()["sequence"].as_u64().unwrap());
    while !seen.is_finished() {
        ask(&server, &["publish", &line("wanted")]).expect(0);
    }
    assert!(seen.join().unwrap() > 5);
    let reply = ask(&server, &["tail", TOPIC, "--no-follow", "--limit", "1", "--json"]).expect(0).json();
    assert_eq!(reply[0]["sequence"], 1);
}
