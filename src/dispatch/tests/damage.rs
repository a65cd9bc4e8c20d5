//! A damaged event: its delivery fails with the reason, and nothing waits for it. It is shown by its header.

use super::{DispatchFixture, TYPE};
use crate::clock::Clock;
use crate::dispatch::worker::WorkerStep;
use crate::ledger::ReplyRecorder;
use contract::api::*;
use contract::{
    BoxFuture, DeadLetterFilter, JobFilter, Kind, NewEvent, NewEventType, NewReplay, NewTopic, Position, ReplayBound,
    RepublishOutcome, RepublishRequest, Sequence,
};
use log::{FileDamage, Log, LogError, MemoryLog, ReadLimit, ReadRange, Record, RecordHeader};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A log in memory in which one event of a topic cannot be read; number 0: all can.
#[derive(Default)]
struct DamagedLog {
    log: MemoryLog,
    topic: AtomicU32,
    sequence: AtomicU64,
    /// Whether appends fail.
    is_full: AtomicBool,
}

impl Log for DamagedLog {
    log::forward_rest!();

    fn append(&self, after: Position, batch: Vec<Record>) -> BoxFuture<'_, Result<(), LogError>> {
        if self.is_full.load(Ordering::Relaxed) {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Box::pin(async { Err(LogError::Poisoned(Arc::new(full))) });
        }
        self.log.append(after, batch)
    }

    fn read(&self, range: ReadRange, mut limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        let damaged = self.sequence.load(Ordering::Relaxed);
        if let ReadRange::Topic(topic, after) = range
            && topic.0 == self.topic.load(Ordering::Relaxed)
            && damaged > after.get()
        {
            limit.records = limit.records.min((damaged - after.get() - 1) as usize);
            if limit.records == 0 {
                let damage = FileDamage { file: "segment".into(), offset: 64, reason: "spoilt".to_owned() };
                return Box::pin(async { Err(LogError::Damaged(damage)) });
            }
        }
        self.log.read(range, limit)
    }

    fn headers(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<RecordHeader>, LogError>> {
        self.log.headers(range, limit)
    }
}

const SPOILT: &str = "gts.hx.core.events.topic.v1~vendor.spoilt.v1";

/// A fixture with subscription `first` to a topic that can be damaged, with events 1 to 3, and `mail` to another topic.
async fn world(log: &Arc<DamagedLog>, options: &str) -> DispatchFixture {
    let mut world = DispatchFixture::new(Arc::clone(log) as Arc<dyn Log>).await;
    let spoilt = SPOILT;
    log.topic.store(world.broker.default_ledger().registry().next_topic_number(), Ordering::Relaxed);
    world.broker.register_topic(NewTopic::new(spoilt.parse().unwrap())).await.unwrap();
    let mut made = NewEventType::new(format!("{TYPE}.made_there.v1").parse().unwrap());
    made.topic = Some(spoilt.parse().unwrap());
    world.broker.register_event_type(made).await.unwrap();
    world.ask(&format!("subscribe first topic={spoilt} {options}")).await.unwrap();
    world.ask("subscribe mail").await.unwrap();
    for subject in ["a", "b", "c"] {
        publish(&world, subject).await;
    }
    world
}

/// Publishes an event to the topic that can be damaged.
async fn publish(world: &DispatchFixture, subject: &str) {
    let data = RawValue::from_string("{}".to_owned()).unwrap();
    let mut event = NewEvent::new(format!("{TYPE}.made_there.v1").parse().unwrap(), "test", data);
    event.subject = Some(subject.to_owned());
    world.broker.publish(event, None).await.unwrap();
}

/// The lane stopped before the event, silently and for ever.
#[tokio::test]
async fn the_delivery_of_a_damaged_event_fails_for_good_and_nothing_waits_for_it() {
    for mode in ["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"] {
        let log = Arc::new(DamagedLog::default());
        let mut world = world(&log, &format!("mode={mode}")).await;
        world.ask("publish a b").await.unwrap();
        log.sequence.store(2, Ordering::Relaxed);
        let sent = world.ask("run-sorted").await.unwrap();
        assert_eq!(sent, "first/1:200 first/3:200 mail/1:200 mail/2:200", "{mode}");
        assert_eq!(world.ask("letters").await.unwrap(), "first/2 damaged tried 1", "{mode}");
        let letter = world.broker.dead_letters(&DeadLetterFilter::default(), None, 9).await.unwrap().items.remove(0);
        assert!(letter.exc_msg.contains("sequence 2") && letter.exc_msg.contains("event-broker repair"), "{letter:?}");
        assert!(letter.event.is_none() && letter.event_error.unwrap().contains("sequence 2 is damaged"));
        world.ask("restart").await.unwrap();
        world.clock.advance(86_400_000);
        assert_eq!(world.run().await, "", "it is not tried again");
        assert_eq!(world.ask("job first/2").await.unwrap(), "ERROR tried 1");
        assert_eq!(world.ask("retry first/2").await.unwrap_err().kind(), Kind::InvalidState);
        // Restored from a copy.
        log.sequence.store(0, Ordering::Relaxed);
        world.ask("retry first/2").await.unwrap();
        assert_eq!((world.run().await.as_str(), world.ask("letters").await.unwrap().as_str()), ("first/2:200", ""));
    }
}

