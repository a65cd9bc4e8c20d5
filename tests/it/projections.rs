//! Projections: checkpoints, generations, lag, waiting, and what a restart preserves.

use crate::scenario::{check, check_alone, topic_id, type_id};
use contract::api::*;
use contract::{
    Generation, Kind, NewCheckpoint, NewEvent, NewEventType, NewProjection, NewTopic, Offset, Projection,
    RegisterOutcome, StreamingOptions, StreamingSetting, limits,
};
use event_broker::{Broker, Config};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EVENTS: &str = "
        topic orders                                -> created
        topic parcels                               -> created
        type placed topic=orders                    -> created
        publish placed a                            -> created 1 aggregate 1
        publish placed a                            -> created 2 aggregate 2
        publish placed b                            -> created 3 aggregate 1
";

fn with_events(text: &str) {
    check(&format!("{EVENTS}{text}"));
}

#[test]
fn a_projection_is_registered_once_and_may_change_its_filter_alone() {
    with_events(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        projection p topic=orders                   -> known orders 0 of generation 1
        advance 1000
        projection p topic=orders                   -> known orders 0 of generation 1
        touched p                                   -> created -1000 updated -1000
        checkpoint p 2                              -> orders 2 of generation 1
        projection p topic=orders cel=has(data)     -> known orders 2 of generation 1 filtered
        touched p                                   -> created -1000 updated 0
        projection p topic=parcels                  -> ALREADY_EXISTS
        projection p log                            -> ALREADY_EXISTS
        projection all log                          -> created log 0 of generation 1
        projection all topic=orders                 -> ALREADY_EXISTS
        projection all log cel=has(data)            -> known log 0 of generation 1 filtered
        projection p                                -> orders 2 of generation 1 filtered
        projection nobody                           -> NOT_FOUND
    ",
    );
}

