//! Following a topic, and importing history, over HTTP.

use crate::scripted_broker::{Reply, ScriptedBroker};
use crate::test_broker::{TestBroker, bank, moved};
use bytes::Bytes;
use contract::api::*;
use contract::{Distribution, Kind, NewConsumer, Offset, ReadOffset, Sequence, TopicRead, TrimRequest};
use event_broker_client::{Client, EventStream, ImportCounts, ImportLine, RetryPolicy};
use futures_util::{FutureExt, stream};
use serde_json::json;
use std::time::Duration;

/// Short waits.
const RETRY: RetryPolicy =
    RetryPolicy { tries_max: 4, first_wait: Duration::from_millis(1), wait_max: Duration::from_millis(20) };

async fn publish(server: &TestBroker, count: usize) {
    for _ in 0..count {
        server.publish(moved("a", None, &json!({"account": "a", "amount": 1}))).await;
    }
}

async fn sequences(events: &mut EventStream, count: usize) -> Vec<u64> {
    let mut sequences = Vec::new();
    for _ in 0..count {
        sequences.push(events.next().await.unwrap().event.sequence.get());
    }
    sequences
}

#[tokio::test]
async fn a_stream_has_the_stored_events_and_then_the_new_ones() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 3).await;
    let client = server.client();
    let mut events = client.follow(TopicRead::all(bank()).after(Offset(1))).await.unwrap();
    let first = events.next().await.unwrap();
    let stored = client.read(TopicRead::all(bank()).after(Offset(1))).await.unwrap().items;
    assert_eq!((&first.event, first.claim), (&stored[0], None));
    assert_eq!(first.event.event().unwrap().data.get(), r#"{"account":"a","amount":1}"#);
    assert_eq!(sequences(&mut events, 1).await, [3]);
    // A call that is dropped while it waits loses nothing.
    assert!(events.next().now_or_never().is_none());
    publish(&server, 2).await;
    assert_eq!(sequences(&mut events, 2).await, [4, 5]);
    assert_eq!(events.offset(), ReadOffset::Behind(Offset(5)));
    server.close().await;
}

#[tokio::test]
async fn a_member_of_a_shared_group_gets_its_claims_with_the_stream() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 1).await;
    let client = server.client();
    let member = NewConsumer { distribution: Some(Distribution::Shared), ..NewConsumer::new("g", bank()) };
    let member = client.create_consumer(member).await.unwrap();
    let mut events = client.follow_as(member.id, ReadOffset::Earliest).await.unwrap();
    let streamed = events.next().await.unwrap();
    assert_eq!((streamed.event.sequence, streamed.claim.unwrap().sequence), (Sequence(1), Sequence(1)));
    server.close().await;
}

#[tokio::test]
async fn a_stream_whose_events_were_removed_is_refused() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 3).await;
    let trim = TrimRequest { through: Some(Sequence(2)), before: None, erase: false };
    server.broker.trim_topic(&bank(), trim).await.unwrap();
    let refused = server.client().follow(TopicRead::all(bank()).after(Offset(0))).await.unwrap_err();
    assert_eq!((refused.kind(), refused.earliest()), (Kind::Trimmed, Some(Sequence(3))));
    server.close().await;
}

/// A stream of these messages, which then ends.
fn messages(text: &str) -> Reply {
    Some((200, "content-type: text/event-stream\r\n", text.to_owned()))
}

