//! A list costs what its page contains, however long the history is.

use super::{DispatchFixture, TOPIC, TYPE};
use crate::ledger::ReplyRecorder;
use contract::api::*;
use contract::{
    BoxFuture, BulkResolveRequest, Cursor, DeadLetterFilter, JobFilter, JobStatus, NewEvent, NewReplay, ReplayBound,
    Sequence, TopicRead,
};
use log::{Log, LogError, MemoryLog, ReadLimit, ReadRange, Record};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A log in memory that counts the records read from it.
#[derive(Default)]
struct CountingLog {
    log: MemoryLog,
    read: AtomicUsize,
}

impl CountingLog {
    /// The records read since the last call.
    fn take(&self) -> usize {
        self.read.swap(0, Ordering::SeqCst)
    }
}

impl Log for CountingLog {
    log::forward_append!();
    log::forward_rest!();

    fn read(&self, range: ReadRange, limit: ReadLimit) -> BoxFuture<'_, Result<Vec<Record>, LogError>> {
        Box::pin(async move {
            let page = self.log.read(range, limit).await?;
            self.read.fetch_add(page.len(), Ordering::SeqCst);
            Ok(page)
        })
    }
}

async fn world() -> (Arc<CountingLog>, DispatchFixture) {
    let log = Arc::new(CountingLog { log: MemoryLog::new(), read: AtomicUsize::new(0) });
    let world = DispatchFixture::new(Arc::clone(&log) as Arc<dyn Log>).await;
    (log, world)
}

/// Publishes this many events of a type, each with its own subject.
async fn publish(world: &DispatchFixture, kind: &str, count: usize) {
    let event = |number: usize| {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        let event = NewEvent::new(format!("{TYPE}.{kind}.v1").parse().unwrap(), "test", data);
        event.about("gts.vendor.app.order.v1".parse().unwrap(), format!("s{number}"))
    };
    let publishing: Vec<_> = (0..count).map(|number| world.broker.publish(event(number), None)).collect();
    for publishing in publishing {
        publishing.await.unwrap();
    }
}

/// Makes the first `count` jobs fail for good.
async fn all_fail(world: &mut DispatchFixture, count: usize) {
    for number in 1..=count {
        world.ask(&format!("answer mail/{number} 400")).await.unwrap();
    }
    publish(world, "placed", count).await;
    world.run().await;
}