#[test]
fn a_projection_that_breaks_a_rule_is_refused_and_leaves_nothing() {
    let long = "x".repeat(513);
    with_events(&format!(
        "
        projection (none) topic=orders              -> VALIDATION_ERROR /name
        projection a(control)b topic=orders         -> VALIDATION_ERROR /name
        projection a,b topic=orders                 -> VALIDATION_ERROR /name
        projection a:b topic=orders                 -> VALIDATION_ERROR /name
        projection {long} topic=orders              -> VALIDATION_ERROR /name
        projection p topic=nowhere                  -> VALIDATION_ERROR /topic
        projection p cel=has(data)                  -> VALIDATION_ERROR /topic
        projection p topic=orders log               -> VALIDATION_ERROR /log
        projection p topic=orders cel=data. ==      -> VALIDATION_ERROR /filter
        projection p topic=orders cel=nonsense == 1 -> VALIDATION_ERROR /filter
        projection a,b log topic=orders cel=(       -> VALIDATION_ERROR /name /log /filter
        projections                                 -> end
    "
    ));
}

#[test]
fn a_checkpoint_moves_forward_only_by_who_knows_where_it_is() {
    with_events(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        checkpoint p 0                              -> orders 0 of generation 1
        checkpoint p 2                              -> orders 2 of generation 1
        checkpoint p 2                              -> orders 2 of generation 1
        checkpoint p 1                              -> INVALID_STATE actual 2
        checkpoint p 4                              -> VALIDATION_ERROR /offset
        checkpoint p 3 expected=1                   -> INVALID_STATE actual 2
        checkpoint p 3 expected=3                   -> INVALID_STATE actual 2
        checkpoint p 1 expected=2                   -> INVALID_STATE actual 2
        checkpoint p 4 expected=2                   -> VALIDATION_ERROR /offset
        checkpoint p 3 generation=2                 -> INVALID_STATE actual 2
        checkpoint p 3 generation=0                 -> INVALID_STATE actual 2
        checkpoint p 3 expected=2 generation=1      -> orders 3 of generation 1
        checkpoint p 3 expected=2 generation=1      -> orders 3 of generation 1
        checkpoint p 3 expected=2 generation=2      -> INVALID_STATE actual 3
        checkpoint nobody 1                         -> NOT_FOUND
        publish placed b                            -> created 4 aggregate 2
        checkpoint p 4 expected=3                   -> orders 4 of generation 1
    ",
    );
}

#[test]
fn a_reset_begins_a_generation_and_the_one_before_counts_no_more() {
    with_events(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        checkpoint p 3 generation=1                 -> orders 3 of generation 1
        begin p 4                                   -> VALIDATION_ERROR /offset
        begin p 1                                   -> orders 1 of generation 2 from 1
        checkpoint p 3 generation=1                 -> INVALID_STATE actual 1
        checkpoint p 1 generation=1                 -> INVALID_STATE actual 1
        checkpoint p 2 generation=2                 -> orders 2 of generation 2 from 1
        begin p 3                                   -> orders 3 of generation 3 from 3
        begin p 3                                   -> orders 3 of generation 4 from 3
        begin p 0                                   -> orders 0 of generation 5
        begin nobody 0                              -> NOT_FOUND
        end p                                       -> deleted
        end p                                       -> NOT_FOUND
        projection p                                -> NOT_FOUND
        projection p topic=parcels                  -> created parcels 0 of generation 6
    ",
    );
}

#[test]
fn a_worker_of_a_deleted_projection_is_refused_by_the_next_one_of_its_name() {
    with_events(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        checkpoint p 2 generation=1                 -> orders 2 of generation 1
        end p                                       -> deleted
        checkpoint p 3 generation=1                 -> NOT_FOUND
        projection p topic=orders                   -> created orders 0 of generation 2
        projection p topic=orders                   -> known orders 0 of generation 2
        projection q topic=orders                   -> created orders 0 of generation 1
        checkpoint p 3 generation=1                 -> INVALID_STATE actual 0
        checkpoint p 3 generation=2                 -> orders 3 of generation 2
        begin p 0                                   -> orders 0 of generation 3
        end p                                       -> deleted
        crash
        projection p topic=orders                   -> created orders 0 of generation 4
        checkpoint p 3 generation=1                 -> INVALID_STATE actual 0
        end p                                       -> deleted
        trim orders 3                               -> removed 3
        reopen
        projection p log                            -> created log 0 of generation 5
        end p                                       -> deleted
        rebuild
        projection p topic=parcels                  -> created parcels 0 of generation 6
        projection fresh topic=parcels              -> created parcels 0 of generation 1
    ",
    );
}

#[test]
fn the_lag_is_what_is_not_applied_and_its_age() {
    check(
        "
        topic orders                                -> created
        type placed topic=orders                    -> created
        type other                                  -> created
        projection p topic=orders                   -> created orders 0 of generation 1
        lag p                                       -> 0 for 0 s
        publish placed a                            -> created 1 aggregate 1
        lag p                                       -> 1 for 0 s
        advance 1999
        publish placed a                            -> created 2 aggregate 2
        lag p                                       -> 2 for 1 s
        advance 5001
        lag p                                       -> 2 for 7 s
        checkpoint p 1                              -> orders 1 of generation 1
        lag p                                       -> 1 for 5 s
        publish other a                             -> created 1 aggregate 1
        lag p                                       -> 1 for 5 s
        checkpoint p 2                              -> orders 2 of generation 1
        lag p                                       -> 0 for 0 s
        begin p 0                                   -> orders 0 of generation 2
        lag p                                       -> 2 for 7 s
        trim orders 1                               -> removed 1
        lag p                                       -> 2 for 5 s
        trim orders 2                               -> removed 1
        lag p                                       -> 2 for 0 s
        lag nobody                                  -> NOT_FOUND
    ",
    );
}

#[test]
fn a_projection_of_the_log_counts_positions_and_lags_by_events_alone() {
    check(
        "
        topic orders                                -> created
        type placed topic=orders                    -> created
        projection all log                          -> created log 0 of generation 1
        lag all                                     -> 0 for 0 s
        publish placed a                            -> created 1 aggregate 1
        advance 3000
        lag all                                     -> 5 for 3 s
        checkpoint all 4                            -> log 4 of generation 1
        lag all                                     -> 2 for 3 s
        checkpoint all 5                            -> log 5 of generation 1
        lag all                                     -> 0 for 0 s
        checkpoint all 9                            -> VALIDATION_ERROR /offset
        checkpoint all 7                            -> log 7 of generation 1
        begin all 9                                 -> VALIDATION_ERROR /offset
        begin all 2                                 -> log 2 of generation 2 from 2
        lag all                                     -> 7 for 3 s
    ",
    );
}

#[test]
fn projections_come_back_from_a_checkpoint_and_from_the_log_alike() {
    let after = "
        projection p                                -> orders 2 of generation 2 from 1
        touched p                                   -> created -3000 updated 0
        projection f                                -> parcels 0 of generation 1 filtered
        projection all                              -> log 3 of generation 1
        projections                                 -> all f p end
        checkpoint p 3 generation=1                 -> INVALID_STATE actual 2
        checkpoint p 1                              -> INVALID_STATE actual 2
    ";
    with_events(&format!(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        projection f topic=parcels                  -> created parcels 0 of generation 1
        projection f topic=parcels cel=has(data)    -> known parcels 0 of generation 1 filtered
        projection all log                          -> created log 0 of generation 1
        projection gone topic=orders                -> created orders 0 of generation 1
        advance 1000
        checkpoint p 3                              -> orders 3 of generation 1
        checkpoint all 3                            -> log 3 of generation 1
        advance 1000
        begin p 1                                   -> orders 1 of generation 2 from 1
        end gone                                    -> deleted
        advance 1000
        checkpoint p 2                              -> orders 2 of generation 2 from 1
        reopen
        {after}
        rebuild
        {after}
        crash
        {after}
    "
    ));
}

#[test]
fn projections_are_listed_in_pages() {
    check(
        "
        projection b log                            -> created log 0 of generation 1
        projection a topic=default                  -> created default 0 of generation 1
        projection c log                            -> created log 0 of generation 1
        projections                                 -> a b c end
        projections limit=2                         -> a b more
        projections limit=2 after=b                 -> c end
        projections limit=0                         -> VALIDATION_ERROR /limit
        projections limit=101                       -> VALIDATION_ERROR /limit
        end b                                       -> deleted
        projections limit=2                         -> a c end
    ",
    );
}

#[test]
fn a_projection_lives_in_the_log_of_its_topic() {
    let file = r#"{"type":"file","location":"file://beside"}"#;
    check_alone(&format!(
        "
        topic here                                  -> created
        topic beside streaming={file}               -> created
        type there topic=beside                     -> created
        publish there a                             -> created 1 aggregate 1
        projection p topic=beside                   -> created beside 0 of generation 1
        projection p topic=here                     -> ALREADY_EXISTS
        projection p log                            -> ALREADY_EXISTS
        projection q topic=here                     -> created here 0 of generation 1
        projection q topic=beside                   -> ALREADY_EXISTS
        projections                                 -> p q end
        lag p                                       -> 1 for 0 s
        checkpoint p 1                              -> beside 1 of generation 1
        await p 1                                   -> beside 1 of generation 1
        crash
        projections                                 -> p q end
        projection p                                -> beside 1 of generation 1
        end p                                       -> deleted
        projection p topic=here                     -> created here 0 of generation 2
        end p                                       -> deleted
        projection p topic=beside                   -> created beside 0 of generation 3
    "
    ));
}

#[test]
fn who_waits_for_a_checkpoint_is_answered_at_once_or_in_time() {
    with_events(
        "
        projection p topic=orders                   -> created orders 0 of generation 1
        await p 0                                   -> orders 0 of generation 1
        await p 1                                   -> PROJECTION_TIMEOUT
        await p 1 wait=1                            -> PROJECTION_TIMEOUT
        checkpoint p 2                              -> orders 2 of generation 1
        await p 1                                   -> orders 2 of generation 1
        await p 2 wait=30000                        -> orders 2 of generation 1
        await p 9 wait=1                            -> PROJECTION_TIMEOUT
        await p 1 wait=30001                        -> VALIDATION_ERROR /timeout
        await nobody 0                              -> NOT_FOUND
    ",
    );
}

async fn broker() -> Arc<Broker> {
    let broker = Broker::open(Config::default()).await.unwrap();
    broker.register_topic(NewTopic::new(topic_id("orders"))).await.unwrap();
    let mut event_type = NewEventType::new(type_id("placed").parse().unwrap());
    event_type.topic = Some(topic_id("orders"));
    broker.register_event_type(event_type).await.unwrap();
    broker.put_projection("p", NewProjection::of_topic(topic_id("orders"))).await.unwrap();
    Arc::new(broker)
}

async fn publish(broker: &Broker, subject: &str) {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.subject = Some(subject.to_owned());
    event.tenant = Some(uuid::Uuid::from_u128(1));
    broker.publish(event, None).await.unwrap();
}

/// Starts waiters and returns when each of them waits.
async fn waiters(
    broker: &Arc<Broker>,
    count: u64,
    offset: u64,
) -> Vec<tokio::task::JoinHandle<contract::Result<Projection>>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let broker = Arc::clone(broker);
            tokio::spawn(async move { broker.wait_for_projection("p", Offset(offset), Duration::from_secs(30)).await })
        })
        .collect();
    // On one thread: each task runs until it waits.
    tokio::task::yield_now().await;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    tasks
}

