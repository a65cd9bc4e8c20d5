//! Subscriptions, pools, jobs, tasks and replays, over HTTP and in process: the same script has the same results.

use crate::test_broker::{TestBroker, bank, moved};
use contract::api::*;
use contract::{
    DispatchMode, Error, JobFilter, JobStatus, NewReplay, NewSubscription, NewTask, Pool, PoolChange, ProducerId,
    ReplayBound, Result, SecretKind, SecretRotation, Sequence, StartFrom, SubscriptionChange,
};
use event_broker::Config;
use event_broker::config::SecretKey;
use serde_json::json;
use std::fmt::Debug;

/// Nothing listens there.
const TARGET: &str = "http://127.0.0.1:1/hooks";

/// Results line by line, without the times and ids that a broker makes.
#[derive(Default)]
struct Results(Vec<String>);

impl Results {
    fn add(&mut self, what: impl Debug) {
        self.0.push(format!("{what:?}"));
    }

    /// A result that may be a refusal.
    fn take<T, D: Debug>(&mut self, result: Result<T>, show: impl Fn(T) -> D) {
        match result {
            Ok(thing) => self.add(show(thing)),
            Err(error) => self.0.push(refusal(&error)),
        }
    }
}

fn refusal(error: &Error) -> String {
    format!("{:?} {} {:?}", error.kind(), error.detail(), error.violations())
}

async fn subscriptions(broker: &dyn EventBroker, results: &mut Results) -> Result<()> {
    let by = ProducerId("operator".to_owned());
    let mut new = NewSubscription::new("mail", bank(), TARGET);
    (new.mode, new.start_from) = (DispatchMode::BlockOnError, StartFrom::Earliest);
    (new.filter, new.max_attempts) = (Some("data.amount > 0".to_owned()), Some(3));
    let created = broker.create_subscription(new.clone()).await?;
    assert!(created.secret.is_some_and(|secret| secret.secret.starts_with("whsec_")));
    results.add((&created.subscription.definition, created.subscription.status));
    results.take(broker.create_subscription(new).await, |it| it.subscription.status);
    let shown = broker.subscription("mail").await?;
    assert_eq!((shown.id, shown.created_at), (created.subscription.id, created.subscription.created_at));
    results.add((&shown.definition, shown.settled_through, shown.open_jobs, shown.replays));
    let change = SubscriptionChange { filter: Some(None), timeout_seconds: Some(2), ..SubscriptionChange::default() };
    results.take(broker.change_subscription("mail", change).await, |it| it.definition);
    results.take(broker.pause_subscription("mail", Some("Why not.".to_owned()), Some(&by)).await, |it| {
        (it.status, it.pause.map(|pause| (pause.by, pause.reason)))
    });
    results.take(broker.resume_subscription("mail").await, |it| (it.status, it.pause));
    results.take(broker.close_breaker("mail", Some(&by)).await, |it| it.status);
    let rotation = SecretRotation { grace_seconds: Some(60), kind: Some(SecretKind::Asymmetric) };
    results.take(broker.rotate_secret("mail", rotation).await, |it| {
        (it.secret.starts_with("whsk_"), it.public_key.is_some(), it.previous_until.is_some())
    });
    results.take(broker.test_subscription("mail").await, |it| (it.status, it.error.map(|error| error.class)));
    let replay = |dry_run| {
        let (from, to) = (ReplayBound::Sequence(Sequence(1)), Some(ReplayBound::Sequence(Sequence(2))));
        NewReplay { from, to, dry_run }
    };
    for dry_run in [true, false] {
        results.take(broker.replay_subscription("mail", replay(dry_run)).await, |it| (it.count, it.replay.is_some()));
    }
    results.take(broker.replays("mail").await, |it| {
        it.iter().map(|replay| (replay.from, replay.to, replay.settled_through)).collect::<Vec<_>>()
    });
    broker.create_subscription(NewSubscription::new("other", bank(), TARGET)).await?;
    let page = broker.subscriptions(None, 1).await?;
    results.add(page.items.iter().map(|it| &it.definition.code).collect::<Vec<_>>());
    results.take(broker.subscriptions(page.next.as_ref(), 5).await, |it| it.items.len());
    broker.delete_subscription("other", Some(&by)).await?;
    results.take(broker.subscription("other").await, |it| it.definition.code);
    Ok(())
}

