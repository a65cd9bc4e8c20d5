//! Work under a claim: heartbeats keep the claim alive, a lost claim cancels the work, and the result is reported.

use super::availability::{RequestKind, is_passing};
use super::event_handler::{WorkError, WorkOutput};
use super::once::WorkOutcome;
use super::work::{HeldClaim, WorkEnd, WorkerContext, time_until};
use contract::api::*;
use contract::{Claim, ClaimFailure, ClaimStatus, Completion, Error, Kind, StoredEvent};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long releasing a claim may take.
const RELEASE_MAX: Duration = Duration::from_secs(3);

/// A task that is aborted when it is dropped.
struct WorkTask(JoinHandle<Result<WorkOutput, WorkError>>);

impl WorkTask {
    /// Aborts it, and waits until it has ended.
    async fn cancel(mut self) {
        self.0.abort();
        if let Err(error) = (&mut self.0).await
            && !error.is_cancelled()
        {
            tracing::debug!(%error, "the cancelled work panicked");
        }
    }
}

impl Drop for WorkTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl WorkerContext {
    /// Works on an event under its claim.
    pub(super) async fn work_under_claim(&self, event: StoredEvent, held_claim: HeldClaim) -> WorkEnd {
        let HeldClaim { claim, until } = held_claim;
        // A separate task: heartbeats continue while the work is busy, and a panic does not end the runner.
        let mut task = WorkTask(tokio::spawn(self.effect.handle(event, claim.clone())));
        tokio::select! {
            biased;
            ended = &mut task.0 => {
                let result = ended.unwrap_or_else(|cause| Err(panicked(cause)));
                self.report(&claim, result).await
            }
            () = self.keep_alive(&claim, until) => {
                task.cancel().await;
                WorkEnd::Again(Duration::ZERO)
            }
            () = self.interrupted() => {
                task.cancel().await;
                self.release(&claim).await
            }
        }
    }

    /// Keeps a claim alive; returns when it is lost.
    async fn keep_alive(&self, claim: &Claim, mut until: Instant) {
        let lease = claim.lease.std_duration();
        let every = (lease / 3).min(claim.heartbeat.std_duration().max(Duration::from_millis(1)));
        let mut next = until - lease + every;
        loop {
            sleep_until(next.min(until)).await;
            let sent_at = Instant::now();
            let answer = timeout_at(until, self.client.heartbeat(&claim.id, claim.token)).await;
            match answer {
                Ok(Ok(_)) => {
                    self.availability.mark_up(RequestKind::Writing);
                    until = sent_at + lease;
                    next = sent_at + every;
                }
                Ok(Err(error)) if is_passing(&error) => {
                    let wait = self.availability.mark_down(&error, RequestKind::Writing);
                    // Sooner than the end of the pause, since the lease expires.
                    next = Instant::now() + wait.min(every / 2);
                }
                Ok(Err(error)) => {
                    tracing::warn!(handler = self.name, sequence = claim.sequence.get(), %error, "the claim is lost");
                    return;
                }
                Err(_) => (),
            }
            if Instant::now() >= until {
                tracing::warn!(handler = self.name, sequence = claim.sequence.get(), "the claim was not kept alive");
                return;
            }
        }
    }

    /// Reports the result of the work.
    async fn report(&self, claim: &Claim, result: Result<WorkOutput, WorkError>) -> WorkEnd {
        match result {
            Ok(done) => self.complete(claim, done).await,
            Err(failed) => self.fail(claim, failed).await,
        }
    }

    async fn complete(&self, claim: &Claim, done: WorkOutput) -> WorkEnd {
        let offset = self.progress().once_settled(claim.sequence);
        let completion = Completion { token: claim.token, events: done.events, offset };
        let answer =
            self.retry_until_response(|| self.client.complete_claim(&claim.id, completion.clone(), None)).await;
        match answer {
            Ok(done) => {
                let mut progress = self.progress();
                progress.settle(claim.sequence);
                // The broker may have committed a lower offset, because of an event that another runner works on.
                let committed = done.committed_offset.or(offset);
                committed.into_iter().for_each(|offset| progress.committed(offset));
                WorkEnd::Settled(WorkOutcome::Done)
            }
            Err(error) if matches!(error.kind(), Kind::ClaimLost | Kind::NotFound) => self.claim_lost(claim, &error),
            Err(error) if is_passing(&error) => WorkEnd::Unavailable(error),
            // A refused produced event is a failure of the work.
            Err(error) => self.fail(claim, WorkError::new(error.kind().code(), error.to_string())).await,
        }
    }

    async fn fail(&self, claim: &Claim, failed: WorkError) -> WorkEnd {
        let WorkError { error, retryable } = failed;
        tracing::warn!(
            handler = self.name,
            sequence = claim.sequence.get(),
            attempt = claim.attempt,
            class = error.class,
            message = error.message,
            "the work failed"
        );
        let failure = ClaimFailure { token: claim.token, error, retryable: Some(retryable) };
        match self.retry_until_response(|| self.client.fail_claim(&claim.id, failure.clone())).await {
            Ok(claim) => end_of_claim(&claim),
            Err(error) if matches!(error.kind(), Kind::ClaimLost | Kind::NotFound) => self.claim_lost(claim, &error),
            Err(error) if is_passing(&error) => WorkEnd::Unavailable(error),
            Err(error) => WorkEnd::Refused(error),
        }
    }

    /// Another worker has the claim, or had it: the next claim request returns its state.
    fn claim_lost(&self, claim: &Claim, error: &Error) -> WorkEnd {
        tracing::warn!(handler = self.name, sequence = claim.sequence.get(), %error, "the claim was lost meanwhile");
        WorkEnd::Again(Duration::ZERO)
    }

    /// Hands work back that there is no time for: somebody else may take it at once, and no attempt is spent.
    async fn release(&self, claim: &Claim) -> WorkEnd {
        let until = Instant::now() + RELEASE_MAX;
        if let Ok(Err(error)) = timeout_at(until, self.client.release_claim(&claim.id, claim.token)).await {
            // Its lease ends by itself.
            tracing::warn!(handler = self.name, sequence = claim.sequence.get(), %error, "the claim was not given back");
        }
        WorkEnd::Again(Duration::ZERO)
    }
}

/// The end of an event whose work has failed.
fn end_of_claim(claim: &Claim) -> WorkEnd {
    match claim.status {
        ClaimStatus::Dead => WorkEnd::Settled(WorkOutcome::DeadLetter),
        ClaimStatus::Done => WorkEnd::Settled(WorkOutcome::AlreadyDone),
        _ => claim.retry_at.map_or(WorkEnd::Blocked, |at| WorkEnd::Again(time_until(at))),
    }
}

/// Work that panicked has failed.
fn panicked(cause: tokio::task::JoinError) -> WorkError {
    let payload = match cause.try_into_panic() {
        Ok(payload) => payload
            .downcast::<String>()
            .map(|text| *text)
            .or_else(|payload| payload.downcast::<&'static str>().map(|text| (*text).to_owned())),
        Err(_) => return WorkError::new("Cancelled", "The work was cancelled."),
    };
    WorkError::new("Panic", payload.unwrap_or_else(|_| "The work panicked.".to_owned()))
}
