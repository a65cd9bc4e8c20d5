//! The projection runner: catching up, following, reporting, rebuilding, stopping, and events that cannot be applied.

use crate::test_broker::{Deadline, TestBroker, bank, moved};
use contract::api::*;
use contract::{Generation, LogRead, NewProjection, Offset, Position, Projection, Sequence, StoredEvent, limits};
use event_broker_client::RetryPolicy;
use event_broker_client::projection::{
    Checkpoint, ProjectionError, ProjectionOptions, ProjectionRunner, ProjectionView,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);

/// The data of a view; it outlives the runner, like a database.
#[derive(Debug, Default)]
struct Table {
    /// The numbers of the events, as they were applied.
    rows: Vec<u64>,
    at: Checkpoint,
    cleared: usize,
    /// Sequences that cannot be applied, and how often they fail.
    refusing: Vec<(u64, usize)>,
    /// Stops the runner while it applies this one.
    stopping: Option<(u64, oneshot::Sender<()>)>,
}

#[derive(Debug, Clone, Default)]
struct View {
    table: Arc<Mutex<Table>>,
    keeps_checkpoint: bool,
}

impl View {
    fn keeping() -> Self {
        Self { keeps_checkpoint: true, ..Self::default() }
    }

    fn rows(&self) -> Vec<u64> {
        self.table.lock().unwrap().rows.clone()
    }

    fn cleared(&self) -> usize {
        self.table.lock().unwrap().cleared
    }

    fn refuse(&self, sequence: u64, times: usize) {
        self.table.lock().unwrap().refusing = vec![(sequence, times)];
    }
}

impl ProjectionView for View {
    type Error = String;

    async fn apply(&mut self, event: &StoredEvent, at: Checkpoint) -> Result<(), String> {
        let mut table = self.table.lock().unwrap();
        let sequence = event.sequence.get();
        if let Some((_, times)) = table.refusing.iter_mut().find(|(it, times)| *it == sequence && *times > 0) {
            *times -= 1;
            return Err("it does not fit".to_owned());
        }
        table.rows.push(sequence);
        table.at = at;
        if let Some((_, stop)) = table.stopping.take_if(|(it, _)| *it == sequence) {
            stop.send(()).unwrap();
        }
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<Option<Checkpoint>, String> {
        Ok(self.keeps_checkpoint.then(|| self.table.lock().unwrap().at))
    }

    async fn clear(&mut self, start: Checkpoint) -> Result<(), String> {
        let mut table = self.table.lock().unwrap();
        (table.rows, table.at) = (Vec::new(), start);
        table.cleared += 1;
        Ok(())
    }
}

fn options() -> ProjectionOptions {
    let apply = RetryPolicy { tries_max: 3, first_wait: Duration::from_millis(1), wait_max: Duration::from_millis(10) };
    ProjectionOptions { apply, idle: Duration::from_secs(1), ..ProjectionOptions::default() }
}

fn runner(server: &TestBroker, name: &str, definition: NewProjection, view: &View) -> ProjectionRunner<View> {
    ProjectionRunner::new(server.client(), name, definition, view.clone()).with(options())
}

/// A runner in a separate task.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ProjectionError>>,
}

impl Running {
    fn start(mut runner: ProjectionRunner<View>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move { runner.run(async { drop(stopped.await) }).await });
        Self { stop, task }
    }

    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap().unwrap();
    }
}

async fn publish(server: &TestBroker, count: usize) {
    for _ in 0..count {
        server.publish(moved("a", None, &json!({}))).await;
    }
}

async fn reached(server: &TestBroker, name: &str, offset: u64) -> Projection {
    server.client().wait_for_projection(name, Offset(offset), PATIENCE).await.unwrap()
}

fn numbers(range: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    range.collect()
}

#[tokio::test]
async fn a_view_is_made_from_nothing_caught_up_and_kept_up() {
    let server = TestBroker::set(Vec::new()).await;
    let more_than_a_page = limits::READ_EVENTS_MAX + 50;
    publish(&server, more_than_a_page).await;
    for view in [View::default(), View::keeping()] {
        let name = format!("keeps-{}", view.keeps_checkpoint);
        let running = Running::start(runner(&server, &name, NewProjection::of_topic(bank()), &view));
        // It is registered when it runs.
        let deadline = Deadline::begin();
        while server.client().projection(&name).await.is_err() {
            deadline.check("the projection");
        }
        reached(&server, &name, more_than_a_page as u64).await;
        let next = server.publish(moved("a", None, &json!({}))).await;
        let projection = reached(&server, &name, next).await;
        assert_eq!((view.rows(), projection.lag.events), (numbers(1..=next), 0));
        running.stop().await;
        // Restarted, it resumes where it was.
        let running = Running::start(runner(&server, &name, NewProjection::of_topic(bank()), &view));
        let next = server.publish(moved("a", None, &json!({}))).await;
        reached(&server, &name, next).await;
        assert_eq!(view.rows(), numbers(1..=next));
        running.stop().await;
        server.broker.delete_projection(&name).await.unwrap();
    }
    server.close().await;
}

