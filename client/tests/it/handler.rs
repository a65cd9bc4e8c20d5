//! The handler runner: order, parallel work, failures, lost claims, lost responses, draining, resuming.

use crate::lossy_proxy::LossyProxy;
use crate::test_broker::{Deadline, TestBroker, bank, moved};
use contract::api::*;
use contract::{
    Claim, ClaimError, ClaimFailure, ClaimOrder, ClaimStatus, Completion, DeadLetterFilter, NewHandler, RedriveRequest,
    StoredEvent, TopicRead,
};
use event_broker_client::handler::{
    HandlerError, HandlerOptions, HandlerRunner, RunnerState, StartPosition, WorkDivision, WorkError, WorkOutcome,
    WorkOutput, once,
};
use event_broker_client::{Client, RetryPolicy};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Barrier, mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn options() -> HandlerOptions {
    HandlerOptions { recheck: Duration::from_millis(50), sweep: Duration::from_millis(50), ..HandlerOptions::default() }
}

/// A runner in a separate task.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), HandlerError>>,
}

impl Running {
    pub(crate) fn start(runner: HandlerRunner) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runner.run(async { drop(stopped.await) }));
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        tokio::time::timeout(PATIENCE, self.task).await.expect("the runner does not stop").unwrap().unwrap();
    }
}

/// A record of the work, in order.
#[derive(Clone)]
pub(crate) struct Noted {
    notes: mpsc::UnboundedSender<(String, u64, Claim)>,
}

pub(crate) type Notes = mpsc::UnboundedReceiver<(String, u64, Claim)>;

impl Noted {
    pub(crate) fn new() -> (Self, Notes) {
        let (notes, read) = mpsc::unbounded_channel();
        (Self { notes }, read)
    }

    pub(crate) fn note(&self, event: &StoredEvent, claim: Claim) {
        self.notes.send((subject(event), event.sequence.get(), claim)).unwrap();
    }
}

fn subject(event: &StoredEvent) -> String {
    event.event().unwrap().subject.unwrap()
}

pub(crate) async fn next(notes: &mut Notes) -> (String, u64, Claim) {
    tokio::time::timeout(PATIENCE, notes.recv()).await.expect("no event was done").unwrap()
}

pub(crate) async fn publish(server: &TestBroker, subjects: &[&str]) {
    for subject in subjects {
        server.publish(moved(subject, None, &json!({"account": subject, "amount": 1}))).await;
    }
}

