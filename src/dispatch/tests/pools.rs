//! Pools and codes: existence is decided in the order of the log, and no job waits for a deleted pool.

use super::{DispatchFixture, TOPIC, check, subscription};
use crate::ledger::ReplyRecorder;
use contract::api::*;
use contract::{Kind, NewSubscription, NewTopic, PoolChange};
use log::MemoryLog;
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_pool_that_a_task_or_a_subscription_waits_in_is_not_deleted() {
    check(
        "
        pool p concurrency=1
        task later pool=p scheduledFor=2025-12-03T12:01:00Z
        drop-pool p                 -> INVALID_STATE
        cancel task:later           -> CANCELLED
        subscribe mail pool=p
        drop-pool p                 -> INVALID_STATE
        change mail pool=default
        drop-pool p
        drop-pool p                 -> NOT_FOUND
        task next pool=p            -> VALIDATION_ERROR
        subscribe other pool=p      -> VALIDATION_ERROR
        change mail pool=p          -> VALIDATION_ERROR
    ",
    );
}

#[test]
fn work_whose_pool_is_gone_in_an_old_log_goes_on_in_the_default_pool() {
    check(
        "
        pool p concurrency=1
        subscribe mail pool=p
        task later pool=p scheduledFor=2025-12-03T12:01:00Z
        old-drop-pool p
        restart
        publish a
        run                         -> mail/1:200
        advance 60000
        run                         -> task:later:200
        pool p concurrency=1
        publish a
        answer mail/2 hang
        publish b
        run                         ->
        release mail/2              -> mail/2:200 mail/3:200
    ",
    );
}

fn named(code: &str, member: &str, value: &str) -> NewSubscription {
    subscription(code, &BTreeMap::from([(member, value)]))
}

#[tokio::test]
async fn a_pool_is_not_deleted_while_a_subscription_is_made_for_it() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    for round in 0..30 {
        world.ask(&format!("pool p{round} concurrency=1")).await.unwrap();
        let (code, pool) = (format!("s{round}"), format!("p{round}"));
        let subscriptions = world.broker.subscriptions(None);
        let (made, deleted) = tokio::join!(
            subscriptions.create_keeping(named(&code, "pool", &pool), ReplyRecorder::disabled()),
            subscriptions.delete_pool(&pool, ReplyRecorder::disabled())
        );
        assert!(made.is_ok() != deleted.is_ok(), "round {round}: {:?} {deleted:?}", made.map(|it| it.0.id));
    }
}

#[tokio::test]
async fn no_two_subscriptions_of_different_logs_have_one_code() {
    let world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    let side = "gts.hx.core.events.topic.v1~vendor.side.v1";
    let topic = serde_json::json!({"id": side, "streaming": {"type": "memory", "location": "memory://side"}});
    let topic: NewTopic = serde_json::from_value(topic).unwrap();
    world.broker.register_topic(topic).await.unwrap();
    for round in 0..30 {
        let code = format!("s{round}");
        let subscriptions = world.broker.subscriptions(None);
        let (one, other) = tokio::join!(
            subscriptions.create_keeping(named(&code, "topic", TOPIC), ReplyRecorder::disabled()),
            subscriptions.create_keeping(named(&code, "topic", side), ReplyRecorder::disabled())
        );
        assert!(one.is_ok() != other.is_ok(), "round {round}: {} {}", one.is_ok(), other.is_ok());
    }
}

#[tokio::test]
async fn a_pool_used_only_by_a_subscription_of_another_log_is_not_deleted() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    let side = "gts.hx.core.events.topic.v1~vendor.side.v1";
    let topic = serde_json::json!({"id": side, "streaming": {"type": "memory", "location": "memory://side"}});
    let topic: NewTopic = serde_json::from_value(topic).unwrap();
    world.broker.register_topic(topic).await.unwrap();
    world.ask("pool p concurrency=1").await.unwrap();
    world.ask(&format!("subscribe mail pool=p topic={side}")).await.unwrap();
    let refused = world.broker.subscriptions(None).delete_pool("p", ReplyRecorder::disabled()).await.unwrap_err();
    assert!(refused.detail().contains("1 subscription(s) (mail)"), "{refused}");
}

/// A change stored the whole pool as it was read before: a deleted pool came back.
#[tokio::test]
async fn a_pool_that_is_deleted_while_it_is_changed_stays_deleted() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    for round in 0..30 {
        world.ask(&format!("pool p{round} concurrency=1")).await.unwrap();
        let code = format!("p{round}");
        let subscriptions = world.broker.subscriptions(None);
        let change = PoolChange { concurrency: Some(7), rate_per_minute: None };
        let (deleted, changed) = tokio::join!(
            subscriptions.delete_pool(&code, ReplyRecorder::disabled()),
            subscriptions.change_pool(&code, change, ReplyRecorder::disabled())
        );
        assert!(deleted.is_ok(), "round {round}: {deleted:?}");
        assert!(changed.is_ok() || changed.is_err_and(|error| error.kind() == Kind::NotFound), "round {round}");
        assert!(subscriptions.pool(&code).is_err(), "round {round}");
    }
}

/// The later change stored the whole pool as it was before the other one: one of two changes was lost.
#[tokio::test]
async fn two_changes_of_a_pool_at_once_both_apply() {
    let mut world = DispatchFixture::new(Arc::new(MemoryLog::new())).await;
    for code in ["p", "default"] {
        if code == "p" {
            world.ask("pool p concurrency=1").await.unwrap();
        }
        let subscriptions = world.broker.subscriptions(None);
        let concurrency = PoolChange { concurrency: Some(7), rate_per_minute: None };
        let rate = PoolChange { concurrency: None, rate_per_minute: Some(Some(60)) };
        let (one, other) = tokio::join!(
            subscriptions.change_pool(code, concurrency, ReplyRecorder::disabled()),
            subscriptions.change_pool(code, rate, ReplyRecorder::disabled())
        );
        one.unwrap();
        other.unwrap();
        let pool = subscriptions.pool(code).unwrap();
        assert_eq!((pool.concurrency, pool.rate_per_minute), (7, Some(60)), "{code}");
    }
}
