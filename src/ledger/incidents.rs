//! Incidents: failures after which the broker has to be opened again.
//!
//! - One value per broker, shared by its ledgers and tasks. The first incident counts; later ones are its consequences.
//! - A task that panics is an incident: the state that it left half changed is rebuilt from the log.

use contract::{Error, Kind};
use futures_util::FutureExt;
use log::LogError;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

/// The first incident, if there is one.
#[derive(Debug, Default)]
pub struct IncidentReporter {
    first: watch::Sender<Option<Error>>,
}

impl IncidentReporter {
    /// Reports that the broker cannot continue.
    pub fn report(&self, error: &Error) {
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| error.clone());
            is_first
        });
    }

    /// The first incident.
    #[must_use]
    pub fn first(&self) -> Option<Error> {
        self.first.borrow().clone()
    }

    /// Waits for the first incident.
    pub async fn reported(&self) -> Error {
        let mut first = self.first.subscribe();
        let reported = first.wait_for(Option::is_some).await.ok().and_then(|first| first.clone());
        match reported {
            Some(error) => error,
            // The sender is a field of this value, so it cannot be dropped.
            None => std::future::pending().await,
        }
    }

    /// Spawns `task`; its panic is an incident.
    pub fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let incidents = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                incidents.report_panic(name, panic.as_ref());
            }
        })
    }

    /// Awaits the end of a task that was spawned elsewhere; its panic is an incident.
    pub fn ended(&self, name: &'static str, ended: Result<(), JoinError>) {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            self.report_panic(name, panic.as_ref());
        }
    }

    /// Reports first and logs then: a panic that cannot be logged is still an incident.
    fn report_panic(&self, name: &'static str, panic: &(dyn Any + Send)) {
        let (error, message) = panicked(name, panic);
        self.report(&error);
        log_panic(name, &message);
    }
}

/// Whether the state of a broker is still right after this incident, so that it can be read until the broker is opened
/// again: a failed write did not change it.
#[must_use]
pub fn leaves_state_intact(incident: &Error) -> bool {
    let cause = std::error::Error::source(incident).and_then(|cause| cause.downcast_ref::<LogError>());
    matches!(cause, Some(LogError::Poisoned(_)))
}

/// The error of a panic, and the panic's message.
pub(super) fn panicked(name: &'static str, panic: &(dyn Any + Send)) -> (Error, String) {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    let detail =
        format!("A task of the broker ({name}) ended unexpectedly; the broker opens its logs again by itself.");
    (Error::new(Kind::Unavailable, detail).with_retry_after(5), message)
}

pub(super) fn log_panic(name: &'static str, message: &str) {
    tracing::error!(task = name, panic = message, "a task of the broker panicked; the broker has to be opened again");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_reported_by_name_and_the_first_incident_counts() {
        let incidents = Arc::new(IncidentReporter::default());
        incidents.spawn("calm", async {}).await.unwrap();
        assert!(incidents.first().is_none());
        incidents.spawn("nervous", async { panic!("boo") }).await.unwrap();
        let first = incidents.reported().await;
        assert!(first.detail().contains("(nervous)"), "{first}");
        incidents.ended("later", tokio::spawn(async { panic!("boo again") }).await);
        assert_eq!(incidents.first().unwrap().detail(), first.detail());
    }
}
