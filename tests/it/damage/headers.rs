//! A damaged body blocks no operation that needs only the event's header: lag, order, the start of a topic, dead
//! letters.

use super::{EVENTS, event, filled, open, repair, spoil};
use crate::http::{Server, answer};
use crate::scenario::{topic_id, type_id};
use contract::api::*;
use contract::{
    BulkResolveOutcome, BulkResolveRequest, ClaimAnswer, ClaimError, ClaimFailure, ClaimOrder, Completion,
    DeadLetterFilter, GroupReset, Kind, NewClaim, NewConsumer, NewHandler, NewProjection, Offset, ReadOffset,
    RedriveRequest, RepublishOutcome, RepublishRequest, ResetTo, Sequence,
};
use event_broker::{Broker, Clock, ManualClock};
use reqwest::Method;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

const EVENT_COUNT: u64 = EVENTS as u64;
const HANDLER: &str = "billing";
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// A filled folder on which `setup` has run and whose listed events were damaged afterwards; opened again.
async fn damaged(spoilt: &[u128], setup: impl AsyncFn(&Broker)) -> (TempDir, Broker) {
    let folder = Box::pin(filled()).await;
    let broker = Box::pin(open(folder.path())).await;
    Box::pin(setup(&broker)).await;
    Box::pin(reopened_with(broker, folder.path(), spoilt)).await;
    let broker = Box::pin(open(folder.path())).await;
    (folder, broker)
}

async fn reopened_with(broker: Broker, folder: &Path, spoilt: &[u128]) {
    broker.close().await;
    drop(broker);
    spoilt.iter().for_each(|id| spoil(folder, *id));
}

async fn claim(broker: &Broker, id: u128) -> contract::ClaimOutcome {
    broker.claim(NewClaim::of_event(HANDLER, Uuid::from_u128(id)), None).await.unwrap()
}

async fn finish(broker: &Broker, id: u128) {
    let claim = claim(broker, id).await.claim.unwrap();
    broker.complete_claim(&claim.id, Completion::of(claim.token), None).await.unwrap();
}

/// Gives an event up, which makes it a dead letter.
async fn give_up(broker: &Broker, id: u128) {
    let claim = claim(broker, id).await.claim.unwrap();
    let error = ClaimError::new("Broken", "cannot be done");
    broker.fail_claim(&claim.id, ClaimFailure { token: claim.token, error, retryable: Some(false) }).await.unwrap();
}

async fn put_order(broker: &Broker, order: ClaimOrder) {
    let handler = NewHandler { order: Some(order), ..NewHandler::default() };
    broker.put_handler(HANDLER, handler).await.unwrap();
}

async fn open_letters(broker: &Broker) -> Vec<contract::DeadLetter> {
    broker.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap().items
}

#[tokio::test]
async fn the_lag_of_handlers_and_groups_is_known_though_the_next_event_is_damaged() {
    let (_folder, broker) = damaged(&[1], async |broker: &Broker| finish(broker, 2).await).await;
    assert_eq!(broker.handler(HANDLER).await.unwrap().lag, EVENT_COUNT - 1);
    assert_eq!(broker.handlers(None, 100).await.unwrap().items.len(), 1);
    broker.create_consumer(NewConsumer::new("readers", topic_id("default"))).await.unwrap();
    let group = broker.consumer_group("readers").await.unwrap();
    assert_eq!(group.topics[0].lag, EVENT_COUNT);
}

#[tokio::test]
async fn a_damaged_event_behind_a_filter_counts_as_one_to_be_done() {
    let group = async |broker: &Broker| {
        let mut filtered = NewConsumer::new("readers", topic_id("default"));
        filtered.types = vec![type_id("placed").parse().unwrap()];
        broker.create_consumer(filtered).await.unwrap();
    };
    let (_folder, broker) = damaged(&[1, 25, 26, EVENTS], group).await;
    assert_eq!(broker.consumer_group("readers").await.unwrap().topics[0].lag, EVENT_COUNT);
}