#[tokio::test]
async fn waiters_are_woken_by_the_checkpoint_and_not_by_one_before_it() {
    let broker = broker().await;
    publish(&broker, "a").await;
    publish(&broker, "b").await;
    let waiting = waiters(&broker, 100, 2).await;
    broker.move_checkpoint("p", NewCheckpoint::at(Offset(1))).await.unwrap();
    tokio::task::yield_now().await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    broker.move_checkpoint("p", NewCheckpoint::at(Offset(2))).await.unwrap();
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap().checkpoint, Offset(2));
    }
}

#[tokio::test]
async fn who_waits_for_what_is_deleted_or_closed_is_told_so() {
    let broker = broker().await;
    let waiting = waiters(&broker, 2, 1).await;
    broker.delete_projection("p").await.unwrap();
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap_err().kind(), Kind::NotFound);
    }
    broker.put_projection("p", NewProjection::of_log()).await.unwrap();
    let waiting = waiters(&broker, 2, 1000).await;
    let began = Instant::now();
    broker.close().await;
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap_err().kind(), Kind::ProjectionTimeout);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "they waited until their time-out");
}

#[tokio::test]
async fn of_many_who_move_a_checkpoint_from_one_place_one_does() {
    let broker = broker().await;
    for n in 0..20 {
        publish(&broker, &n.to_string()).await;
    }
    let moves = (1..=20).map(|offset| {
        let to = NewCheckpoint { offset: Offset(offset), expected: Some(Offset(0)), generation: Some(Generation(1)) };
        broker.move_checkpoint("p", to)
    });
    let moved: Vec<_> = join_all(moves).await.into_iter().filter_map(Result::ok).collect();
    assert_eq!(moved.len(), 1);
    assert_eq!(broker.projection("p").await.unwrap().checkpoint, moved[0].checkpoint);
}

