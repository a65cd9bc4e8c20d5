//! Attacks by unauthenticated clients on a broker with default settings. During each attack, a bystander publishes
//! (another one reads), and every request of the bystander succeeds.

mod http2;
mod memory;
mod schemas;

use super::{CREATED, Server, TOPIC, event};
use reqwest::Client;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longer than any wait may take.
pub(crate) const IN_TIME: Duration = Duration::from_secs(60);
/// An address that no attack uses.
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A client at this address.
pub(crate) fn client_from(address: Ipv4Addr) -> Client {
    Client::builder().no_proxy().local_address(IpAddr::V4(address)).build().unwrap()
}

/// Sends one request after the other until it is stopped.
struct Asking {
    is_over: Arc<AtomicBool>,
    served: JoinHandle<usize>,
    progress: watch::Receiver<usize>,
}

impl Asking {
    fn begin<F: Future<Output = ()> + Send>(ask: impl Fn(usize) -> F + Send + Sync + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let (progressed, progress) = watch::channel(0);
        let served = tokio::spawn(async move {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                tokio::time::timeout(IN_TIME, ask(count)).await.expect("a bystander receives its response in time");
                count += 1;
                progressed.send_replace(count);
            }
            count
        });
        Self { is_over, served, progress }
    }

    async fn goes_on(&mut self, times: usize) {
        let wanted = *self.progress.borrow() + times;
        let _ = self.progress.wait_for(|count| *count >= wanted).await;
    }

    async fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let served = self.served.await.unwrap();
        assert!(served > 0, "the bystander was never served");
        served
    }
}

/// Publishes one event after the other until it is stopped.
pub(crate) struct BystanderPublisher(Asking);

impl BystanderPublisher {
    /// The type that it publishes must already be registered.
    pub(crate) fn begin(server: &Server) -> Self {
        let (client, url) = (Client::new(), format!("{}/v1/events", server.url));
        Self(Asking::begin(move |count| {
            let request = client.post(&url).json(&event(CREATED, "bystander"));
            async move {
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 201, "the bystander's event {count}: {:?}", answer.text().await);
            }
        }))
    }

    /// Waits until it has published this many more events; [`Bystander::end`] reports a failure.
    pub(crate) async fn goes_on(&mut self, events: usize) {
        self.0.goes_on(events).await;
    }

    /// Stops it; every request must have succeeded, and there must be at least one.
    pub(crate) async fn end(self) -> usize {
        self.0.end().await
    }
}

/// Reads the first events of the topic repeatedly, from another address, until it is stopped.
pub(crate) struct Reader(Asking);

impl Reader {
    /// The topic must have events.
    pub(crate) fn begin(server: &Server) -> Self {
        let (client, url) = (client_from(OTHER), format!("{}/v1/events?topic={TOPIC}&offset=0&limit=2", server.url));
        Self(Asking::begin(move |count| {
            let request = client.get(&url);
            async move {
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 200, "the reader's page {count}: {:?}", answer.text().await);
                assert!(answer.bytes().await.unwrap().len() > 100, "an empty page");
            }
        }))
    }

    /// Waits until it has read this many more pages; [`Reader::end`] reports a failure.
    pub(crate) async fn goes_on(&mut self, pages: usize) {
        self.0.goes_on(pages).await;
    }

    /// Stops it; every request must have succeeded, and there must be at least one.
    pub(crate) async fn end(self) -> usize {
        self.0.end().await
    }
}