async fn pools(broker: &dyn EventBroker, results: &mut Results) -> Result<()> {
    let pool = Pool { code: "slow".to_owned(), concurrency: 2, rate_per_minute: Some(60) };
    results.add(broker.create_pool(pool.clone()).await?);
    results.take(broker.create_pool(pool).await, |it| it);
    let change = PoolChange { concurrency: Some(3), rate_per_minute: Some(None) };
    results.add(broker.change_pool("slow", change).await?);
    results.add(broker.pool("slow").await?);
    results.take(broker.pools(None, 10).await, |it| it.items);
    broker.delete_pool("slow").await?;
    results.take(broker.pool("slow").await, |it| it);
    Ok(())
}

async fn jobs(broker: &dyn EventBroker, results: &mut Results) -> Result<()> {
    let by = ProducerId("operator".to_owned());
    let payload = serde_json::value::to_raw_value(&json!({"n": 1})).unwrap();
    let task = NewTask {
        code: "call".to_owned(),
        target: TARGET.to_owned(),
        payload,
        message_group: Some("g".to_owned()),
        mode: DispatchMode::NextOnError,
        pool: None,
        scheduled_for: None,
    };
    let job = broker.create_task(task).await?;
    results.add((job.kind, &job.code, &job.target, job.status, &job.message_group));
    let shown = broker.job(&job.id).await?;
    assert_eq!((shown.id, shown.created_at), (job.id.clone(), job.created_at));
    for filter in [
        JobFilter { subscription: Some("mail".to_owned()), ..JobFilter::default() },
        JobFilter { status: Some(JobStatus::Completed), ..JobFilter::default() },
    ] {
        let page = broker.jobs(&filter, None, 10).await?;
        // Jobs are listed by lane, and the lanes' ids are random.
        let mut listed = page.items.iter().map(|it| (it.sequence, it.kind, it.status)).collect::<Vec<_>>();
        listed.sort_by_key(|(sequence, ..)| *sequence);
        results.add(listed);
    }
    results.take(broker.retry_job(&job.id, Some(&by)).await, |it| it.status);
    results.take(broker.cancel_job(&job.id, Some(&by)).await, |it| it.status);
    results.take(broker.complete_job(&job.id, None).await, |it| it.status);
    results.take(broker.blocked_groups("mail", None, 10).await, |it| it.items.len());
    results.take(broker.job("nothing").await, |it| it.status);
    broker.resume_dispatch(Some(&by)).await
}

async fn script(server: &TestBroker, broker: &dyn EventBroker) -> Vec<String> {
    for _ in 0..3 {
        server.publish(moved("a", None, &json!({"account": "a", "amount": 1}))).await;
    }
    let mut results = Results::default();
    subscriptions(broker, &mut results).await.unwrap();
    pools(broker, &mut results).await.unwrap();
    jobs(broker, &mut results).await.unwrap();
    results.0
}

#[tokio::test]
async fn over_http_dispatch_answers_and_refuses_as_in_process() {
    let mut config = Config::default();
    (config.dispatch.enabled, config.dispatch.allow_private_targets) = (false, true);
    config.dispatch.secret_key = Some(SecretKey("0123456789abcdef0123456789abcdef".to_owned()));
    let (near, far) = (TestBroker::with(config.clone(), Vec::new()).await, TestBroker::with(config, Vec::new()).await);
    let (in_process, over_http) = (script(&near, near.broker.as_ref()).await, script(&far, &far.client()).await);
    for (near, far) in in_process.iter().zip(&over_http) {
        assert_eq!(near, far);
    }
    assert_eq!(in_process.len(), over_http.len());
    near.close().await;
    far.close().await;
}
