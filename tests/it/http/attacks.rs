//! Attacks of strangers on a broker with default settings. While each of them goes on, a bystander publishes, and every
//! request of the bystander succeeds.

mod memory;
mod schemas;

use super::{CREATED, Server, event};
use reqwest::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Publishes one event after the other until it is stopped.
pub(crate) struct Bystander {
    is_over: Arc<AtomicBool>,
    published: JoinHandle<usize>,
    progress: watch::Receiver<usize>,
}

impl Bystander {
    /// The type that it publishes must be registered.
    pub(crate) fn begin(server: &Server) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (url, over) = (format!("{}/v1/events", server.url), Arc::clone(&is_over));
        let (progressed, progress) = watch::channel(0);
        let published = tokio::spawn(async move {
            let (client, mut count) = (Client::new(), 0);
            while !over.load(Ordering::Relaxed) {
                let answer = client.post(&url).json(&event(CREATED, "bystander")).send().await.unwrap();
                assert_eq!(answer.status(), 201, "the bystander's event {count}: {:?}", answer.text().await);
                count += 1;
                progressed.send_replace(count);
            }
            count
        });
        Self { is_over, published, progress }
    }

    /// Waits until it has published so many events more; a failure of it is told by [`Bystander::end`].
    pub(crate) async fn goes_on(&mut self, events: usize) {
        let wanted = *self.progress.borrow() + events;
        let _ = self.progress.wait_for(|count| *count >= wanted).await;
    }

    /// Ends it; every one of its requests must have succeeded, and one at least.
    pub(crate) async fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let published = self.published.await.unwrap();
        assert!(published > 0, "the bystander was never served");
        published
    }
}
