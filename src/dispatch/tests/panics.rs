//! Panics: no job stays in flight for ever.

use super::DispatchFixture;
use super::fixture::context;
use crate::clock::{Clock, ClockReading};
use crate::dispatch::DispatchWorker;
use log::MemoryLog;
use std::sync::Arc;

/// A clock that panics.
struct BrokenClock;

impl Clock for BrokenClock {
    fn read(&self) -> ClockReading {
        panic!("as the test wants it")
    }
}

#[tokio::test]
async fn a_job_whose_task_panics_before_its_delivery_is_a_dead_letter_and_not_under_way_for_ever() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    world.run_line(1, "subscribe mail").await;
    world.run_line(2, "publish a b").await;
    let mut context = context(&world.broker, &world.receiver, &world.clock);
    // Deliveries carry its time.
    context.clock = Arc::new(BrokenClock);
    world.worker = DispatchWorker::new(world.broker.default_ledger(), Arc::new(context));
    assert_eq!(world.run().await, "", "nothing is delivered");
    for (number, line) in [
        "flying            -> 0",
        "letters           -> mail/1 payload tried 1 | mail/2 payload tried 1",
        "status mail       -> Active through 2 open 2",
    ]
    .into_iter()
    .enumerate()
    {
        world.run_line(number + 3, line).await;
    }
}

#[tokio::test]
#[should_panic(expected = "as the test wants it")]
async fn a_report_whose_task_panics_ends_the_worker_which_is_an_incident() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    world.worker.recording.spawn(async { panic!("as the test wants it") });
    let written = world.worker.recording.join_next().await.unwrap();
    world.worker.report_recorded(written);
}
