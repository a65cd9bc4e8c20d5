//! Deletions of topics in logs of their own that were cut short while the broker ran on.

use super::Broker;
use crate::config::Config;
use crate::ledger::{Command, Decision, Entry, TopicPlacement};
use contract::api::*;
use contract::{Kind, NewProjection, NewTopic, RegisterOutcome, Result, TopicId};
use std::time::{Duration, Instant};

/// Marks a topic, as a deletion does before the topic's own log has decided.
struct Mark(TopicId);

impl Command for Mark {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        let known = decision.registry().placed(&self.0).unwrap().placed.clone();
        decision.add_entry(Entry::TopicPlaced { placed: TopicPlacement { deleting: true, ..known } }).map(drop)
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn side() -> NewTopic {
    let streaming = serde_json::from_str(r#"{"location":"memory://side"}"#).unwrap();
    NewTopic { streaming, ..NewTopic::new("shop.orders".parse().unwrap()) }
}

/// A broker whose topic is marked, and read by a projection if it `is_used`.
async fn marked(config: Config, is_used: bool) -> Broker {
    let broker = Broker::open(config).await.unwrap();
    broker.register_topic(side()).await.unwrap();
    if is_used {
        broker.put_projection("table", NewProjection::of_topic(side().id)).await.unwrap();
    }
    broker.default_ledger().submit(Mark(side().id)).await.unwrap();
    let hidden = broker.segments(&side().id).await.unwrap_err();
    assert_eq!(hidden.kind(), Kind::NotFound);
    broker
}

#[tokio::test]
async fn whoever_registers_the_name_again_finishes_the_deletion_first() {
    for is_used in [false, true] {
        let broker = Box::pin(marked(Config::default(), is_used)).await;
        let registered = broker.register_topic(side()).await.unwrap();
        assert_eq!(matches!(registered, RegisterOutcome::Unchanged(_)), is_used, "what is used is not deleted");
        broker.segments(&side().id).await.unwrap();
        broker.close().await;
    }
}

#[tokio::test]
async fn the_retention_chore_finishes_it_or_takes_the_mark_back() {
    for is_used in [false, true] {
        let mut config = Config::default();
        config.maintenance.retention_check_secs = 0;
        let broker = Box::pin(marked(config, is_used)).await;
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_marked =
            || broker.default_ledger().registry().placed(&side().id).is_some_and(|known| known.placed.deleting);
        while is_marked() {
            assert!(Instant::now() < deadline, "the chore does not finish it");
            tokio::task::yield_now().await;
        }
        assert_eq!(broker.topic(&side().id).await.is_ok(), is_used);
        broker.close().await;
    }
}