#[tokio::test]
async fn a_group_is_reset_to_the_beginning_of_a_topic_whose_first_event_is_damaged() {
    let group = async |broker: &Broker| {
        let consumer = broker.create_consumer(NewConsumer::new("readers", topic_id("default"))).await.unwrap();
        broker.commit_offset(consumer.id, Offset(9)).await.unwrap();
        broker.delete_consumer(consumer.id).await.unwrap();
    };
    let (_folder, broker) = damaged(&[1], group).await;
    let reset = GroupReset { topic: topic_id("default"), to: ResetTo::Earliest };
    let group = broker.reset_group("readers", reset).await.unwrap();
    assert_eq!(group.topics[0].committed_offset, Offset::ZERO);
}

#[tokio::test]
async fn names_that_nobody_uses_are_looked_for_though_the_first_event_is_damaged() {
    let group = async |broker: &Broker| {
        let consumer = broker.create_consumer(NewConsumer::new("readers", topic_id("default"))).await.unwrap();
        broker.commit_offset(consumer.id, Offset(9)).await.unwrap();
        broker.delete_consumer(consumer.id).await.unwrap();
    };
    let (folder, broker) = damaged(&[1], group).await;
    broker.close().await;
    drop(broker);
    let mut config = super::config(folder.path());
    config.claims.unused_days = 1;
    config.maintenance.max_clock_jump_secs = 0;
    let now = event_broker::SystemClock.now();
    let clock = Arc::new(ManualClock::at(now + 3 * DAY_MILLIS));
    let broker = Broker::open_at(config, clock).await.unwrap();
    broker.forget_unused().await.unwrap();
    assert!(broker.consumer_group("readers").await.is_ok(), "the events that the group has read still exist");
}

#[tokio::test]
async fn a_gapless_claim_is_given_behind_a_finished_event_that_is_damaged() {
    let gapless = async |broker: &Broker| {
        put_order(broker, ClaimOrder::Gapless).await;
        finish(broker, 1).await;
    };
    // Events 1, 8 and 15 belong to one aggregate.
    let (_folder, broker) = damaged(&[1, 8], gapless).await;
    assert_eq!(claim(&broker, 8).await.outcome, ClaimAnswer::Claimed);
    assert_eq!(claim(&broker, 15).await.outcome, ClaimAnswer::Held);
}

#[tokio::test]
async fn an_event_is_stale_though_a_damaged_one_lies_before_the_finished_one() {
    let latest = async |broker: &Broker| {
        put_order(broker, ClaimOrder::Latest).await;
        finish(broker, 29).await;
    };
    // Events 1, 8, 15, 22 and 29 belong to one aggregate: one damaged event is the first of a page, another the last.
    let (_folder, broker) = damaged(&[8, 22], latest).await;
    assert_eq!(claim(&broker, 1).await.outcome, ClaimAnswer::Stale);
    assert_eq!(claim(&broker, 15).await.outcome, ClaimAnswer::Stale);
    // Event 2 belongs to another aggregate.
    assert_eq!(claim(&broker, 2).await.outcome, ClaimAnswer::Claimed);
}