#[tokio::test]
async fn a_view_that_keeps_its_checkpoint_goes_by_that_and_not_by_the_brokers() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 5).await;
    let definition = NewProjection::of_topic(bank());
    // The view is at 3 and the broker's checkpoint at 1, as after a kill.
    let view = View::keeping();
    *view.table.lock().unwrap() = Table {
        rows: vec![1, 2, 3],
        at: Checkpoint { generation: Generation(1), offset: Offset(3) },
        ..Table::default()
    };
    server.client().put_projection("ahead", definition.clone()).await.unwrap();
    server.client().move_checkpoint("ahead", contract::NewCheckpoint::at(Offset(1))).await.unwrap();
    let running = Running::start(runner(&server, "ahead", definition.clone(), &view));
    reached(&server, "ahead", 5).await;
    assert_eq!((view.rows(), view.cleared()), (numbers(1..=5), 0));
    running.stop().await;
    // A new view of a projection whose checkpoint is at the tail.
    let fresh = View::keeping();
    let running = Running::start(runner(&server, "ahead", definition, &fresh));
    let next = server.publish(moved("a", None, &json!({}))).await;
    reached(&server, "ahead", next).await;
    assert_eq!(fresh.rows(), numbers(1..=next));
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn a_reset_clears_the_view_and_makes_it_again_from_where_it_says() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 5).await;
    for view in [View::default(), View::keeping()] {
        let name = format!("keeps-{}", view.keeps_checkpoint);
        server.client().put_projection(&name, NewProjection::of_topic(bank())).await.unwrap();
        let running = Running::start(runner(&server, &name, NewProjection::of_topic(bank()), &view));
        reached(&server, &name, 5).await;
        let reset = server.client().reset_projection(&name, Offset(2)).await.unwrap();
        let projection = reached(&server, &name, 5).await;
        assert_eq!((projection.generation, projection.start), (reset.generation, Offset(2)));
        assert_eq!(view.rows(), [3, 4, 5]);
        running.stop().await;
    }
    server.close().await;
}

#[tokio::test]
async fn a_view_that_keeps_its_checkpoint_notices_a_reset_that_came_while_it_did_not_run() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 4).await;
    let view = View::keeping();
    server.client().put_projection("p", NewProjection::of_topic(bank())).await.unwrap();
    let running = Running::start(runner(&server, "p", NewProjection::of_topic(bank()), &view));
    reached(&server, "p", 4).await;
    running.stop().await;
    let before = view.cleared();
    server.client().reset_projection("p", Offset(0)).await.unwrap();
    let running = Running::start(runner(&server, "p", NewProjection::of_topic(bank()), &view));
    reached(&server, "p", 4).await;
    assert_eq!((view.rows(), view.cleared()), (numbers(1..=4), before + 1));
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn a_view_is_made_of_the_events_that_retention_has_left() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 4).await;
    server.broker.trim(&bank(), Sequence(2)).await.unwrap();
    let view = View::keeping();
    server.client().put_projection("p", NewProjection::of_topic(bank())).await.unwrap();
    let running = Running::start(runner(&server, "p", NewProjection::of_topic(bank()), &view));
    reached(&server, "p", 4).await;
    assert_eq!(view.rows(), numbers(3..=4));
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn a_view_of_a_projection_that_was_deleted_and_registered_again_is_made_anew() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 4).await;
    let view = View::keeping();
    let client = server.client();
    let start = async || {
        client.put_projection("p", NewProjection::of_topic(bank())).await.unwrap();
        Running::start(runner(&server, "p", NewProjection::of_topic(bank()), &view))
    };
    let running = start().await;
    reached(&server, "p", 4).await;
    running.stop().await;
    let before = view.cleared();
    client.delete_projection("p").await.unwrap();
    let running = start().await;
    reached(&server, "p", 4).await;
    assert_eq!((view.rows(), view.cleared()), (numbers(1..=4), before + 1));
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn a_poison_event_stops_its_own_projection_and_is_named() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 5).await;
    let (poisoned, healthy) = (View::keeping(), View::keeping());
    poisoned.refuse(3, usize::MAX);
    let other = Running::start(runner(&server, "healthy", NewProjection::of_topic(bank()), &healthy));
    let mut runner = runner(&server, "poisoned", NewProjection::of_topic(bank()), &poisoned);
    let stopped = runner.run(std::future::pending()).await.unwrap_err();
    let ProjectionError::Poison { projection, topic, sequence, id, cause } = &stopped else { panic!("{stopped}") };
    assert_eq!((projection.as_str(), topic.as_ref(), *sequence), ("poisoned", Some(&bank()), Sequence(3)));
    let event = &server.broker.read(contract::TopicRead::all(bank())).await.unwrap().items[2];
    assert_eq!((*id, cause.to_string()), (event.id, "it does not fit".to_owned()));
    // The events before it are applied and reported.
    assert_eq!(poisoned.rows(), [1, 2]);
    assert_eq!(server.client().projection("poisoned").await.unwrap().checkpoint, Offset(2));
    // The other projection continues.
    let next = server.publish(moved("a", None, &json!({}))).await;
    let deadline = Deadline::begin();
    while server.client().projection("healthy").await.is_err() {
        deadline.check("the projection");
    }
    reached(&server, "healthy", next).await;
    assert_eq!(healthy.rows(), numbers(1..=next));
    other.stop().await;
    // After the view is repaired, this one continues too.
    poisoned.refuse(3, 0);
    let running = Running::start(runner);
    reached(&server, "poisoned", next).await;
    assert_eq!(poisoned.rows(), numbers(1..=next));
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn what_fails_a_few_times_is_applied_once() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 3).await;
    let view = View::keeping();
    view.refuse(2, 2);
    server.client().put_projection("p", NewProjection::of_topic(bank())).await.unwrap();
    let running = Running::start(runner(&server, "p", NewProjection::of_topic(bank()), &view));
    reached(&server, "p", 3).await;
    assert_eq!(view.rows(), [1, 2, 3]);
    running.stop().await;
    server.close().await;
}

