//! Several topics in one log do not delay each other.

use super::{DispatchFixture, TYPE};
use crate::dispatch::worker::WorkerStep;
use contract::api::*;
use contract::{NewEvent, NewTopic};
use log::MemoryLog;
use serde_json::value::RawValue;
use std::sync::Arc;

/// More events than one step reads.
const MANY: usize = 5000;

#[tokio::test]
async fn a_topic_with_more_to_read_is_read_on_though_the_last_one_has_nothing() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    let quiet = "gts.hx.core.events.topic.v1~vendor.quiet.v1";
    world.broker.register_topic(NewTopic::new(quiet.parse().unwrap())).await.unwrap();
    world.ask("subscribe mail types=wanted").await.unwrap();
    world.ask(&format!("subscribe other topic={quiet}")).await.unwrap();
    let unwanted = || {
        let data = RawValue::from_string("{}".to_owned()).unwrap();
        NewEvent::new(format!("{TYPE}.unwanted.v1").parse().unwrap(), "test", data)
    };
    let publishing: Vec<_> = (0..MANY).map(|_| world.broker.publish(unwanted(), None)).collect();
    for publishing in publishing {
        publishing.await.unwrap();
    }
    world.ask("publish a type=wanted").await.unwrap();
    assert_eq!(world.worker.step().await, WorkerStep::More);
    assert_eq!(world.run().await, format!("mail/{}:200", MANY + 1));
}