fn message(sequence: u64) -> String {
    let event = json!({
        "id": "550e8400-e29b-41d4-a716-446655440000", "sequence": sequence, "position": sequence,
        "createdAt": "2025-12-03T12:05:00.000Z",
    });
    format!("id: {sequence}\ndata: {event}\n\n")
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_after_its_last_event() {
    let overloaded = || Some((429, "retry-after: 0\r\n", "{}".to_owned()));
    let problem = json!({"type": "https://e/EVENT_BROKER_UNAVAILABLE", "title": "t", "status": 503, "detail": "d"});
    let gone = json!({"type": "https://e/EVENT_BROKER_TRIMMED", "title": "t", "status": 410, "detail": "gone"});
    let pretend = ScriptedBroker::with(vec![
        overloaded(),
        // The second event is cut off, and the broker's own mark moves the offset.
        messages(&format!("{}id: 2\ndata: {{", message(1))),
        None,
        overloaded(),
        messages(&format!("{}: idle\nid: 7\n\n", message(2))),
        messages(&format!("event: problem\ndata: {problem}\n\n")),
        messages(&format!("{}event: problem\ndata: {gone}\n\n", message(8))),
    ]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    let mut events = client.follow(TopicRead::all(bank()).after(Offset(0))).await.unwrap();
    assert_eq!(sequences(&mut events, 3).await, [1, 2, 8]);
    let refused = events.next().await.unwrap_err();
    assert_eq!((refused.kind(), refused.detail()), (Kind::Trimmed, "gone"));
    let asked = pretend.asked();
    let offsets: Vec<_> = asked.iter().map(|line| line.rsplit_once("offset=").unwrap().1).collect();
    assert_eq!(offsets, ["0", "0", "1", "1", "1", "7", "7"], "{asked:?}");
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_is_a_failure_after_enough_tries() {
    let pretend = ScriptedBroker::with(vec![None, None, None, None]);
    let client = Client::new(&pretend.url).unwrap().retrying(RETRY);
    let failed = client.follow(TopicRead::all(bank())).await.unwrap_err();
    assert_eq!((failed.kind(), pretend.asked().len()), (Kind::Unavailable, 4));
}

#[tokio::test]
async fn an_import_reports_refused_lines_and_counts_the_rest() {
    let server = TestBroker::set(Vec::new()).await;
    let line = |id: u128| {
        let mut event = moved("a", None, &json!({"account": "a", "amount": 1}));
        event.id = Some(uuid::Uuid::from_u128(id));
        serde_json::to_string(&event).unwrap()
    };
    let text = [line(1), "{".to_owned(), line(2), line(1)].join("\n");
    // In pieces that end within lines.
    let pieces: Vec<_> = text.as_bytes().chunks(50).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let client = server.client();
    let mut report = client.import(stream::iter(pieces)).await.unwrap();
    let (mut refused, mut last) = (Vec::new(), ImportCounts::default());
    while let Some(line) = report.next().await.unwrap() {
        match line {
            ImportLine::Refused { line, error } => refused.push((line, error.kind())),
            ImportLine::Progress(counts) => last = counts,
        }
    }
    assert_eq!(refused, [(2, Kind::Malformed)]);
    let counts =
        ImportCounts { lines: 4, imported: 2, duplicates: 1, failed: 1, done: true, ..ImportCounts::default() };
    assert_eq!(last, counts);
    let ids: Vec<_> =
        client.read(TopicRead::all(bank())).await.unwrap().items.iter().map(|it| it.id.as_u128()).collect();
    assert_eq!(ids, [1, 2]);
    // An event as the broker has it is a line, too.
    let exported = client.read(TopicRead::all(bank())).await.unwrap().items[0].text.clone();
    let other = TestBroker::set(Vec::new()).await;
    let mut report = other.client().import(stream::iter([Ok(exported)])).await.unwrap();
    while report.next().await.unwrap().is_some() {}
    assert_eq!(other.client().event(uuid::Uuid::from_u128(1)).await.unwrap().sequence, Sequence(1));
    server.close().await;
    other.close().await;
}

#[tokio::test]
async fn an_import_that_does_not_reach_its_end_is_a_failure() {
    let progress = json!({"lines": 5, "imported": 5, "duplicates": 0, "failed": 0, "done": false});
    let problem = json!({"error": {"type": "https://e/EVENT_BROKER_OVERLOADED", "status": 429, "detail": "full"}});
    for (report, kind, detail) in [
        (format!("{progress}\n"), Kind::Unavailable, "The broker ended the import early: repeat it as a whole."),
        (format!("{problem}\n{progress}\n"), Kind::Overloaded, "full"),
    ] {
        let pretend = ScriptedBroker::with(vec![Some((200, "", report))]);
        let mut report = Client::new(&pretend.url).unwrap().import(stream::iter([Ok("{}\n".into())])).await.unwrap();
        let failed = loop {
            match report.next().await {
                Ok(line) => assert!(line.is_some(), "the import counts as complete"),
                Err(failed) => break failed,
            }
        };
        assert_eq!((failed.kind(), failed.detail()), (kind, detail));
        assert_eq!(pretend.asked(), ["POST /v1/events:import {}"]);
    }
}
