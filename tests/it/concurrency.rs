//! Many concurrent callers: each request is decided once, and all decisions have one order.

use crate::scenario::{subject_type_id, topic_id, type_id};
use contract::api::*;
use contract::{
    EventFilter, Kind, NewEvent, NewEventType, Offset, PublishOutcome, ReadOffset, Sequence, StoredEvent, TopicRead,
};
use event_broker::{Broker, Config, SystemClock};
use log::{Log, MemoryLog};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

const CALLERS: usize = 64;

fn event(subject: &str) -> NewEvent {
    let data = RawValue::from_string(r#"{"n":1}"#.to_owned()).unwrap();
    let mut event = NewEvent::new(type_id("placed").parse().unwrap(), "test", data);
    event.tenant = Some(Uuid::from_u128(1));
    event.about(subject_type_id("order"), subject)
}

async fn with_type(config: Config) -> Arc<Broker> {
    let broker = Arc::new(Broker::open(config).await.unwrap());
    broker.register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    broker
}

/// Reads pages of one event, with and without a matching filter, while retention removes events at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_from_the_earliest_event_is_never_refused_while_retention_runs() {
    let folder = TempDir::new().unwrap();
    for config in [Config::default(), Config::folder(folder.path())] {
        let broker = with_type(config).await;
        for number in 0..300 {
            broker.publish(event(&number.to_string()), None).await.unwrap();
        }
        let trimming = tokio::spawn({
            let broker = Arc::clone(&broker);
            async move {
                for through in 1..=300 {
                    broker.trim(&topic_id("default"), Sequence(through)).await.unwrap();
                }
            }
        });
        let nobody = EventFilter { subjects: vec!["nobody".to_owned()], ..EventFilter::default() };
        let earliest = TopicRead::all(topic_id("default")).after(ReadOffset::Earliest);
        let reads = [TopicRead { limit: 1, ..earliest.clone() }, TopicRead { filter: nobody, ..earliest }];
        let mut last = 0;
        while !trimming.is_finished() {
            for read in &reads {
                let page = broker.read(read.clone()).await.unwrap();
                assert_eq!(page.tail, Offset(300));
                let first = page.items.first().map_or(last, |event| event.sequence.get());
                assert!(first >= last, "{first} after {last}");
                last = first;
                broker.wait(read.clone(), Duration::ZERO).await.unwrap();
            }
        }
        trimming.await.unwrap();
        let page = broker.read(reads[0].clone()).await.unwrap();
        assert_eq!((page.items.len(), page.next_offset), (0, Offset(300)));
    }
}

async fn all_events(broker: &Broker) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    loop {
        let offset = Offset(events.len() as u64);
        let mut page = broker.read(TopicRead::all(topic_id("default")).after(offset)).await.unwrap();
        if page.items.is_empty() {
            return events;
        }
        events.append(&mut page.items);
    }
}