/// The group is in the body. Its aggregate is in the header, and other events of it have the group.
#[tokio::test]
async fn a_damaged_event_blocks_the_group_of_its_aggregate() {
    for between in ["run", "restart"] {
        let log = Arc::new(DamagedLog::default());
        let mut world = world(&log, "mode=BLOCK_ON_ERROR").await;
        for subject in ["a", "a", "b"] {
            publish(&world, subject).await;
        }
        log.sequence.store(4, Ordering::Relaxed);
        let sent = world.ask("run-sorted").await.unwrap();
        assert_eq!(sent, "first/1:200 first/2:200 first/3:200 first/6:200");
        world.ask(between).await.unwrap();
        assert_eq!(world.run().await, "");
        assert_eq!(world.ask("groups first").await.unwrap(), "first:a by 4 for 0 waiting 1");
        assert_eq!(world.ask("verbs first").await.unwrap(), "cancel complete");
        assert_eq!(world.ask("jobs group=first:a").await.unwrap(), "first/1 first/4 first/5");
        world.ask("discard first/4").await.unwrap();
        assert_eq!(world.run().await, "first/5:200");
    }
}

/// One damaged event failed the whole page, and every verb that began with a list.
#[tokio::test]
async fn jobs_are_listed_and_ended_though_one_of_them_is_of_a_damaged_event() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "").await;
    world.ask("pause first").await.unwrap();
    world.run().await;
    log.sequence.store(2, Ordering::Relaxed);
    for filter in ["", "status=PENDING", "subscription=first"] {
        assert_eq!(world.ask(&format!("jobs {filter}")).await.unwrap(), "first/1 first/2 first/3", "{filter}");
        assert_eq!(world.ask(&format!("jobs {filter} limit=1")).await.unwrap(), "first/1 first/2 first/3", "{filter}");
    }
    let page = world.broker.jobs(None).list(&JobFilter::default(), None, 100).await.unwrap();
    let shown: Vec<_> = page.items.iter().map(|job| (job.event_error.is_some(), job.code.as_str())).collect();
    let code = format!("{TYPE}.made_there.v1");
    assert_eq!(shown, [(false, code.as_str()), (true, &code), (false, &code)]);
    let of_event = JobFilter { event: page.items[1].event, ..JobFilter::default() };
    assert_eq!(world.broker.jobs(None).list(&of_event, None, 100).await.unwrap().items, page.items[1..2]);
    assert_eq!(world.ask("cancel first/2").await.unwrap(), "CANCELLED");
    assert_eq!(world.ask("jobs status=CANCELLED").await.unwrap(), "first/2");
    world.ask("resume first").await.unwrap();
    assert_eq!(world.run().await, "first/1:200 first/3:200");
    assert_eq!(world.ask("letters").await.unwrap(), "");
}

#[tokio::test]
async fn a_damaged_event_is_no_job_of_a_subscription_whose_types_or_tenant_are_others() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "").await;
    let tenant = uuid::Uuid::from_u128(7);
    world.ask(&format!("subscribe types topic={SPOILT} types=other")).await.unwrap();
    world.ask(&format!("subscribe tenants topic={SPOILT} tenant={tenant}")).await.unwrap();
    publish(&world, "d").await;
    log.sequence.store(4, Ordering::Relaxed);
    assert_eq!(world.ask("run-sorted").await.unwrap(), "first/1:200 first/2:200 first/3:200");
    assert_eq!(world.ask("letters").await.unwrap(), "first/4 damaged tried 1");
    assert_eq!(world.ask("jobs").await.unwrap(), "first/1 first/2 first/3 first/4");
}