#[tokio::test]
async fn the_lag_of_a_projection_is_known_though_the_next_event_is_damaged() {
    let views = async |broker: &Broker| {
        broker.put_projection("view", NewProjection::of_topic(topic_id("default"))).await.unwrap();
        broker.put_projection("all", NewProjection::of_log()).await.unwrap();
    };
    let (_folder, broker) = damaged(&[1], views).await;
    assert_eq!(broker.projection("view").await.unwrap().lag.events, EVENT_COUNT);
    assert!(broker.projection("all").await.unwrap().lag.events >= EVENT_COUNT);
    assert_eq!(broker.projections(None, 100).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn letters_of_damaged_events_are_shown_and_keep_no_others_from_being_redriven() {
    let letters = async |broker: &Broker| {
        for id in [1, 2, 3] {
            give_up(broker, id).await;
        }
    };
    let (_folder, broker) = damaged(&[1, 3], letters).await;
    let shown = open_letters(&broker).await;
    let has_event: Vec<_> =
        shown.iter().map(|dead_letter| (dead_letter.sequence.0, dead_letter.event.is_some())).collect();
    assert_eq!(has_event, [(1, false), (2, true), (3, false)]);
    let refused = broker.redrive(shown[0].id, RedriveRequest::default(), None).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable, "{}", refused.detail());
    for dry_run in [true, false] {
        let order = BulkResolveRequest { dry_run, ..BulkResolveRequest::default() };
        let resolved = broker.redrive_all(order, None).await.unwrap();
        assert_eq!(resolved, BulkResolveOutcome { count: 1, skipped: 2 });
    }
    assert_eq!(open_letters(&broker).await.len(), 2, "no worker could handle them");
    broker.discard(shown[0].id, "damaged".to_owned(), None).await.unwrap();
    let all = BulkResolveRequest { reason: Some("damaged".to_owned()), ..BulkResolveRequest::default() };
    assert_eq!(broker.discard_all(all, None).await.unwrap().count, 1);
}

/// An event that `repair` cut out counts as missing, like one that retention has removed.
#[tokio::test]
async fn bulk_redrive_skips_what_was_lost_to_a_repair_as_a_single_redrive_refuses_it() {
    let letters = async |broker: &Broker| {
        for id in [24, 25, 26] {
            give_up(broker, id).await;
        }
    };
    let (folder, broker) = damaged(&[25], letters).await;
    broker.close().await;
    drop(broker);
    repair(folder.path());
    let broker = open(folder.path()).await;
    let shown = open_letters(&broker).await;
    let single = broker.redrive(shown[1].id, RedriveRequest::default(), None).await.unwrap_err();
    assert_eq!(single.kind(), Kind::Trimmed);
    for dry_run in [true, false] {
        let order = BulkResolveRequest { dry_run, ..BulkResolveRequest::default() };
        let resolved = broker.redrive_all(order, None).await.unwrap();
        assert_eq!(resolved, BulkResolveOutcome { count: 2, skipped: 1 });
    }
    let left = open_letters(&broker).await;
    assert_eq!(left.iter().map(|dead_letter| dead_letter.sequence.0).collect::<Vec<_>>(), [25]);
    let handler = broker.handler(HANDLER).await.unwrap();
    assert_eq!((handler.failed, handler.dead_letters), (2, 1), "an event that cannot be handled is not open work");
    broker.publish(event(EVENTS + 1), None).await.unwrap();
}

/// Republishing stopped at the damaged event after it had appended copies of those before it, and again with each retry.
#[tokio::test]
async fn a_range_with_a_damaged_event_is_republished_once_and_the_event_is_named() {
    let folder = filled().await;
    [25, 26, 30].into_iter().for_each(|id| spoil(folder.path(), id));
    let server = Server::start_in(folder, &[]);
    let topic = topic_id("default");
    let republish = async |to: u64, key: &str, dry_run: bool| {
        let order = json!({"from": 1, "to": to, "target": "topic", "dryRun": dry_run});
        let request = server.request(Method::POST, &format!("/v1/topics/{topic}:republish")).json(&order);
        answer(request.header("Idempotency-Key", key)).await
    };
    let events = async |offset: u64| {
        let (status, page) = server.get(&format!("/v1/events?topic={topic}&offset={offset}&limit=100")).await;
        assert_eq!(status.as_u16(), 200, "{page}");
        page
    };
    let dry = republish(30, "dry", true).await;
    assert_eq!(dry.1, json!({"count": 27, "damaged": [25, 26, 30]}));
    // The last event of the range is damaged: the reply is stored all the same.
    for _ in 0..2 {
        let (status, done) = republish(30, "once", false).await;
        assert_eq!((status.as_u16(), done), (200, json!({"count": 27, "damaged": [25, 26, 30]})));
    }
    assert_eq!(events(EVENT_COUNT).await["items"].as_array().unwrap().len(), 27, "copies are appended once");
    for _ in 0..2 {
        assert_eq!(republish(25, "none", false).await.1["damaged"], json!([25]));
    }
}

/// A member of a shared group.
async fn join(broker: &Broker) -> Uuid {
    let member = NewConsumer::new(HANDLER, topic_id("default")).shared();
    broker.create_consumer(member).await.unwrap().id
}

/// Finishes everything that the member is handed; returns the sequences.
async fn finish_all(broker: &Broker, member: Uuid) -> Vec<u64> {
    let mut done = Vec::new();
    loop {
        let page = broker.read_as(member, ReadOffset::Earliest, 100).await.unwrap();
        if page.items.is_empty() {
            return done;
        }
        for claim in page.claims {
            done.push(claim.sequence.0);
            broker.complete_claim(&claim.id, Completion::of(claim.token), None).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_response_names_the_damaged_events_that_a_group_is_handed_again() {
    let all_done = async |broker: &Broker| {
        let member = join(broker).await;
        assert_eq!(finish_all(broker, member).await.len(), EVENTS as usize);
    };
    let (_folder, broker) = damaged(&[25], all_done).await;
    let order = RepublishRequest::to_group(HANDLER, Sequence(20), Sequence(30));
    let outcome = broker.republish(&topic_id("default"), order).await.unwrap();
    assert_eq!(outcome, RepublishOutcome { count: 10, damaged: vec![Sequence(25)] });
    let member = join(&broker).await;
    let mut again = finish_all(&broker, member).await;
    again.sort_unstable();
    assert_eq!(again, [20, 21, 22, 23, 24, 26, 27, 28, 29, 30]);
    assert_eq!(open_letters(&broker).await.len(), 1);
}

#[tokio::test]
async fn a_shared_group_gives_a_damaged_event_up_and_goes_on_with_other_aggregates() {
    // Event 25 belongs to the aggregate of 4, 11, 18 and 32; event 26 to the next one.
    let (_folder, broker) = damaged(&[1, 25, 26], async |_| ()).await;
    let member = join(&broker).await;
    let mut done = finish_all(&broker, member).await;
    done.sort_unstable();
    // A dead letter holds its aggregate: 1, 8, 15 … and what lies behind 25 and 26 in theirs.
    let expected: Vec<_> =
        (1..=EVENT_COUNT).filter(|id| id % 7 != 1 && !(*id >= 25 && matches!(id % 7, 4 | 5))).collect();
    assert_eq!(done, expected);
    let mut letters = open_letters(&broker).await;
    letters.sort_unstable_by_key(|letter| letter.sequence);
    let shown: Vec<_> = letters.iter().map(|letter| (letter.sequence.0, letter.exc_class.as_str())).collect();
    assert_eq!(shown, [(1, "damaged"), (25, "damaged"), (26, "damaged")]);
    assert!(letters[1].event_error.as_ref().unwrap().contains("sequence 25"), "{:?}", letters[1]);
    broker.discard(letters[1].id, "damaged".to_owned(), None).await.unwrap();
    let page = broker.read_as(member, ReadOffset::Earliest, 100).await.unwrap();
    assert_eq!(page.items[0].sequence, Sequence(32));
}

#[tokio::test]
async fn a_damaged_event_can_be_claimed_by_its_place() {
    let (_folder, broker) = damaged(&[25], async |_| ()).await;
    let by_place = NewClaim::at(HANDLER, topic_id("default"), Sequence(25));
    assert_eq!(broker.claim(by_place, None).await.unwrap().outcome, ClaimAnswer::Claimed);
}

/// The data an operator looks for: which request failed, why, and the trace id that its caller received.
#[tokio::test]
async fn a_5xx_answer_is_a_line_in_the_log() {
    let folder = filled().await;
    spoil(folder.path(), 1);
    let server = Server::start_in(folder, &[]);
    let (status, problem) = server.get(&format!("/v1/events?topic={}&offset=0", topic_id("default"))).await;
    assert_eq!(status.as_u16(), 503, "{problem}");
    let logged = server.logged();
    let line = logged.lines().find(|line| line.contains("a request failed")).unwrap_or_else(|| panic!("{logged}"));
    for part in ["ERROR", "/v1/events", "sequence 1 is damaged", problem["traceId"].as_str().unwrap()] {
        assert!(line.contains(part), "no {part}: {line}");
    }
}
