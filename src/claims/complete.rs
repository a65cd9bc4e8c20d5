//! Completing, one or several claims at a time: each has its own answer, each log makes one decision.
//!
//! - Under an idempotency key a log decides all of its items or none, as it does when they are claimed ([`super::claim`]).
//! - A repeated `done` is answered from the log, which has the entry of the finished claim.

use super::claim::{ItemAnswers, ItemResults, LogItems, check_count, group_by_log, no_answer, single_answer};
use super::complete_decision::{CompleteClaims, CompletionOutcome, PreparedCompletion};
use super::policy::ClaimDefaults;
use super::{Claims, LocatedClaim, done_view};
use crate::ledger::{ClaimSlot, Ledger, ReplyRecorder, changed_concurrently, decide_while_unknown};
use crate::secrets::InspectedParts;
use contract::{Claim, ClaimCompletion, Completion, NewEvent, Result};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A claim to be completed.
#[derive(Clone)]
struct PendingCompletion {
    located: LocatedClaim,
    completion: ClaimCompletion,
    /// The claim, if the log says that the caller's token has finished it before.
    before: Option<Claim>,
}

impl PendingCompletion {
    /// The answer; `None` if it must be decided again.
    fn answer(&self, completed: &CompletionOutcome, defaults: ClaimDefaults) -> Option<Claim> {
        match completed {
            CompletionOutcome::Now(row, committed) => Some(Claim {
                committed_offset: committed.map(|it| it.offset),
                open_sequence: committed.and_then(|it| it.open),
                ..done_view(&self.located, row, defaults)
            }),
            CompletionOutcome::Before => self.before.clone(),
            CompletionOutcome::Stale => None,
        }
    }
}