#[tokio::test]
async fn the_last_page_of_failed_jobs_reads_no_more_than_the_first() {
    const JOBS: usize = 300;
    const LIMIT: usize = 20;
    let (log, mut world) = world().await;
    world.ask("subscribe mail attempts=1 mode=BLOCK_ON_ERROR").await.unwrap();
    all_fail(&mut world, JOBS).await;
    for status in [JobStatus::Error, JobStatus::Cancelled] {
        if status == JobStatus::Cancelled {
            let order = BulkResolveRequest { reason: Some("old".to_owned()), ..BulkResolveRequest::default() };
            assert_eq!(world.broker.discard_all(order, None).await.unwrap().count, JOBS as u64);
        }
        let filter = JobFilter { status: Some(status), ..JobFilter::default() };
        let (mut cursor, mut pages, mut jobs): (Option<Cursor>, _, _) = (None, 0, 0);
        loop {
            log.take();
            let page = world.broker.jobs(None).list(&filter, cursor.as_ref(), LIMIT).await.unwrap();
            let read = log.take();
            assert!(read <= LIMIT + 1, "{status:?}: page {pages} read {read} records");
            (pages, jobs) = (pages + 1, jobs + page.items.len());
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((pages, jobs), (JOBS / LIMIT, JOBS), "{status:?}");
    }
}

#[tokio::test]
async fn what_waits_is_found_without_walking_what_is_settled() {
    let (log, mut world) = world().await;
    world.ask("subscribe mail").await.unwrap();
    world.ask("answer mail/3 500").await.unwrap();
    publish(&world, "placed", 2000).await;
    world.run().await;
    let filter = JobFilter { status: Some(JobStatus::Pending), ..JobFilter::default() };
    log.take();
    let page = world.broker.jobs(None).list(&filter, None, 100).await.unwrap();
    let read = log.take();
    assert_eq!((page.items.len(), page.next), (1, None));
    assert!(read <= 2, "{read} records were read for one job");
}

#[tokio::test]
async fn letters_are_paged_forth_and_back_in_one_order() {
    let (_, mut world) = world().await;
    world.ask("subscribe mail attempts=1").await.unwrap();
    all_fail(&mut world, 25).await;
    let filter = DeadLetterFilter { name: Some("mail".to_owned()), ..DeadLetterFilter::default() };
    for filter in [DeadLetterFilter::default(), filter] {
        let all = world.broker.dead_letters(&filter, None, 100).await.unwrap();
        let (mut forth, mut cursor, mut last) = (Vec::new(), None, None);
        loop {
            let page = world.broker.dead_letters(&filter, cursor.as_ref(), 7).await.unwrap();
            forth.extend(page.items.iter().map(|it| it.id));
            let Some(next) = page.next else {
                last = page.prev.or(last);
                break;
            };
            cursor = Some(next);
        }
        let ids: Vec<_> = all.items.iter().map(|it| it.id).collect();
        assert_eq!(forth, ids);
        let before = world.broker.dead_letters(&filter, last.as_ref(), 7).await.unwrap();
        assert_eq!(before.items.iter().map(|it| it.id).collect::<Vec<_>>(), ids[14..21]);
        assert!(before.next.is_some() && before.prev.is_some());
    }
}

#[tokio::test]
async fn blocked_groups_come_in_pages_and_say_when_a_count_is_only_a_lower_bound() {
    let (_, mut world) = world().await;
    world.ask("subscribe mail attempts=1 mode=BLOCK_ON_ERROR").await.unwrap();
    all_fail(&mut world, 5).await;
    world.ask("publish s0 s0 s3").await.unwrap();
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let lane = world.broker.subscriptions(None).find("mail").unwrap();
        let page = world.broker.jobs(None).groups(lane, cursor.as_ref(), 2).await.unwrap();
        assert!(page.items.len() <= 2);
        seen.extend(page.items.iter().map(|it| (it.waiting, it.waiting_is_lower_bound)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [(2, false), (0, false), (0, false), (1, false), (0, false)]);
    publish(&world, "unwanted", 20_600).await;
    world.ask("publish s0").await.unwrap();
    let lane = world.broker.subscriptions(None).find("mail").unwrap();
    let page = world.broker.jobs(None).groups(lane, None, 1).await.unwrap();
    let shown = (page.items[0].waiting, page.items[0].waiting_is_lower_bound);
    assert!(shown.0 >= 2 && shown.1, "{shown:?}");
    let tail = world.broker.read(TopicRead::all(TOPIC.parse().unwrap())).await.unwrap().tail;
    assert!(tail.get() > 20_000);
}

#[tokio::test]
async fn a_replay_of_more_than_is_counted_is_ordered_all_the_same_and_says_so() {
    let (_, mut world) = world().await;
    world.ask("subscribe mail types=placed").await.unwrap();
    publish(&world, "unwanted", 3000).await;
    publish(&world, "placed", 2).await;
    world.run().await;
    let order = |dry_run| NewReplay { from: ReplayBound::Sequence(Sequence(1)), to: None, dry_run };
    let mut subscriptions = world.broker.subscriptions(None);
    subscriptions.counted_max = 10;
    let counted = subscriptions.replay("mail", order(true), ReplyRecorder::disabled()).await.unwrap();
    assert_eq!((counted.count, counted.count_is_lower_bound, counted.replay), (0, true, None));
    let ordered = subscriptions.replay("mail", order(false), ReplyRecorder::disabled()).await.unwrap();
    assert!(ordered.count_is_lower_bound && ordered.replay.is_some(), "{ordered:?}");
    assert_eq!(world.run().await, "mail/3001:200 mail/3002:200");
    let counted =
        world.broker.subscriptions(None).replay("mail", order(true), ReplyRecorder::disabled()).await.unwrap();
    assert_eq!((counted.count, counted.count_is_lower_bound), (2, false));
}

#[tokio::test]
async fn after_a_start_a_lane_does_not_wait_for_one_that_is_far_behind() {
    let (_, mut world) = world().await;
    world.ask("subscribe old types=stuck").await.unwrap();
    world.ask("subscribe mail types=wanted").await.unwrap();
    world.ask("answer old/1 hang").await.unwrap();
    world.ask("publish a type=stuck").await.unwrap();
    assert_eq!(world.run().await, "");
    publish(&world, "unwanted", 13_000).await;
    world.run().await;
    assert!(world.ask("status mail").await.unwrap().starts_with("Active through 1"), "it is settled far ahead");
    assert_eq!(world.ask("status old").await.unwrap(), "Active through 0 open 0");
    world.ask("restart").await.unwrap();
    world.ask("publish b type=wanted").await.unwrap();
    let first = world.ask("land").await.unwrap();
    assert!(first.contains("mail/13002:200"), "the first turn delivered {first:?}");
    world.ask("publish c type=stuck").await.unwrap();
    assert!(world.run().await.contains("old/13003:200"), "the one behind catches up");
}
