//! Where a handler's runner starts, and where it resumes.

use crate::handler::{Noted, Notes, Running, committed, next, options, publish};
use crate::test_broker::{Deadline, TestBroker, bank};
use contract::api::*;
use contract::{Claim, NewConsumer, Offset, Sequence, StoredEvent};
use event_broker_client::handler::{HandlerOptions, HandlerRunner, StartPosition};
use std::time::Duration;

/// A runner of handler `h` that does every event at once.
fn start(server: &TestBroker, start: StartPosition) -> (Running, Notes) {
    let (noted, notes) = Noted::new();
    let effect = move |event: StoredEvent, claim: Claim| {
        noted.note(&event, claim);
        async { Ok::<_, String>(()) }
    };
    let options = HandlerOptions { start, ..options() };
    (Running::start(HandlerRunner::new(server.client(), "h", bank(), options, effect)), notes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_started_at_the_tail_resumes_there_although_it_had_no_event() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "b"]).await;
    let (running, _) = start(&server, StartPosition::Latest);
    committed(&server, "h", 2).await;
    running.stop().await;
    publish(&server, &["a", "b"]).await;
    let (running, mut notes) = start(&server, StartPosition::Latest);
    let mut done = [next(&mut notes).await.1, next(&mut notes).await.1];
    done.sort_unstable();
    assert_eq!(done, [3, 4]);
    running.stop().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_started_at_the_tail_of_an_empty_topic_resumes_at_its_first_event() {
    for is_killed in [false, true] {
        let server = TestBroker::set(Vec::new()).await;
        match is_killed {
            // What a runner leaves behind that is killed before its first event.
            true => {
                let member = server.broker.create_consumer(NewConsumer::new("h", bank())).await.unwrap();
                server.broker.commit_offset(member.id, Offset::ZERO).await.unwrap();
            }
            false => {
                let deadline = Deadline::begin();
                // Without members the group exists only if the runner has committed before it stopped.
                while server.broker.consumer_group("h").await.is_err() {
                    deadline.check("the commit of the start");
                    let (running, _) = start(&server, StartPosition::Latest);
                    let mut beat = tokio::time::interval(Duration::from_millis(10));
                    while server.broker.consumer_group("h").await.is_err() {
                        deadline.check("the group");
                        beat.tick().await;
                    }
                    running.stop().await;
                }
            }
        }
        publish(&server, &["a"]).await;
        let (running, mut notes) = start(&server, StartPosition::Latest);
        assert_eq!(next(&mut notes).await.1, 1, "killed: {is_killed}");
        running.stop().await;
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_next_events_were_trimmed_continues_with_the_first_stored_event() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "b", "c", "d"]).await;
    let member = server.broker.create_consumer(NewConsumer::new("h", bank())).await.unwrap();
    server.broker.commit_offset(member.id, Offset(2)).await.unwrap();
    server.broker.delete_consumer(member.id).await.unwrap();
    server.broker.trim(&bank(), Sequence(4)).await.unwrap();
    publish(&server, &["e"]).await;
    let (running, mut notes) = start(&server, StartPosition::Earliest);
    assert_eq!(next(&mut notes).await.1, 5);
    committed(&server, "h", 5).await;
    running.stop().await;
    server.close().await;
}