impl Claims<'_> {
    /// Completes one claim.
    pub(crate) async fn complete(
        &self,
        id: &str,
        completion: Completion,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let Completion { token, events, offset } = completion;
        let one = ClaimCompletion { id: id.to_owned(), token, events, offset };
        let mut answers = self.complete_several(vec![one], recorder.map_answer(single_answer)).await;
        answers.pop().unwrap_or_else(no_answer)
    }

    /// Completes several claims, each by itself.
    pub(crate) async fn complete_batch(
        &self,
        completions: Vec<ClaimCompletion>,
        recorder: ReplyRecorder<ItemResults<Claim>>,
    ) -> Result<ItemResults<Claim>> {
        check_count(completions.len())?;
        Ok(self.complete_several(completions, recorder).await)
    }

    async fn complete_several(
        &self,
        completions: Vec<ClaimCompletion>,
        recorder: ReplyRecorder<ItemResults<Claim>>,
    ) -> ItemResults<Claim> {
        let mut answers = ItemAnswers::of(completions.len());
        let mut found = Vec::with_capacity(completions.len());
        let mut is_refreshed = false;
        for (index, completion) in completions.into_iter().enumerate() {
            let mut located = self.locate(&completion.id);
            if self.context.refresh_once(&mut located, &mut is_refreshed).await {
                located = self.locate(&completion.id);
            }
            match located {
                Ok(placed) => found.push((
                    index,
                    placed.place.clone(),
                    PendingCompletion { located: placed, completion, before: None },
                )),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        let (parts, recorder) = group_by_log(found, recorder);
        for part in parts {
            self.decide_completions(part, &mut answers, &recorder).await;
        }
        answers.finish()
    }

    /// Has one log decide its items. Those whose events were prepared for outdated definitions are decided again; under an
    /// idempotency key, all of them.
    async fn decide_completions(
        &self,
        LogItems { place, items }: LogItems<PendingCompletion>,
        answers: &mut ItemAnswers<Claim>,
        recorder: &ReplyRecorder<ItemResults<Claim>>,
    ) {
        let ledger = self.context.logs.ledger(&place);
        let decided = decide_while_unknown((items, answers), |(items, answers)| async move {
            let again = self.decide_completions_once(ledger, items, answers, recorder).await;
            Ok(if again.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue((again, answers)) })
        });
        if let Ok(ControlFlow::Continue((items, answers))) = decided.await {
            answers.put_all(&items, &changed_concurrently());
        }
    }

    /// Returns the items that must be decided again.
    async fn decide_completions_once(
        &self,
        ledger: &Ledger,
        items: Vec<(usize, PendingCompletion)>,
        answers: &mut ItemAnswers<Claim>,
        recorder: &ReplyRecorder<ItemResults<Claim>>,
    ) -> Vec<(usize, PendingCompletion)> {
        let (mut prepared, mut pending) = (Vec::new(), Vec::new());
        let mut is_refreshed = false;
        for (index, completion) in items {
            let mut item = self.prepare_completion(&completion).await;
            if self.context.refresh_once(&mut item, &mut is_refreshed).await {
                item = self.prepare_completion(&completion).await;
            }
            match item {
                Ok(item) => {
                    prepared.push(item);
                    pending.push((index, completion));
                }
                Err(error) => answers.put(index, Err(error)),
            }
        }
        if prepared.is_empty() {
            return Vec::new();
        }
        let (pending, all_or_none) = (Arc::new(pending), recorder.is_enabled());
        let recorder = match all_or_none {
            true => self.completion_recorder(recorder, &pending, answers),
            false => ReplyRecorder::disabled(),
        };
        let completed = ledger.submit_recording(CompleteClaims { items: prepared, all_or_none }, recorder).await;
        let completed = completed.unwrap_or_else(|error| pending.iter().map(|_| Err(error.clone())).collect());
        self.answer_settled(Arc::unwrap_or_clone(pending), completed, answers, all_or_none).await
    }

    /// Answers the items that are decided; returns those that must be decided again.
    async fn answer_settled(
        &self,
        pending: Vec<(usize, PendingCompletion)>,
        completed: Vec<Result<CompletionOutcome>>,
        answers: &mut ItemAnswers<Claim>,
        all_or_none: bool,
    ) -> Vec<(usize, PendingCompletion)> {
        let is_open =
            |((_, item), completed): (&(usize, PendingCompletion), &Result<CompletionOutcome>)| match completed {
                Ok(CompletionOutcome::Before) => item.before.is_none(),
                Ok(CompletionOutcome::Stale) => true,
                Ok(CompletionOutcome::Now(..)) | Err(_) => false,
            };
        let is_undone = all_or_none && pending.iter().zip(&completed).any(is_open);
        let mut again = Vec::new();
        for ((index, mut item), completed) in pending.into_iter().zip(completed) {
            if let (Ok(CompletionOutcome::Before), None) = (&completed, &item.before) {
                match self.done_before(&item.located, item.completion.token).await {
                    Ok(claim) => item.before = Some(claim),
                    Err(error) => {
                        answers.put(index, Err(error));
                        continue;
                    }
                }
            }
            match completed.map(|completed| item.answer(&completed, self.defaults())) {
                _ if is_undone => again.push((index, item)),
                Ok(None) => again.push((index, item)),
                Ok(Some(claim)) => answers.put(index, Ok(claim)),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        again
    }

    /// The reply to store with a decision: its answers, and those that are known already. `None` if it is to be repeated.
    fn completion_recorder(
        &self,
        recorder: &ReplyRecorder<ItemResults<Claim>>,
        pending: &Arc<Vec<(usize, PendingCompletion)>>,
        answers: &ItemAnswers<Claim>,
    ) -> ReplyRecorder<Vec<Result<CompletionOutcome>>> {
        let (pending, answers, defaults) = (Arc::clone(pending), answers.clone(), self.defaults());
        recorder.map_answer(move |completed: &Vec<Result<CompletionOutcome>>| {
            let mut answers = answers.clone();
            for ((index, item), completed) in pending.iter().zip(completed) {
                answers.put(
                    *index,
                    match completed {
                        Ok(completed) => Ok(item.answer(completed, defaults)?),
                        Err(error) => Err(error.clone()),
                    },
                );
            }
            Some(Ok(answers.finish()))
        })
    }

    async fn prepare_completion(
        &self,
        PendingCompletion { located: placed, completion, before }: &PendingCompletion,
    ) -> Result<PreparedCompletion> {
        let events = self.with_causation(placed, &completion.events).await?;
        let pointer = |index| format!("/events/{index}");
        let produced = self.context.prepare_produced(events, &placed.place, pointer, InspectedParts::All).await?;
        Ok(PreparedCompletion {
            key: placed.key.clone(),
            topic: placed.topic.clone(),
            token: completion.token,
            produced,
            offset: completion.offset,
            is_looked_up: before.is_some(),
        })
    }

    /// Produced events name the claimed event as their cause, unless they name another.
    async fn with_causation(&self, located: &LocatedClaim, events: &[NewEvent]) -> Result<Vec<NewEvent>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = self.ledger(located);
        ledger.refresh().await?;
        let cause = match ledger.claims().slot(&located.key) {
            Some(ClaimSlot::Open(row)) => Some(row.event.to_string()),
            _ => None,
        };
        let caused = |event: &NewEvent| NewEvent {
            causation_id: event.causation_id.clone().or_else(|| cause.clone()),
            ..event.clone()
        };
        Ok(events.iter().map(caused).collect())
    }
}