/// A replay was refused at the damaged event, so what lies behind it could not be replayed.
#[tokio::test]
async fn a_replay_delivers_everything_but_the_damaged_event_which_it_names() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "").await;
    world.run().await;
    log.sequence.store(2, Ordering::Relaxed);
    let order = |dry_run| NewReplay {
        from: ReplayBound::Sequence(Sequence(1)),
        to: Some(ReplayBound::Sequence(Sequence(3))),
        dry_run,
    };
    for dry_run in [true, false] {
        let subscriptions = world.broker.subscriptions(None);
        let answer = subscriptions.replay("first", order(dry_run), ReplyRecorder::disabled()).await.unwrap();
        assert_eq!((answer.count, answer.damaged.as_slice()), (2, [Sequence(2)].as_slice()), "{dry_run}");
    }
    assert_eq!(world.run().await, "first/1:200 first/3:200");
    assert_eq!(world.ask("letters").await.unwrap(), "first/2 damaged tried 1");
    let topic = SPOILT.parse().unwrap();
    let again = RepublishRequest::to_subscriptions(Sequence(2), Sequence(3));
    let answer = world.broker.republish(&topic, again).await.unwrap();
    assert_eq!(answer, RepublishOutcome { count: 1, damaged: vec![Sequence(2)] });
}

#[tokio::test]
async fn what_cannot_be_written_is_tried_again_after_a_while_and_nothing_is_sent_meanwhile() {
    let log = Arc::new(DamagedLog::default());
    let mut world = DispatchFixture::new(Arc::clone(&log) as Arc<dyn Log>).await;
    world.run_line(1, "subscribe mail").await;
    world.run_line(2, "publish a").await;
    assert_eq!(world.land().await, "mail/1:200");
    world.run_line(3, "publish b").await;
    log.is_full.store(true, Ordering::Relaxed);
    world.worker.step().await;
    let written = world.worker.recording.join_next().await.unwrap();
    world.worker.report_recorded(written);
    for _ in 0..3 {
        let WorkerStep::Wait(Some(until)) = world.worker.step().await else { panic!("it waits") };
        assert_eq!(until - world.clock.now(), 1000);
        assert!(world.worker.recording.is_empty());
    }
    let sent = world.worker.deliveries.len();
    world.clock.advance(1000);
    world.worker.step().await;
    assert_eq!((world.worker.recording.len(), world.worker.deliveries.len()), (1, sent));
}

/// Building a lane read the events of its open jobs. One that could not be read stopped every lane of the log.
#[tokio::test]
async fn a_damaged_event_of_a_failed_job_holds_up_its_own_group_alone() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "mode=BLOCK_ON_ERROR").await;
    world.ask("answer first/1 500").await.unwrap();
    assert_eq!(world.ask("run-sorted").await.unwrap(), "first/1:500 first/2:200 first/3:200");
    log.sequence.store(1, Ordering::Relaxed);
    world.ask("restart").await.unwrap();
    world.ask("publish a b").await.unwrap();
    assert_eq!(world.ask("run-sorted").await.unwrap(), "mail/1:200 mail/2:200");
    world.clock.advance(60_000);
    assert_eq!(world.run().await, "", "it cannot be read");
    assert_eq!(world.ask("letters").await.unwrap(), "first/1 damaged tried 2");
    publish(&world, "a").await;
    assert_eq!(world.run().await, "", "its group is blocked");
    world.ask("discard first/1").await.unwrap();
    assert_eq!(world.run().await, "first/4:200");
}

/// Each failed look-up of the event was recorded and repeated at once.
#[tokio::test]
async fn a_job_that_expires_and_whose_event_cannot_be_read_fills_no_log() {
    let log = Arc::new(DamagedLog::default());
    let mut world = world(&log, "age=10").await;
    world.ask("pause first").await.unwrap();
    world.run().await;
    log.sequence.store(2, Ordering::Relaxed);
    world.clock.advance(10_000);
    let before = world.broker.default_ledger().position().borrow().get();
    for _ in 0..200 {
        world.ask("land").await.unwrap();
        while let Some(written) = world.worker.recording.join_next().await {
            world.worker.report_recorded(written);
        }
    }
    assert_eq!(
        world.ask("letters").await.unwrap(),
        "first/1 Expired tried 0 | first/2 Expired tried 0 | first/3 Expired tried 0"
    );
    let written = world.broker.default_ledger().position().borrow().get() - before;
    assert!(written < 20, "{written} entries");
}
