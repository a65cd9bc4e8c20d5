//! `publish`: events from every kind of input, stored in order, once.

use super::{ask, event_with, feed, line, lines, program, run, server, subjects};
use crate::http::{CREATED, Server, TENANT, TOPIC};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use tempfile::TempDir;
use uuid::Uuid;

#[test]
fn an_event_comes_from_the_command_line_a_file_or_standard_input() {
    let server = server();
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let one = file(
        "one.json",
        &serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&line("c")).unwrap()).unwrap(),
    );
    let array = file("array.json", &format!("[{},{}]", line("d"), line("e")));
    let ndjson = file("lines.ndjson", &format!("{}\n\n{}\n", line("f"), line("g")));
    let by_flags = ["publish", "--type", CREATED, "--subject", "a", "--tenant", TENANT, "--data", r#"{"n":1.50}"#];
    for (run, stored) in [
        (ask(&server, &by_flags), 1),
        (ask(&server, &["publish", &line("b")]), 1),
        (ask(&server, &["publish", "--file", &one]), 1),
        (ask(&server, &["publish", "--file", &array]), 2),
        (ask(&server, &["publish", "--file", &ndjson]), 2),
        (feed(&server, &["publish", "-"], &line("h")), 1),
        (feed(&server, &["publish"], &line("i")), 1),
        (feed(&server, &["publish", "--file", "-"], &line("j")), 1),
    ] {
        let run = run.expect(0);
        assert_eq!(run.out.lines().count(), stored, "{}", run.out);
        for line in run.out.lines() {
            let words: Vec<_> = line.split(' ').collect();
            assert_eq!((words.len(), words[0], words[1]), (4, "stored", TOPIC), "{line}");
            assert!(words[2].starts_with('#') && Uuid::try_parse(words[3]).is_ok(), "{line}");
        }
    }
    assert_eq!(subjects(&server).concat(), "abcdefghij");
    let first = ask(&server, &["tail", "--no-follow", "--limit", "1", "--json"]).expect(0).out;
    assert!(first.contains(r#""data":{"n":1.50}"#), "data is stored as it is spelt: {first}");
}

#[test]
fn every_flag_is_a_member_of_the_event() {
    let server = server();
    let id = Uuid::new_v4().to_string();
    let flags = [
        ("--source", "source", "shop"),
        ("--subject", "subject", "o-1"),
        ("--subject-type", "subjectType", "gts.vendor.shop.orders.order.v1~"),
        ("--tenant", "tenant", TENANT),
        ("--id", "id", &id),
        ("--topic", "topic", TOPIC),
        ("--occurred-at", "occurredAt", "2026-01-02T03:04:05.006Z"),
        ("--correlation-id", "correlationId", "c-1"),
        ("--causation-id", "causationId", "c-0"),
        ("--deduplication-id", "deduplicationId", "d-1"),
    ];
    let mut arguments = vec!["publish", "--type", CREATED, "--json", "--expected-aggregate-sequence", "0"];
    arguments.extend(flags.iter().flat_map(|(flag, _, value)| [*flag, *value]));
    arguments.extend(["--context", "appId=a=b", "--context", "envId=e"]);
    let answers = ask(&server, &arguments).expect(0).json();
    let event = &answers[0]["event"];
    for (_, member, value) in flags {
        assert_eq!(event[member], value, "{member}");
    }
    assert_eq!(event["context"], json!({"appId": "a=b", "envId": "e"}));
    assert_eq!(event["data"], json!({}));
}

#[test]
fn many_events_go_in_batches_and_keep_their_order() {
    let server = server();
    let run = feed(&server, &["publish", "-", "--json"], &lines(350)).expect(0);
    let answers = run.json();
    assert_eq!(answers.len(), 350);
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!((answer["index"].as_u64(), answer["status"].as_u64()), (Some(number as u64), Some(201)));
        assert_eq!(answer["event"]["sequence"], number as u64 + 1);
    }
    let expected: Vec<_> = (0..350).map(|number| format!("s-{number}")).collect();
    assert_eq!(subjects(&server), expected);
}

#[test]
fn batches_stay_below_a_mebibyte_and_an_event_may_have_almost_one() {
    let server = server();
    let large: String = (0..5).map(|n| event_with(&n.to_string(), &json!({"t": "x".repeat(400_000)})) + "\n").collect();
    let largest = event_with("5", &json!({"t": "x".repeat(1_040_000)}));
    feed(&server, &["publish", "-"], &format!("{large}{largest}\n{}", line("6"))).expect(0);
    assert_eq!(subjects(&server).concat(), "0123456");
}

#[test]
fn a_broker_that_takes_smaller_batches_gets_smaller_ones() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, "modules:\n  event_broker:\n    batch:\n      max_size: 7\n").unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    feed(&server, &["types", "register"], &json!({"id": CREATED}).to_string()).expect(0);
    let events = folder.path().join("events.ndjson");
    std::fs::write(&events, lines(40)).unwrap();
    ask(&server, &["publish", "--file", events.to_str().unwrap()]).expect(0);
    let expected: Vec<_> = (0..40).map(|number| format!("s-{number}")).collect();
    assert_eq!(subjects(&server), expected);
    // With `--atomic all`, the command does not split the events into several batches.
    let run = ask(&server, &["publish", "--file", events.to_str().unwrap(), "--atomic", "all"]).expect(1);
    assert!(run.err.contains("EVENT_BROKER_BATCH_TOO_LARGE"), "{}", run.err);
    assert_eq!(subjects(&server).len(), 40);
}