/// Waits until the handler's group has committed this offset.
pub(crate) async fn committed(server: &TestBroker, handler: &str, tail: u64) {
    let asking = async {
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        loop {
            beat.tick().await;
            let group = server.broker.consumer_group(handler).await;
            if group.is_ok_and(|group| group.topics.iter().any(|it| it.committed_offset.get() >= tail)) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the offset is not committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_keep_their_order_while_many_are_worked_on_at_a_time() {
    let server = TestBroker::set(Vec::new()).await;
    for _ in 0..20 {
        publish(&server, &["a", "b", "c"]).await;
    }
    let (noted, mut notes) = Noted::new();
    // No work finishes before three events are worked on.
    let gate = Arc::new(Barrier::new(3));
    let effect = move |event: StoredEvent, claim: Claim| {
        let (noted, gate) = (noted.clone(), Arc::clone(&gate));
        async move {
            gate.wait().await;
            noted.note(&event, claim);
            Ok::<_, String>(())
        }
    };
    let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options(), effect));
    let mut by_subject = HashMap::<_, Vec<u64>>::new();
    for _ in 0..60 {
        let (subject, sequence, claim) = next(&mut notes).await;
        assert!(claim.attempt == 1 && claim.sequence.get() == sequence);
        by_subject.entry(subject).or_default().push(sequence);
    }
    assert!(by_subject.values().all(|it| it.len() == 20 && it.is_sorted()), "{by_subject:?}");
    committed(&server, "h", 60).await;
    running.stop().await;
    assert!(notes.try_recv().is_err(), "an event was done twice");
    assert_eq!(server.broker.handler("h").await.unwrap().in_flight, 0);
    assert!(server.broker.consumers(Some("h"), None, 10).await.unwrap().items.is_empty(), "the member did not leave");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn started_again_it_goes_on_behind_the_committed_offset() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "b"]).await;
    for round in 0..3 {
        let (noted, mut notes) = Noted::new();
        let effect = move |event: StoredEvent, claim| {
            noted.note(&event, claim);
            async { Ok::<_, String>(()) }
        };
        let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options(), effect));
        if round > 0 {
            publish(&server, &["a", "b"]).await;
        }
        let mut sequences = [next(&mut notes).await.1, next(&mut notes).await.1];
        sequences.sort_unstable();
        assert_eq!(sequences, [2 * round + 1, 2 * round + 2]);
        committed(&server, "h", 2 * round + 2).await;
        running.stop().await;
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_begins_where_it_is_told_and_takes_what_its_filter_takes() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "b"]).await;
    let (noted, mut notes) = Noted::new();
    let effect = move |event: StoredEvent, claim| {
        noted.note(&event, claim);
        async { Ok::<_, String>(()) }
    };
    let options =
        HandlerOptions { start: StartPosition::Latest, filter: Some("subject != 'b'".to_owned()), ..options() };
    let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options, effect));
    // The moment of its start cannot be observed: it works on whatever is published later.
    let (_, first, _) = loop {
        publish(&server, &["b", "a"]).await;
        if let Ok(done) = tokio::time::timeout(Duration::from_millis(20), next(&mut notes)).await {
            break done;
        }
    };
    publish(&server, &["b", "a", "b"]).await;
    let tail = server.broker.read(TopicRead::all(bank())).await.unwrap().tail.get();
    committed(&server, "h", tail).await;
    running.stop().await;
    let mut done = vec![first];
    done.extend(std::iter::from_fn(|| notes.try_recv().ok()).map(|it| it.1));
    assert!(first > 2 && done.iter().all(|sequence| sequence % 2 == 0), "{done:?}");
    assert_eq!(done.last(), Some(&(tail - 1)));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_told_by_class_and_message_and_tried_again_until_it_is_given_up() {
    let server = TestBroker::set(Vec::new()).await;
    let terms = NewHandler { max_attempts: Some(3), backoff: Some("PT0.02S".parse().unwrap()), ..Default::default() };
    server.broker.put_handler("h", terms).await.unwrap();
    publish(&server, &["panics", "odd", "for good", "fine"]).await;
    let effect = |event: StoredEvent, claim: Claim| async move {
        match subject(&event).as_str() {
            "panics" if claim.attempt < 3 => panic!("out of my depth"),
            "odd" => Err("x".parse::<u32>().map_err(Box::<dyn std::error::Error + Send + Sync>::from).unwrap_err()),
            "for good" => Err(WorkError::new("Declined", "no funds").for_good().into()),
            _ => Ok(()),
        }
    };
    let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options(), effect));
    committed(&server, "h", 4).await;
    running.stop().await;
    let letters = server.broker.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().items;
    let mut told: Vec<_> =
        letters.iter().map(|it| (it.exc_class.as_str(), it.exc_msg.as_str(), it.attempts.len())).collect();
    told.sort_unstable();
    assert_eq!(told, [("Declined", "no funds", 1), ("Error", "invalid digit found in string", 3)]);
    assert_eq!(server.broker.handler("h").await.unwrap().failed, 0);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_holds_its_own_aggregate_only_and_goes_on_when_it_is_dealt_with() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "b", "a", "b", "a"]).await;
    let (noted, mut notes) = Noted::new();
    let is_mended = Arc::new(Mutex::new(false));
    let mended = Arc::clone(&is_mended);
    let effect = move |event: StoredEvent, claim| {
        let is_bad = event.sequence.get() == 1 && !*mended.lock().unwrap();
        if !is_bad {
            noted.note(&event, claim);
        }
        async move { if is_bad { Err(WorkError::new("Bad", "no").for_good()) } else { Ok(()) } }
    };
    // The window is smaller than the number of events: waiting events must not fill it.
    let options = HandlerOptions { order: Some(ClaimOrder::Gapless), window_events: 1, parallel: 1, ..options() };
    let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options, effect));
    assert_eq!([next(&mut notes).await.1, next(&mut notes).await.1], [2, 4]);
    publish(&server, &["b", "a"]).await;
    assert_eq!(next(&mut notes).await.1, 6);
    *is_mended.lock().unwrap() = true;
    let letter = server.broker.dead_letters(&DeadLetterFilter::default(), None, 10).await.unwrap().items.remove(0);
    server.broker.redrive(letter.id, RedriveRequest::default(), None).await.unwrap();
    for sequence in [1, 3, 5, 7] {
        assert_eq!(next(&mut notes).await.1, sequence);
    }
    committed(&server, "h", 7).await;
    running.stop().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_lost_cancels_the_work() {
    struct Cut(mpsc::UnboundedSender<()>);
    impl Drop for Cut {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let server = TestBroker::set(Vec::new()).await;
    let terms = NewHandler { backoff: Some("PT0S".parse().unwrap()), ..NewHandler::default() };
    server.broker.put_handler("h", terms).await.unwrap();
    publish(&server, &["a"]).await;
    let (noted, mut notes) = Noted::new();
    let (cut, mut was_cut) = mpsc::unbounded_channel();
    let effect = move |event: StoredEvent, claim: Claim| {
        let is_first = claim.attempt == 1;
        noted.note(&event, claim);
        let guard = Cut(cut.clone());
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            std::mem::forget(guard);
            Ok::<_, String>(())
        }
    };
    let options = HandlerOptions { lease: Some("PT0.6S".parse().unwrap()), ..options() };
    let running = Running::start(HandlerRunner::new(server.client(), "h", bank(), options, effect));
    let first = next(&mut notes).await.2;
    // Heartbeats keep the claim: no other worker gets it even after the first lease would have expired.
    let leased_until = first.lease_expires_at.unwrap();
    let deadline = Deadline::begin();
    loop {
        deadline.check("heartbeats");
        let claim = server.broker.open_claim(&first.id).await.unwrap();
        assert_eq!((claim.token, claim.status), (first.token, ClaimStatus::Claimed));
        if claim.lease_expires_at.unwrap().millis() > leased_until.millis() + 600 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // Another client ends the claim.
    let failure = ClaimFailure { token: first.token, error: ClaimError::new("X", "x"), retryable: None };
    server.broker.fail_claim(&first.id, failure).await.unwrap();
    tokio::time::timeout(PATIENCE, was_cut.recv()).await.expect("the work continues").unwrap();
    let second = next(&mut notes).await.2;
    assert!(second.token > first.token && second.attempt == 2);
    committed(&server, "h", 1).await;
    running.stop().await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_it_finishes_its_work_or_hands_it_back() {
    for (drain, status) in [(PATIENCE, None), (Duration::ZERO, Some(ClaimStatus::Released))] {
        let server = TestBroker::set(Vec::new()).await;
        publish(&server, &["a", "a"]).await;
        let (noted, mut notes) = Noted::new();
        let (go, gone) = tokio::sync::watch::channel(false);
        let effect = move |event: StoredEvent, claim| {
            noted.note(&event, claim);
            let mut gone = gone.clone();
            async move { gone.wait_for(|go| *go).await.map(drop) }
        };
        let runner = HandlerRunner::new(server.client(), "h", bank(), HandlerOptions { drain, ..options() }, effect);
        let mut state = runner.state();
        let running = Running::start(runner);
        let claim = next(&mut notes).await.2;
        drop(running.stop);
        state.wait_for(|state| *state == RunnerState::Draining).await.unwrap();
        if status.is_none() {
            go.send_replace(true);
        }
        tokio::time::timeout(PATIENCE, running.task).await.unwrap().unwrap().unwrap();
        let open = server.broker.open_claim(&claim.id).await.ok();
        assert_eq!(open.as_ref().map(|claim| claim.status), status);
        // No attempt is counted: the next worker has the first one.
        assert_eq!(open.map(|claim| (claim.attempt, claim.error)), status.map(|_| (0, None)));
        assert!(notes.try_recv().is_err(), "an event was started after the stop request");
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_neither_stalls_the_work_nor_doubles_it() {
    use WorkDivision::{ByClaim, ByGroup};
    for (division, wanted) in [
        (ByClaim, "POST /v1/claims HTTP"),
        (ByClaim, ":done HTTP"),
        (ByClaim, ":fail HTTP"),
        (ByClaim, "GET /v1/events:poll"),
        (ByClaim, "POST /v1/consumers"),
        (ByGroup, ":done HTTP"),
        (ByGroup, ":fail HTTP"),
        (ByGroup, "GET /v1/events:poll"),
    ] {
        let server = TestBroker::set(Vec::new()).await;
        // The lease is so long that the test fails if it has to wait for its end.
        let (lease, backoff) = (Some("PT1H".parse().unwrap()), Some("PT0S".parse().unwrap()));
        server.broker.put_handler("h", NewHandler { lease, backoff, ..NewHandler::default() }).await.unwrap();
        publish(&server, &["a", "b", "a"]).await;
        let meddler = LossyProxy::before(&server.url, wanted).await;
        let (noted, mut notes) = Noted::new();
        let effect = move |event: StoredEvent, claim: Claim| {
            let fails = event.sequence.get() == 2 && claim.attempt == 1;
            if !fails {
                noted.note(&event, claim);
            }
            async move { if fails { Err("not yet") } else { Ok(()) } }
        };
        let pause =
            RetryPolicy { tries_max: 1, first_wait: Duration::from_millis(5), wait_max: Duration::from_millis(20) };
        let options = HandlerOptions { pause, division, ..options() };
        let client = Client::new(&meddler.url).unwrap();
        let running = Running::start(HandlerRunner::new(client, "h", bank(), options, effect));
        committed(&server, "h", 3).await;
        running.stop().await;
        let mut sequences: Vec<_> = std::iter::from_fn(|| notes.try_recv().ok()).map(|it| it.1).collect();
        sequences.sort_unstable();
        assert_eq!(sequences, [1, 2, 3], "{wanted}");
        assert!(meddler.kept_back() > 0, "{wanted}: no response was dropped");
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runners_share_the_work_and_none_is_done_twice() {
    for division in [WorkDivision::ByClaim, WorkDivision::ByGroup] {
        let server = TestBroker::set(Vec::new()).await;
        let (noted, mut notes) = Noted::new();
        let start = |owner: &str| {
            let noted = noted.clone();
            let effect = move |event: StoredEvent, claim| {
                noted.note(&event, claim);
                async { Ok::<_, String>(()) }
            };
            let options = HandlerOptions { owner: owner.to_owned(), division, parallel: 3, ..options() };
            Running::start(HandlerRunner::new(server.client(), "h", bank(), options, effect))
        };
        let running = [start("one"), start("two")];
        for _ in 0..25 {
            publish(&server, &["a", "b", "c", "d"]).await;
        }
        committed(&server, "h", 100).await;
        for one in running {
            one.stop().await;
        }
        let mut by_subject = HashMap::<_, Vec<u64>>::new();
        while let Ok((subject, sequence, _)) = notes.try_recv() {
            by_subject.entry(subject).or_default().push(sequence);
        }
        // No runner starts an event of an aggregate before the previous one is settled by either runner.
        assert!(by_subject.values().all(|it| it.is_sorted_by(|one, other| one < other)), "{by_subject:?}");
        assert_eq!(by_subject.values().map(Vec::len).sum::<usize>(), 100, "{division:?}: {by_subject:?}");
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_for_good_ends_the_runner() {
    let server = TestBroker::set(Vec::new()).await;
    let effect = |_: StoredEvent, _: Claim| async { Ok::<_, String>(()) };
    let nowhere = "gts.hx.core.events.topic.v1~vendor.nowhere.v1".parse().unwrap();
    let runner = HandlerRunner::new(server.client(), "h", nowhere, options(), effect);
    let refused = tokio::time::timeout(PATIENCE, runner.run(std::future::pending())).await.unwrap().unwrap_err();
    assert!(refused.to_string().starts_with("the broker refuses handler h: EVENT_BROKER_"), "{refused}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_event_is_worked_on_once_however_it_comes() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, &["a", "a", "a"]).await;
    let events = server.broker.read(TopicRead::all(bank())).await.unwrap().items;
    let (client, options) = (server.client(), options());
    let fine = |_: StoredEvent, _: Claim| async { Ok::<_, String>(WorkOutput::default()) };
    let fails = |_: StoredEvent, _: Claim| async { Err::<(), _>("no") };
    let mut worked = Vec::new();
    for index in [1, 0, 1] {
        worked.push(once(&client, "h", events[index].clone(), &options, fine).await.unwrap());
    }
    assert_eq!(worked, [WorkOutcome::Done, WorkOutcome::Stale, WorkOutcome::AlreadyDone]);
    let later = once(&client, "h", events[2].clone(), &options, fails).await.unwrap();
    assert!(matches!(later, WorkOutcome::Later(wait) if wait > Duration::from_millis(500)), "{later:?}");
    // Another worker holds it.
    let held = server.broker.claim(contract::NewClaim::of_event("other", events[0].id), None).await.unwrap();
    let other = once(&client, "other", events[0].clone(), &options, fine).await.unwrap();
    assert!(matches!(other, WorkOutcome::Later(_)), "{other:?}");
    let held = held.claim.unwrap();
    server.broker.complete_claim(&held.id, Completion::of(held.token), None).await.unwrap();
    server.close().await;
}