#[tokio::test]
async fn one_name_is_taken_once_even_where_its_topics_live_in_several_logs() {
    let broker = broker().await;
    let places = ["memory://one", "memory://two", "memory://three"];
    for (n, place) in places.iter().enumerate() {
        let mut topic = NewTopic::new(topic_id(&format!("side{n}")));
        let (streaming_type, location) = (Some("memory".to_owned()), Some((*place).to_owned()));
        topic.streaming = StreamingSetting::Options(StreamingOptions { streaming_type, location, retention: None });
        broker.register_topic(topic).await.unwrap();
    }
    let puts =
        (0..places.len()).map(|n| broker.put_projection("q", NewProjection::of_topic(topic_id(&format!("side{n}")))));
    let outcomes = join_all(puts).await;
    let made = outcomes.iter().filter(|outcome| matches!(outcome, Ok(RegisterOutcome::Created(_)))).count();
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    assert_eq!(made, 1);
    assert!(refused.map(|error| error.kind()).eq([Kind::AlreadyExists; 2]));
    broker.close().await;
}

#[tokio::test]
async fn there_are_only_so_many_projections() {
    let broker = broker().await;
    // Together with `p`.
    let puts = (1..limits::PROJECTIONS_MAX).map(|n| {
        let broker = &broker;
        async move { broker.put_projection(&format!("q{n}"), NewProjection::of_log()).await }
    });
    assert!(join_all(puts).await.iter().all(Result::is_ok));
    let error = broker.put_projection("one-more", NewProjection::of_log()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Overloaded);
    broker.put_projection("p", NewProjection::of_topic(topic_id("orders"))).await.unwrap();
    broker.delete_projection("q1").await.unwrap();
    broker.put_projection("one-more", NewProjection::of_log()).await.unwrap();
}