#[test]
fn what_is_refused_is_named_and_the_exit_is_1() {
    let server = server();
    let bad = json!({"type": "gts.vendor.none.such.v1", "source": "s", "tenant": TENANT, "subject": "x", "data": {}});
    let input = format!("{}\n{bad}\n{}\n", line("a"), line("b"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("events.ndjson");
    std::fs::write(&file, &input).unwrap();
    let file = file.to_str().unwrap();
    let run = ask(&server, &["publish", "--file", file, "--producer-id", "one"]).expect(1);
    assert!(run.err.contains("event-broker: event 2 was refused: ") && run.err.contains("/type"), "{}", run.err);
    assert!(run.err.ends_with("event-broker: 1 of 3 events were refused\n"), "{}", run.err);
    assert_eq!(subjects(&server).concat(), "ab");
    let run = ask(&server, &["publish", "--file", file, "--json", "--atomic", "all"]).expect(1);
    let statuses: Vec<_> = run.json().iter().map(|answer| answer["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [424, 422, 424]);
    assert_eq!(subjects(&server).concat(), "ab", "all or nothing");
    // Unreadable input ends the command, after the readable events before it were published.
    std::fs::write(file, format!("{}\n{{", line("c"))).unwrap();
    let run = ask(&server, &["publish", "--file", file]).expect(1);
    assert!(run.err.contains("is not JSON: ") && run.err.contains("line 2"), "{}", run.err);
    assert!(run.err.contains("1 events were answered before; the next to send is event 2"), "{}", run.err);
    assert_eq!(subjects(&server).concat(), "abc");
}

#[test]
fn the_same_id_again_is_a_duplicate_and_well() {
    let server = server();
    let id = Uuid::new_v4();
    let mut event: serde_json::Value = serde_json::from_str(&line("a")).unwrap();
    event["id"] = json!(id);
    let event = event.to_string();
    assert!(ask(&server, &["publish", &event]).expect(0).out.starts_with("stored "));
    assert_eq!(ask(&server, &["publish", &event]).expect(0).out, format!("duplicate {TOPIC} #1 {id}\n"));
    assert_eq!(ask(&server, &["publish", &event, "--json"]).expect(0).json()[0]["status"], 200);
    // An event of another producer is another event.
    assert!(ask(&server, &["publish", &event, "--producer-id", "p"]).expect(0).out.starts_with("stored "));
}

#[test]
fn slow_input_is_not_held_back() {
    let server = server();
    let mut child =
        program(&["publish", "-"]).env("EVENT_BROKER_URL", &server.url).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 1..=3 {
        writeln!(stdin, "{}", line("s")).unwrap();
        // The next event is not written before the response to this one.
        let answer = answers.next().unwrap().unwrap();
        assert!(answer.contains(&format!(" #{number} ")), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// Forwards requests; cuts the first connection when the response arrives.
fn cutting_once(upstream: &str) -> String {
    let upstream = upstream.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&upstream).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            if number == 0 {
                server.read_exact(&mut [0]).unwrap();
                client.shutdown(Shutdown::Both).unwrap();
            } else {
                std::thread::spawn(move || std::io::copy(&mut server, &mut client));
            }
        }
    });
    url
}

#[test]
fn a_request_repeated_after_a_broken_connection_is_not_a_second_event() {
    let server = server();
    for (input, stored) in [(line("a"), 1), (lines(3), 3)] {
        let before = subjects(&server).len();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("events");
        std::fs::write(&file, input).unwrap();
        let url = cutting_once(&server.url);
        let run = run(&["publish", "--file", file.to_str().unwrap(), "--url", &url]).expect(0);
        assert_eq!(run.out.matches("duplicate ").count(), stored, "the first attempt was stored: {}", run.out);
        assert_eq!(subjects(&server).len(), before + stored);
    }
}
