//! Several brokers on one log: one of them delivers, and another one takes over when its lease expires.

use super::DispatchFixture;
use log::{Log, MemoryLog};
use std::sync::Arc;

/// A shared log in memory.
struct SharedMemoryLog {
    log: MemoryLog,
}

impl Log for SharedMemoryLog {
    log::forward_append!();
    log::forward_read!();
    log::forward_rest!();

    fn is_shared(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn one_broker_delivers_and_another_takes_over_when_it_falls_silent() {
    let log: Arc<dyn Log> = Arc::new(SharedMemoryLog { log: MemoryLog::new() });
    let mut one = DispatchFixture::new(Arc::clone(&log)).await;
    let mut two = DispatchFixture::beside(log, Arc::clone(&one.clock), Arc::clone(&one.receiver)).await;
    one.ask("subscribe mail mode=BLOCK_ON_ERROR").await.unwrap();
    two.broker.default_ledger().refresh().await.unwrap();
    one.ask("publish a a b").await.unwrap();
    one.ask("answer mail/1 hang").await.unwrap();
    assert_eq!(one.run().await, "mail/3:200");
    two.broker.default_ledger().refresh().await.unwrap();
    assert_eq!(two.run().await, "", "the jobs are the other's");
    // The first broker says nothing for as long as its lease lasts.
    one.clock.advance(15_000);
    assert_eq!(two.run().await, "mail/1:200 mail/2:200");
    one.broker.default_ledger().refresh().await.unwrap();
    one.ask("publish a").await.unwrap();
    one.broker.default_ledger().refresh().await.unwrap();
    assert_eq!(one.run().await, "", "the first one knows that it has lost them");
    two.broker.default_ledger().refresh().await.unwrap();
    assert_eq!(two.run().await, "mail/4:200");
    // What it had under way comes to an end that changes nothing.
    one.receiver.hanging.lock().unwrap().remove("mail/1").unwrap().notify_one();
    assert_eq!(one.run().await, "mail/1:200");
    assert_eq!(one.ask("tokens mail/1").await.unwrap(), "2 growing");
    assert_eq!(two.ask("status mail").await.unwrap(), "Active through 4 open 0");
}
