//! Pausing and resuming dispatch as a whole: a restored log is paused until a person resumes it.

use super::{DispatchFixture, check};
use crate::dispatch::worker::WorkerStep;
use contract::api::*;
use log::MemoryLog;
use std::sync::Arc;

#[test]
fn a_paused_log_delivers_no_events_tasks_or_replays_until_it_is_resumed() {
    check(
        "
        subscribe mail
        publish a
        run                         -> mail/1:200
        pause-dispatch
        publish b
        task t
        replay mail 1 1             -> 1
        run                         ->
        job mail/2                  -> QUEUED tried 0
        reopen
        run                         ->
        resume-dispatch
        run-sorted                  -> mail/1:200 mail/2:200 task:t:200
        resume-dispatch
        publish c
        run                         -> mail/3:200
    ",
    );
}

#[tokio::test]
async fn pausing_and_resuming_twice_changes_nothing_and_a_pause_says_how_to_resume() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    world.ask("subscribe mail").await.unwrap();
    world.ask("resume-dispatch").await.unwrap();
    let position = || *world.broker.default_ledger().position().borrow();
    let before = position();
    world.broker.resume_dispatch(Some(&contract::ProducerId("ops".to_owned()))).await.unwrap();
    assert_eq!(position(), before);
    world.ask("pause-dispatch").await.unwrap();
    assert_eq!(world.worker.step().await, WorkerStep::Paused);
    let paused = *world.broker.default_ledger().position().borrow();
    world.ask("pause-dispatch").await.unwrap();
    assert_eq!(*world.broker.default_ledger().position().borrow(), paused);
    let told = world.ask("degraded").await.unwrap();
    assert!(told.contains("(by restore)") && told.contains("POST /v1/server/dispatch:resume"), "{told}");
    world.ask("resume-dispatch").await.unwrap();
    assert_eq!(world.ask("degraded").await.unwrap(), "");
}
