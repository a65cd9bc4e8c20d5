//! A broker that failed is opened again in the same process: waiting clients get a response, and acknowledged events
//! are kept.

use super::{CREATED, TOPIC, client, event};
use event_broker::config::Config;
use event_broker::{
    Broker, BrokerOpener, BrokerOutage, BrokerSlot, SlotState, StorageConfig, Supervisor, SystemClock, rest,
};
use log::LogError;
use log::file::{FileLog, FileLogOptions};
use log::testing::fault_disk::{DiskFault, DiskOperation, FaultDisk};
use log::testing::in_time;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Opens a broker on the disk, unless the test prevents it.
fn opener(disk: &FaultDisk, refuses: &Arc<AtomicBool>) -> BrokerOpener {
    let (disk, refuses) = (disk.clone(), Arc::clone(refuses));
    Box::new(move || {
        let (disk, refuses) = (disk.clone(), Arc::clone(&refuses));
        Box::pin(async move {
            if refuses.load(Ordering::SeqCst) {
                return Err(LogError::from(io::Error::other("the disk is not there")).into());
            }
            let log = Arc::new(FileLog::open(Arc::new(disk), FileLogOptions::default())?);
            let config = Config { storage: StorageConfig::folder("unused"), ..Config::default() };
            Broker::on_log(config, log, None, Arc::new(SystemClock)).await
        })
    })
}

/// A supervised broker, served in this process.
struct SupervisedServer {
    url: String,
    client: Client,
    disk: FaultDisk,
    slot: Arc<BrokerSlot>,
    tasks: [JoinHandle<()>; 2],
}

impl SupervisedServer {
    async fn start() -> Self {
        let disk = FaultDisk::new();
        let open = opener(&disk, &Arc::default());
        let slot = Arc::new(BrokerSlot::new(Arc::new(open().await.unwrap())));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let supervisor = Supervisor::new(Arc::clone(&slot), open);
        let (served, never) = (Arc::clone(&slot), std::future::pending());
        let tasks = [
            tokio::spawn(async move { panic!("{}", supervisor.run().await) }),
            tokio::spawn(async move {
                rest::serve_slot(listener, served, rest::HttpOptions::default(), never).await.unwrap();
            }),
        ];
        let server = Self { url, client: client(), disk, slot, tasks };
        let request = server.client.post(format!("{}/v1/event-types", server.url)).json(&json!({"id": CREATED}));
        assert!(request.send().await.unwrap().status().is_success());
        server
    }

    async fn publish(&self, id: Uuid) -> (StatusCode, Value) {
        let mut event = event(CREATED, "s");
        event["id"] = json!(id);
        super::answer(self.client.post(format!("{}/v1/events", self.url)).json(&event)).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        super::answer(self.client.get(format!("{}{path}", self.url))).await
    }
}