#[tokio::test]
async fn asked_to_stop_it_finishes_its_event_tells_and_ends() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 5).await;
    let view = View::keeping();
    let (stop, stopped) = oneshot::channel();
    view.table.lock().unwrap().stopping = Some((3, stop));
    let mut runner = runner(&server, "p", NewProjection::of_topic(bank()), &view);
    runner.run(async { stopped.await.unwrap() }).await.unwrap();
    assert_eq!(view.rows(), [1, 2, 3]);
    assert_eq!(server.client().projection("p").await.unwrap().checkpoint, Offset(3));
    server.close().await;
}

#[tokio::test]
async fn a_broker_that_refuses_for_good_ends_it() {
    let server = TestBroker::set(Vec::new()).await;
    let elsewhere = NewProjection::of_topic("gts.hx.core.events.topic.v1~vendor.nowhere.v1".parse().unwrap());
    let stopped = runner(&server, "p", elsewhere, &View::default()).run(std::future::pending()).await.unwrap_err();
    let ProjectionError::Broker { error, .. } = &stopped else { panic!("{stopped}") };
    assert_eq!(error.violations()[0].pointer, "/topic");
    server.close().await;
}

#[tokio::test]
async fn a_broker_that_is_away_is_waited_for() {
    let server = TestBroker::set(Vec::new()).await;
    let url = server.url.clone();
    let view = View::keeping();
    let client = server.client().retrying(RetryPolicy { tries_max: 1, ..RetryPolicy::default() });
    server.close().await;
    // There is no broker; the runner does not end by itself.
    let mut runner = ProjectionRunner::new(client, "p", NewProjection::of_topic(bank()), view).with(options());
    let elapsed = tokio::time::timeout(Duration::from_millis(200), runner.run(std::future::pending())).await;
    assert!(elapsed.is_err(), "{url}");
}

fn subject(n: u64) -> &'static str {
    if n.is_multiple_of(2) { "even" } else { "odd" }
}

/// The position of every event.
async fn positions(server: &TestBroker) -> Vec<u64> {
    let read = LogRead { after: Position(0), limit: 100, filter: contract::EventFilter::default() };
    server.broker.read_log(read).await.unwrap().items.iter().map(|event| event.position.get()).collect()
}

#[tokio::test]
async fn a_filtered_projection_passes_over_what_is_none_of_its() {
    let server = TestBroker::set(Vec::new()).await;
    for definition in [NewProjection::of_topic(bank()), NewProjection::of_log()] {
        let (name, view) = (format!("log-{}", definition.log), View::keeping());
        let definition = definition.filtered("subject == 'even'");
        server.client().put_projection(&name, definition.clone()).await.unwrap();
        let running = Running::start(runner(&server, &name, definition.clone(), &view));
        let mut last = 0;
        for n in 0..7 {
            last = server.publish(moved(subject(n + 1), None, &Value::Object(serde_json::Map::new()))).await;
        }
        // The last event does not match the filter; the view's offset passes it all the same.
        let all = if definition.log { *positions(&server).await.last().unwrap() } else { last };
        let projection = reached(&server, &name, all).await;
        assert_eq!((view.rows().len(), projection.lag.events), (if definition.log { 6 } else { 3 }, 0));
        running.stop().await;
    }
    server.close().await;
}

#[tokio::test]
async fn a_projection_of_the_log_that_has_nothing_to_do_writes_nothing() {
    let server = TestBroker::set(Vec::new()).await;
    publish(&server, 2).await;
    let view = View::keeping();
    server.client().put_projection("all", NewProjection::of_log()).await.unwrap();
    let running = Running::start(runner(&server, "all", NewProjection::of_log(), &view));
    reached(&server, "all", *positions(&server).await.last().unwrap()).await;
    let read = LogRead { after: Position(0), limit: 100, filter: contract::EventFilter::default() };
    let tail = server.client().read_log(read.clone()).await.unwrap().tail;
    // The runner polls every second; for three seconds nothing arrives.
    let read = LogRead { after: tail, ..read };
    assert_eq!(server.client().wait_log(read, Duration::from_secs(3)).await.unwrap().tail, tail);
    assert_eq!(view.rows(), [1, 2]);
    running.stop().await;
    server.close().await;
}
