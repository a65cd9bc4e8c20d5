//! A broker in memory, served over HTTP on its own port.

use contract::api::*;
use contract::{NewEvent, NewEventType, NewTopic, NewVersion, TopicId};
use event_broker::{Broker, Config, rest};
use event_broker_client::Client;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) const MOVED: &str = "gts.hyperspot.core.events.type.v1~vendor.bank.money_moved.v1";

/// The topic of the examples.
pub(crate) fn bank() -> TopicId {
    "gts.hx.core.events.topic.v1~vendor.bank.v1".parse().unwrap()
}

/// The deadline of a wait: a test that waits longer fails with the reason for the wait.
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Longer than any wait may take.
    pub(crate) fn begin() -> Self {
        Self(Instant::now() + Duration::from_secs(120))
    }

    pub(crate) fn check(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited too long for {what}");
    }
}

pub(crate) struct TestBroker {
    pub(crate) broker: Arc<Broker>,
    pub(crate) url: String,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), usize>>,
}

impl TestBroker {
    /// A broker with the examples' topic and type; the type has these versions, or accepts any object.
    pub(crate) async fn set(versions: Vec<NewVersion>) -> Self {
        Self::with(Config::default(), versions).await
    }

    /// The same with a configuration.
    pub(crate) async fn with(config: Config, versions: Vec<NewVersion>) -> Self {
        let broker = Arc::new(Broker::open(config).await.unwrap());
        broker.register_topic(NewTopic::new(bank())).await.unwrap();
        let mut event_type = NewEventType::new(MOVED.parse().unwrap());
        event_type.topic = Some(bank());
        event_type.versions = versions;
        broker.register_event_type(event_type).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let served = rest::serve(listener, Arc::clone(&broker), rest::HttpOptions::default(), async {
            let _ = stopped.await;
        });
        Self { broker, url, stop, server: tokio::spawn(served) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url).unwrap()
    }

    /// Publishes one event; returns its sequence.
    pub(crate) async fn publish(&self, event: NewEvent) -> u64 {
        self.broker.publish(event, None).await.unwrap().event.sequence.get()
    }

    pub(crate) async fn close(self) {
        drop(self.stop);
        self.server.await.unwrap().unwrap();
        self.broker.close().await;
    }
}

/// An event about an account.
pub(crate) fn moved(account: &str, version: Option<&str>, data: &Value) -> NewEvent {
    let mut event = NewEvent::new(MOVED.parse().unwrap(), "test", serde_json::value::to_raw_value(data).unwrap());
    event.subject = Some(account.to_owned());
    event.tenant = Some(Uuid::from_u128(1));
    event.data_version = version.map(str::to_owned);
    event
}