impl Drop for SupervisedServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_full_disk_has_room_again_publishing_goes_on_without_a_restart() {
    let server = SupervisedServer::start().await;
    let mut stored = Vec::new();
    for _ in 0..3 {
        let id = Uuid::new_v4();
        assert_eq!(server.publish(id).await.0, 201);
        stored.push(id.to_string());
    }
    // A client that waits for the next event, on the broker that is about to fail.
    let failed = Arc::downgrade(&server.slot.broker().unwrap());
    let poll = server.client.get(format!("{}/v1/events:poll?topic={TOPIC}&offset=3&timeout=30", server.url)).send();
    let waiting = tokio::spawn(poll);
    server.disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    let refused = Uuid::new_v4();
    let (status, problem) = server.publish(refused).await;
    assert_eq!(status, 503, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("The disk is full (no space left on device). Free space"), "{detail}");
    // Stored events can still be read; readiness reports the fault, and liveness does not request a restart.
    assert_eq!(server.get("/healthz").await.0, 200);
    let (status, problem) = server.get("/readyz").await;
    assert!(status == 200 || problem["detail"].as_str().unwrap().contains("The disk is full"), "{problem}");
    let again = Uuid::new_v4();
    let goes_on = async { while server.publish(again).await.0 != 201 {} };
    in_time(goes_on).await;
    let ended = in_time(waiting).await.unwrap().unwrap();
    assert_eq!(ended.status(), 503);
    assert!(ended.headers().contains_key("retry-after"));
    let gone = async {
        while failed.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(gone).await;
    assert_eq!(server.get("/readyz").await, (StatusCode::OK, json!({"status": "ready"})));
    let (_, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    let items = page["items"].as_array().unwrap();
    let ids: Vec<_> = items.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    assert!(ids.starts_with(&stored) && ids.ends_with(&[again.to_string()]), "{ids:?}");
    assert!(ids.len() - stored.len() <= 2, "{ids:?}");
    let sequences: Vec<_> = items.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (1..=ids.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_write_leaves_can_be_read_until_the_wait_for_the_next_opening_is_over() {
    let disk = FaultDisk::new();
    let open = opener(&disk, &Arc::default());
    let slot = Arc::new(BrokerSlot::new(Arc::new(open().await.unwrap())));
    let supervisor = Supervisor::new(Arc::clone(&slot), open);
    let supervising = tokio::spawn(async move { supervisor.run().await.to_string() });
    let mut states = slot.watch();
    disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    let broker = slot.broker().unwrap();
    let failing = contract::NewTopic::new(crate::scenario::topic_id("a"));
    contract::api::TopicApi::register_topic(broker.as_ref(), failing).await.unwrap_err();
    // The supervisor has received the failure; the test clock does not advance while a task is busy.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(slot.broker().is_some_and(|now| Arc::ptr_eq(&now, &broker)), "the broker is still in its slot");
    let page = contract::api::EventApi::read(broker.as_ref(), contract::TopicRead::all(TOPIC.parse().unwrap())).await;
    assert!(page.unwrap().items.is_empty());
    drop(broker);
    drop(states.wait_for(|state| matches!(state, SlotState::Closed(_))).await.unwrap());
    drop(states.wait_for(|state| matches!(state, SlotState::Open(_))).await.unwrap());
    supervising.abort();
}

#[tokio::test(start_paused = true)]
async fn after_openings_in_vain_a_restart_is_asked_for_and_the_next_that_works_ends_the_outage() {
    let (disk, refuses) = (FaultDisk::new(), Arc::new(AtomicBool::new(false)));
    let open = opener(&disk, &refuses);
    let slot = Arc::new(BrokerSlot::new(Arc::new(open().await.unwrap())));
    refuses.store(true, Ordering::SeqCst);
    let supervisor = Supervisor::new(Arc::clone(&slot), open);
    let supervising = tokio::spawn(async move { supervisor.run().await.to_string() });
    let mut states = slot.watch();
    disk.fail(DiskOperation::Write, 1, DiskFault::Full);
    let broker = slot.broker().unwrap();
    let failing = contract::NewTopic::new(crate::scenario::topic_id("a"));
    contract::api::TopicApi::register_topic(broker.as_ref(), failing).await.unwrap_err();
    drop(broker);
    let helps = |state: &SlotState| matches!(state, SlotState::Closed(BrokerOutage { restart_helps: true, .. }));
    drop(states.wait_for(helps).await.unwrap());
    refuses.store(false, Ordering::SeqCst);
    drop(states.wait_for(|state| matches!(state, SlotState::Open(_))).await.unwrap());
    assert!(!supervising.is_finished());
    supervising.abort();
}

#[tokio::test]
async fn an_abandoned_broker_lets_go_of_its_folder_though_somebody_holds_it() {
    let folder = TempDir::new().unwrap();
    let straggler = Broker::open(Config::folder(folder.path())).await.unwrap();
    let cause = contract::Error::new(contract::Kind::Unavailable, "It failed.");
    in_time(straggler.abandon(&cause)).await;
    let next = Broker::open(Config::folder(folder.path())).await.unwrap();
    let refused =
        contract::api::EventApi::read(&straggler, contract::TopicRead::all(crate::scenario::topic_id("default")));
    assert!(refused.await.is_ok_and(|page| page.items.is_empty()), "the log has no events");
    let topic = || contract::NewTopic::new(crate::scenario::topic_id("a"));
    let refused = contract::api::TopicApi::register_topic(&straggler, topic()).await.unwrap_err();
    assert_eq!(refused.detail(), "It failed.");
    contract::api::TopicApi::register_topic(&next, topic()).await.unwrap();
}