/// Runs `CALLERS` tasks concurrently and returns the result of each.
async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(call: impl Fn(usize) -> F) -> Vec<T> {
    let tasks: Vec<_> = (0..CALLERS).map(|number| tokio::spawn(call(number))).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_publishers_of_one_key_store_one_event_and_all_get_it() {
    let folder = TempDir::new().unwrap();
    for config in [Config::default(), Config::folder(folder.path())] {
        let broker = with_type(config).await;
        let outcomes = race(|_| {
            let (broker, mut event) = (broker.clone(), event("a"));
            event.id = Some(Uuid::from_u128(7));
            event.expected_aggregate_sequence = Some(contract::AggregateSequence(0));
            async move { broker.publish(event, None).await.unwrap() }
        })
        .await;
        let created = outcomes.iter().filter(|published| published.outcome == PublishOutcome::Created).count();
        assert_eq!(created, 1);
        assert!(outcomes.iter().all(|published| published.event == outcomes[0].event));
        assert_eq!(all_events(&broker).await.len(), 1);
        broker.close().await;
    }
    let broker = Broker::open(Config::folder(folder.path())).await.unwrap();
    let mut again = event("a");
    again.id = Some(Uuid::from_u128(7));
    let published = broker.publish(again, None).await.unwrap();
    assert_eq!(published.outcome, PublishOutcome::Duplicate { payload_mismatch: false });
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixty_four_who_expect_the_same_sequence_one_wins() {
    let folder = TempDir::new().unwrap();
    for config in [Config::default(), Config::folder(folder.path())] {
        let broker = with_type(config).await;
        for round in 0..8 {
            let outcomes = race(|_| {
                let (broker, mut event) = (broker.clone(), event("a"));
                event.expected_aggregate_sequence = Some(contract::AggregateSequence(round));
                async move { broker.publish(event, None).await }
            })
            .await;
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
            for error in outcomes.into_iter().filter_map(Result::err) {
                assert_eq!(error.kind(), Kind::ExpectedSequence);
                assert_eq!(error.actual().unwrap(), round + 1);
            }
        }
        assert_eq!(all_events(&broker).await.len(), 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiting_readers_all_get_the_next_event() {
    let broker = with_type(Config::default()).await;
    let read = TopicRead::all(topic_id("default"));
    let readers: Vec<_> = (0..1000)
        .map(|_| {
            let (broker, read) = (broker.clone(), read.clone());
            tokio::spawn(async move { broker.wait(read, Duration::from_secs(30)).await.unwrap() })
        })
        .collect();
    let stored = broker.publish(event("a"), None).await.unwrap().event;
    for reader in readers {
        assert_eq!(reader.await.unwrap().items, std::slice::from_ref(&stored));
    }
}

#[tokio::test]
async fn a_waiting_reader_waits_on_past_events_that_do_not_match() {
    let broker = with_type(Config::default()).await;
    let mut read = TopicRead::all(topic_id("default"));
    read.filter.subjects = vec!["wanted".to_owned()];
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.wait(read, Duration::from_secs(30)).await.unwrap() }
    });
    for subject in ["a", "b", "c", "wanted"] {
        broker.publish(event(subject), None).await.unwrap();
    }
    let page = waiting.await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.next_offset, Offset(4));
}

#[tokio::test]
async fn closing_sends_waiting_readers_home_and_refuses_newcomers() {
    let broker = with_type(Config::default()).await;
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.wait(TopicRead::all(topic_id("default")), Duration::from_secs(30)).await.unwrap() }
    });
    tokio::task::yield_now().await;
    broker.close().await;
    assert!(waiting.await.unwrap().items.is_empty());
    assert_eq!(broker.publish(event("a"), None).await.unwrap_err().kind(), Kind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_on_one_log_decide_as_one() {
    let log = Arc::new(MemoryLog::shared());
    let open = || async {
        let log: Arc<dyn Log> = log.clone();
        Arc::new(Broker::on_log(Config::default(), log, None, Arc::new(SystemClock)).await.unwrap())
    };
    let brokers = [open().await, open().await];
    brokers[0].register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    let mut follow = brokers[1].wait(TopicRead::all(topic_id("default")), Duration::from_secs(30));
    assert!(futures_pending(&mut follow).await);
    let outcomes = race(|number| {
        let broker = brokers[number % 2].clone();
        async move {
            let mut outcomes = Vec::new();
            for id in 0..20 {
                let mut event = event(&format!("s{}", id % 3));
                event.id = Some(Uuid::from_u128(id));
                // The other broker may not know the type yet: it reads the log before it refuses.
                outcomes.push(broker.publish(event, None).await.unwrap());
            }
            outcomes
        }
    })
    .await;
    assert!(!follow.await.unwrap().items.is_empty());
    for id in 0..20 {
        let created = outcomes.iter().filter(|of_caller| of_caller[id].outcome == PublishOutcome::Created).count();
        assert_eq!(created, 1, "event {id}");
    }
    let events = all_events(&brokers[0]).await;
    assert_eq!(events.len(), 20);
    assert!(events.iter().zip(1..).all(|(event, sequence)| event.sequence.0 == sequence));
}

/// Polls the future once; returns whether it is still waiting.
async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_broker_acknowledged_the_next_one_knows() {
    let log = Arc::new(MemoryLog::shared());
    let mut brokers = Vec::new();
    for _ in 0..3 {
        let log: Arc<dyn Log> = log.clone();
        brokers.push(Broker::on_log(Config::default(), log, None, Arc::new(SystemClock)).await.unwrap());
    }
    brokers[0].register_event_type(NewEventType::new(type_id("placed").parse().unwrap())).await.unwrap();
    for number in 0..300_u64 {
        let broker = |offset: u64| &brokers[usize::try_from((number + offset) % 3).unwrap()];
        let mut event = event("a");
        event.id = Some(Uuid::from_u128(number.into()));
        event.expected_aggregate_sequence = Some(contract::AggregateSequence(number));
        let stored = broker(0).publish(event.clone(), None).await.unwrap();
        assert_eq!(stored.outcome, PublishOutcome::Created, "{number}");
        // Neither call appends to the log, and both must know what the other broker appended.
        let again = broker(1).publish(event.clone(), None).await.unwrap();
        assert_eq!(again.outcome, PublishOutcome::Duplicate { payload_mismatch: false }, "{number}");
        event.id = None;
        let late = broker(2).publish(event, None).await.unwrap_err();
        assert_eq!(late.actual(), Some(number + 1), "{number}");
    }
}
