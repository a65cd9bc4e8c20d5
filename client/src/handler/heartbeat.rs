//! The work under its claim: kept alive by heartbeats while it lasts, cancelled with it, said to the broker when it ends.

use super::availability::{RequestKind, is_passing};
use super::event_handler::{WorkError, WorkOutput};
use super::once::WorkOutcome;
use super::work::{HeldClaim, WorkEnd, WorkerContext, time_until};
use contract::api::*;
use contract::{Claim, ClaimFailure, ClaimStatus, Completion, Error, Kind, StoredEvent};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Handing work back has this long.
const RELEASE_MAX: Duration = Duration::from_secs(3);

/// A task that does not outlive whoever waits for it.
struct WorkTask(JoinHandle<Result<WorkOutput, WorkError>>);

impl WorkTask {
    /// Ends it, and answers when it has ended.
    async fn cancel(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
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
        // A task of its own: heartbeats go on while the work is busy, and a panic is its own.
        let mut task = WorkTask(tokio::spawn(self.effect.handle(event, claim.clone())));
        tokio::select! {
            biased;
            ended = &mut task.0 => {
                let came = ended.unwrap_or_else(|cause| Err(panicked(cause)));
                self.report(&claim, came).await
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

    /// Keeps a claim alive; ends when it no longer holds.
    async fn keep_alive(&self, claim: &Claim, mut until: Instant) {
        let lease = claim.lease.std_duration();
        let every = (lease / 3).min(claim.heartbeat.std_duration().max(Duration::from_millis(1)));
        let mut next = until - lease + every;
        loop {
            sleep_until(next.min(until)).await;
            let asked = Instant::now();
            let answer = timeout_at(until, self.client.heartbeat(&claim.id, claim.token)).await;
            match answer {
                Ok(Ok(_)) => {
                    self.availability.mark_up(RequestKind::Writing);
                    until = asked + lease;
                    next = asked + every;
                }
                Ok(Err(error)) if is_passing(&error) => {
                    let wait = self.availability.mark_down(&error, RequestKind::Writing);
                    // Sooner than a pause may last: there is something to lose.
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

    /// Says what came of the work.
    async fn report(&self, claim: &Claim, came: Result<WorkOutput, WorkError>) -> WorkEnd {
        match came {
            Ok(done) => self.complete(claim, done).await,
            Err(failed) => self.fail(claim, failed).await,
        }
    }

    async fn complete(&self, claim: &Claim, done: WorkOutput) -> WorkEnd {
        let offset = self.progress().once_settled(claim.sequence);
        let completion = Completion { token: claim.token, events: done.events, offset };
        let answer =
            self.retry_until_answered(|| self.client.complete_claim(&claim.id, completion.clone(), None)).await;
        match answer {
            Ok(done) => {
                let mut progress = self.progress();
                progress.settle(claim.sequence);
                // The broker may have kept it back, for an event that another runner has begun.
                let committed = done.committed_offset.or(offset);
                committed.into_iter().for_each(|offset| progress.committed(offset));
                WorkEnd::Settled(WorkOutcome::Done)
            }
            Err(error) if matches!(error.kind(), Kind::ClaimLost | Kind::NotFound) => self.claim_lost(claim, &error),
            Err(error) if is_passing(&error) => WorkEnd::Unavailable(error),
            // What the work has produced is not taken: that is a failure of the work.
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
        match self.retry_until_answered(|| self.client.fail_claim(&claim.id, failure.clone())).await {
            Ok(claim) => end_of_claim(&claim),
            Err(error) if matches!(error.kind(), Kind::ClaimLost | Kind::NotFound) => self.claim_lost(claim, &error),
            Err(error) if is_passing(&error) => WorkEnd::Unavailable(error),
            Err(error) => WorkEnd::Refused(error),
        }
    }

    /// Somebody else has the claim, or had: whoever asks again is told how it stands.
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

/// How an event stands whose work has failed.
fn end_of_claim(claim: &Claim) -> WorkEnd {
    match claim.status {
        ClaimStatus::Dead => WorkEnd::Settled(WorkOutcome::DeadLetter),
        ClaimStatus::Done => WorkEnd::Settled(WorkOutcome::AlreadyDone),
        _ => claim.retry_at.map_or(WorkEnd::Blocked, |at| WorkEnd::Again(time_until(at))),
    }
}

/// Work that panicked has failed.
fn panicked(cause: tokio::task::JoinError) -> WorkError {
    let said = match cause.try_into_panic() {
        Ok(said) => said
            .downcast::<String>()
            .map(|text| *text)
            .or_else(|said| said.downcast::<&'static str>().map(|text| (*text).to_owned())),
        Err(_) => return WorkError::new("Cancelled", "The work was cancelled."),
    };
    WorkError::new("Panic", said.unwrap_or_else(|_| "The work panicked.".to_owned()))
}
