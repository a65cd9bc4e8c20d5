//! Retention: what it removes, what remains true of removed events, and what readers receive.

mod failures;

use crate::scenario::{check, subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{Kind, NewEvent, NewEventType, NewTopic, TopicRead};
use event_broker::{Broker, Config, ManualClock};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn events_past_their_age_go_and_readers_are_told() {
    check(
        "
        topic brief retention=PT1H window=PT10M     -> created
        type placed topic=brief                     -> created
        type kept                                   -> created
        publish placed a id=1                       -> created 1 aggregate 1
        publish kept a                              -> created 1 aggregate 1
        advance 1800000
        publish placed a                            -> created 2 aggregate 2
        publish placed b                            -> created 3 aggregate 1
        expire                                      -> removed 0
        advance 1800001
        expire                                      -> removed 1
        expire                                      -> removed 0
        read brief                                  -> TRIMMED earliest 2
        read brief after=1                          -> 2 3 next 3 tail 3
        read default                                -> 1 next 1 tail 1
        event 1                                     -> NOT_FOUND
        history brief a                             -> 2@2 next 2 of 2
        segments brief                              -> 2 to 3 amount 2
        log                                         -> default/1 brief/2 brief/3
        reopen
        read brief                                  -> TRIMMED earliest 2
        publish placed a                            -> created 4 aggregate 3
    ",
    );
}

#[test]
fn numbers_are_never_used_again_even_when_everything_is_gone() {
    check(
        "
        topic brief retention=PT1S                  -> created
        type placed topic=brief                     -> created
        publish placed a id=1                       -> created 1 aggregate 1
        publish placed a                            -> created 2 aggregate 2
        publish placed b                            -> created 3 aggregate 1
        advance 5000
        expire                                      -> removed 3
        read brief                                  -> TRIMMED earliest 4
        read brief after=3                          -> next 3 tail 3
        segments brief                              -> none
        aggregate brief a                           -> 2 at 2 gone
        rebuild
        aggregate brief a                           -> 2 at 2 gone
        publish placed a id=1                       -> TRIMMED earliest 4
        publish placed a expected=2                 -> created 4 aggregate 3
        publish placed b                            -> created 5 aggregate 2
        crash
        read brief after=3                          -> 4 5 next 5 tail 5
    ",
    );
}

#[test]
fn trimming_by_hand_goes_no_further_than_the_tail() {
    check(
        "
        type placed                                 -> created
        publish placed a                            -> created 1 aggregate 1
        publish placed a                            -> created 2 aggregate 2
        trim default 1                              -> removed 1
        trim default 1                              -> removed 0
        trim default 99                             -> removed 1
        trim nowhere 1                              -> NOT_FOUND
        publish placed a                            -> created 3 aggregate 3
        read default after=2                        -> 3 next 3 tail 3
    ",
    );
}

#[tokio::test]
async fn a_running_broker_expires_by_itself() {
    let clock = Arc::new(ManualClock::at(1_764_763_200_000));
    let mut config = Config::default();
    config.maintenance.retention_check_secs = 0;
    let broker = Broker::open_at(config, clock.clone()).await.unwrap();
    let mut topic = NewTopic::new(topic_id("brief"));
    topic.retention = Some("PT1H".parse().unwrap());
    broker.register_topic(topic).await.unwrap();
    let mut placed = NewEventType::new(type_id("placed").parse().unwrap());
    placed.topic = Some(topic_id("brief"));
    broker.register_event_type(placed.clone()).await.unwrap();
    let data = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
    let mut event = NewEvent::new(placed.id, "test", data).about(subject_type_id("order"), "a");
    event.tenant = Some(uuid::Uuid::from_u128(1));
    broker.publish(event, None).await.unwrap();
    assert_eq!(broker.read(TopicRead::all(topic_id("brief"))).await.unwrap().items.len(), 1);
    clock.advance(3_600_001);
    let gone = async {
        while broker.read(TopicRead::all(topic_id("brief"))).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the background task must run");
    let error = broker.read(TopicRead::all(topic_id("brief"))).await.unwrap_err();
    assert_eq!((error.kind(), error.earliest().unwrap().0), (Kind::Trimmed, 2));
}
