//! Completing, one or several claims at a time: each has its own answer, each log makes one decision.
//!
//! - Under a key a log decides all of its items or none, as it does when they are claimed ([`super::batch`]).
//! - What was done before is told from the log: whoever had the claim then is told so again.

use super::claim::{
    ItemAnswers, ItemResults, LogItems, TRIES_MAX, check_count, group_by_log, no_answer, single_answer,
};
use super::complete_decision::{CompleteClaims, CompletionOutcome, PreparedCompletion};
use super::policy::ClaimDefaults;
use super::{Claims, LocatedClaim, done_view};
use crate::ledger::{ClaimSlot, ReplyRecorder};
use contract::{Claim, ClaimCompletion, Completion, NewEvent, Result};
use std::sync::Arc;

/// A claim to be ended.
#[derive(Clone)]
struct PendingCompletion {
    located: LocatedClaim,
    completion: ClaimCompletion,
    /// The claim, if the log says that whoever asks had done it before.
    before: Option<Claim>,
}

impl PendingCompletion {
    /// What is told of it; nothing where it must be decided again.
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
    /// Ends one claim: done.
    pub(crate) async fn complete(&self, id: &str, completion: Completion, recorder: ReplyRecorder<Claim>) -> Result<Claim> {
        let Completion { token, events, offset } = completion;
        let one = ClaimCompletion { id: id.to_owned(), token, events, offset };
        let mut answers = self.complete_several(vec![one], recorder.map_answer(single_answer)).await;
        answers.pop().unwrap_or_else(no_answer)
    }

    /// Ends several claims, each by itself.
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
        for (index, completion) in completions.into_iter().enumerate() {
            match self.locate(&completion.id) {
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

    /// Has one log decide its items, those again whose events were prepared for what has changed since; under a key, all
    /// of them.
    async fn decide_completions(
        &self,
        LogItems { place, mut items }: LogItems<PendingCompletion>,
        answers: &mut ItemAnswers<Claim>,
        recorder: &ReplyRecorder<ItemResults<Claim>>,
    ) {
        let (ledger, whole) = (self.logs.ledger(&place), recorder.is_enabled());
        for _ in 0..TRIES_MAX {
            let (mut finishing, mut asked) = (Vec::new(), Vec::new());
            for (index, ending) in items {
                match self.prepare_completion(&ending).await {
                    Ok(item) => {
                        finishing.push(item);
                        asked.push((index, ending));
                    }
                    Err(error) => answers.put(index, Err(error)),
                }
            }
            if finishing.is_empty() {
                return;
            }
            let asked = Arc::new(asked);
            let recorder = if whole { self.completion_recorder(recorder, &asked, answers) } else { ReplyRecorder::disabled() };
            let completed =
                ledger.submit_recording(CompleteClaims { items: finishing, all_or_none: whole }, recorder).await;
            let completed = completed.unwrap_or_else(|error| asked.iter().map(|_| Err(error.clone())).collect());
            items = self.answer_settled(Arc::unwrap_or_clone(asked), completed, answers, whole).await;
        }
    }

    /// Answers what a decision has settled; the rest has to be decided again, knowing more.
    async fn answer_settled(
        &self,
        asked: Vec<(usize, PendingCompletion)>,
        completed: Vec<Result<CompletionOutcome>>,
        answers: &mut ItemAnswers<Claim>,
        whole: bool,
    ) -> Vec<(usize, PendingCompletion)> {
        let is_open =
            |((_, ending), completed): (&(usize, PendingCompletion), &Result<CompletionOutcome>)| match completed {
                Ok(CompletionOutcome::Before) => ending.before.is_none(),
                Ok(CompletionOutcome::Stale) => true,
                Ok(CompletionOutcome::Now(..)) | Err(_) => false,
            };
        let is_undone = whole && asked.iter().zip(&completed).any(is_open);
        let mut again = Vec::new();
        for ((index, mut ending), completed) in asked.into_iter().zip(completed) {
            if let (Ok(CompletionOutcome::Before), None) = (&completed, &ending.before) {
                match self.done_before(&ending.located, ending.completion.token).await {
                    Ok(claim) => ending.before = Some(claim),
                    Err(error) => {
                        answers.put(index, Err(error));
                        continue;
                    }
                }
            }
            match completed.map(|completed| ending.answer(&completed, self.defaults())) {
                _ if is_undone => again.push((index, ending)),
                Ok(None) => again.push((index, ending)),
                Ok(Some(claim)) => answers.put(index, Ok(claim)),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        again
    }

    /// What is kept of a decision about all these: their answers beside those that are known already.
    fn completion_recorder(
        &self,
        recorder: &ReplyRecorder<ItemResults<Claim>>,
        asked: &Arc<Vec<(usize, PendingCompletion)>>,
        answers: &ItemAnswers<Claim>,
    ) -> ReplyRecorder<Vec<Result<CompletionOutcome>>> {
        let (asked, answers, defaults) = (Arc::clone(asked), answers.clone(), self.defaults());
        recorder.map_answer(move |completed: &Vec<Result<CompletionOutcome>>| {
            let mut answers = answers.clone();
            for ((index, ending), completed) in asked.iter().zip(completed) {
                answers.put(
                    *index,
                    match completed {
                        Ok(completed) => Ok(ending.answer(completed, defaults)?),
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
        let produced =
            self.publisher().prepare_produced(events, &placed.place, |index| format!("/events/{index}")).await?;
        Ok(PreparedCompletion {
            key: placed.key.clone(),
            topic: placed.topic.clone(),
            token: completion.token,
            produced,
            offset: completion.offset,
            is_looked_up: before.is_some(),
        })
    }

    /// Produced events say which event caused them, where they do not say otherwise.
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
