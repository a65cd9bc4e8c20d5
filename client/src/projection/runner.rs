//! The runner: reads, applies, reports the checkpoint, and starts again when the projection was reset.
//!
//! ```text
//!   register ──▶ begin ──▶ read a page ──▶ apply each ──▶ report checkpoint ──┐
//!                  ▲        ▲   (waits if there is none)                       │
//!                  │        └──────────────────────────────────────────────────┘
//!                  └── another generation has started
//! ```
//!
//! - After the stop signal it finishes the current event, reports the checkpoint, and ends.

use super::reader::{FollowEnd, ProjectionPage, ProjectionReader, ReportedOffset};
use super::{Checkpoint, ProjectionError, ProjectionView};
use crate::client::Client;
use crate::retry::{RetryPolicy, jitter};
use crate::stop::{StopSignal, UntilStopped};
use contract::{NewProjection, Offset, StoredEvent, limits};
use std::time::Duration;
use tokio::time::Instant;

/// The options of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectionOptions {
    /// How often the view tries to apply an event, and the waits between tries.
    pub apply: RetryPolicy,
    /// The maximum number of events in a page.
    pub page_events: usize,
    /// How long it waits for events before it checks for a reset; whole seconds, at least one.
    pub idle: Duration,
    /// The longest interval between two reports of the checkpoint while a page is applied.
    pub report_every: Duration,
}

impl Default for ProjectionOptions {
    fn default() -> Self {
        Self {
            apply: RetryPolicy {
                tries_max: 5,
                first_wait: Duration::from_millis(100),
                wait_max: Duration::from_secs(10),
            },
            page_events: limits::READ_EVENTS_MAX,
            idle: Duration::from_secs(2),
            report_every: Duration::from_secs(1),
        }
    }
}

/// Keeps one view up to date.
#[derive(Debug)]
pub struct ProjectionRunner<P> {
    pub(super) reading: ProjectionReader,
    pub(super) view: P,
}

impl<P: ProjectionView> ProjectionRunner<P> {
    /// A runner of the projection with this name, which is registered when the runner starts.
    pub fn new(client: Client, name: impl Into<String>, definition: NewProjection, view: P) -> Self {
        Self {
            reading: ProjectionReader { client, name: name.into(), definition, options: ProjectionOptions::default() },
            view,
        }
    }

    /// The same runner with these options.
    #[must_use]
    pub const fn with(mut self, options: ProjectionOptions) -> Self {
        self.reading.options = options;
        self
    }

    /// The view.
    pub const fn view(&self) -> &P {
        &self.view
    }

    /// Keeps the view up to date until `stop` ends. Each projection has a runner of its own: one that fails leaves the others
    /// running.
    pub async fn run(&mut self, stop: impl Future<Output = ()> + Send) -> Result<(), ProjectionError> {
        let mut stop = StopSignal::new(stop);
        let registered = self.reading.retry_until_response(&mut stop, || self.reading.register());
        let Some(mut projection) = registered.await? else { return Ok(()) };
        let mut was_reset = false;
        loop {
            let begun = self.begin(&projection, was_reset, &mut stop).await?;
            let Some(at) = begun else { return Ok(()) };
            match self.follow(at, projection.checkpoint, &mut stop).await? {
                FollowEnd::Stopped => return Ok(()),
                FollowEnd::Reset(now) => projection = now,
            }
            was_reset = true;
        }
    }

    /// Applies the events after `at`.
    async fn follow(
        &mut self,
        mut at: Checkpoint,
        reported: Offset,
        stop: &mut StopSignal<'_>,
    ) -> Result<FollowEnd, ProjectionError> {
        let mut reported = ReportedOffset { offset: reported, at: Instant::now() };
        // The view may be ahead of the broker's checkpoint if the program was killed before its report.
        if let Some(now) = self.reading.report_checkpoint(at, &mut reported).await? {
            return Ok(FollowEnd::Reset(now));
        }
        loop {
            let next = self.reading.retry_until_response(stop, || self.reading.next_page(at.offset));
            let Some(page) = next.await? else { return Ok(FollowEnd::Stopped) };
            let ended = match page.items.is_empty() {
                true => self.reading.idle(&mut at, page.next, &mut reported, stop).await?,
                false => self.apply_page(&mut at, page, &mut reported, stop).await?,
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    async fn apply_page(
        &mut self,
        at: &mut Checkpoint,
        page: ProjectionPage,
        reported: &mut ReportedOffset,
        stop: &mut StopSignal<'_>,
    ) -> Result<Option<FollowEnd>, ProjectionError> {
        for event in &page.items {
            let next = Checkpoint { offset: self.reading.number_of(event), ..*at };
            match self.apply(event, next, stop).await {
                Ok(UntilStopped::Done(())) => *at = next,
                Ok(UntilStopped::Stopped) => return self.reading.report_last(*at, reported).await.map(Some),
                Err(poison) => {
                    // The error of the event is returned, even if the checkpoint cannot be reported.
                    if let Err(error) = self.reading.report_checkpoint(*at, reported).await {
                        tracing::warn!(%error, "the checkpoint before the failed event is not reported");
                    }
                    return Err(poison);
                }
            }
            if stop.is_stopped() {
                return self.reading.report_last(*at, reported).await.map(Some);
            }
            if reported.at.elapsed() >= self.reading.options.report_every
                && let Some(now) = self.reading.report_checkpoint(*at, reported).await?
            {
                return Ok(Some(FollowEnd::Reset(now)));
            }
        }
        at.offset = page.next;
        Ok(self.reading.report_checkpoint(*at, reported).await?.map(FollowEnd::Reset))
    }

    /// Applies one event, with retries.
    async fn apply(
        &mut self,
        event: &StoredEvent,
        at: Checkpoint,
        stop: &mut StopSignal<'_>,
    ) -> Result<UntilStopped<()>, ProjectionError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(cause) = self.view.apply(event, at).await else { return Ok(UntilStopped::Done(())) };
            let cause = cause.into();
            let Some(wait) = self.reading.options.apply.wait_after(tries, None, jitter()) else {
                let topic = event.event().ok().map(|event| event.topic);
                let (projection, sequence, id) = (self.reading.name.clone(), event.sequence, event.id);
                return Err(ProjectionError::Poison { projection, topic, sequence, id, cause });
            };
            tracing::warn!(projection = self.reading.name, sequence = event.sequence.get(), %cause, tries, "not applied; retrying");
            if stop.stopped_within(wait).await {
                return Ok(UntilStopped::Stopped);
            }
        }
    }
}
