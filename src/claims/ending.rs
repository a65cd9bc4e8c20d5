//! Completing, one or several claims at a time: each has its own answer, each log makes one decision.
//!
//! - Under a key a log decides all of its items or none, as it does when they are claimed ([`super::batch`]).
//! - What was done before is told from the log: whoever had the claim then is told so again.

use super::batch::{All, Answers, Part, TRIES_MAX, by_place, check_count, no_answer, the_one};
use super::finish::{Complete, Completed, Finishing};
use super::terms::Defaults;
use super::{Claims, Placed, done};
use crate::ledger::{Keep, Slot};
use contract::{Claim, ClaimCompletion, Completion, NewEvent, Result};
use std::sync::Arc;

/// A claim to be ended.
#[derive(Clone)]
struct Ending {
    placed: Placed,
    completion: ClaimCompletion,
    /// The claim, if the log says that whoever asks had done it before.
    before: Option<Claim>,
}

impl Ending {
    /// What is told of it; nothing where it must be decided again.
    fn answer(&self, completed: &Completed, defaults: Defaults) -> Option<Claim> {
        match completed {
            Completed::Now(row, committed) => Some(Claim {
                committed_offset: committed.map(|it| it.offset),
                open_sequence: committed.and_then(|it| it.open),
                ..done(&self.placed, row, defaults)
            }),
            Completed::Before => self.before.clone(),
            Completed::Stale => None,
        }
    }
}

impl Claims<'_> {
    /// Ends one claim: done.
    pub(crate) async fn complete(&self, id: &str, completion: Completion, keep: Keep<Claim>) -> Result<Claim> {
        let Completion { token, events, offset } = completion;
        let one = ClaimCompletion { id: id.to_owned(), token, events, offset };
        let mut answers = self.complete_several(vec![one], keep.seen_through(the_one)).await;
        answers.pop().unwrap_or_else(no_answer)
    }

    /// Ends several claims, each by itself.
    pub(crate) async fn complete_batch(
        &self,
        completions: Vec<ClaimCompletion>,
        keep: Keep<All<Claim>>,
    ) -> Result<All<Claim>> {
        check_count(completions.len())?;
        Ok(self.complete_several(completions, keep).await)
    }

    async fn complete_several(&self, completions: Vec<ClaimCompletion>, keep: Keep<All<Claim>>) -> All<Claim> {
        let mut answers = Answers::of(completions.len());
        let mut found = Vec::with_capacity(completions.len());
        for (index, completion) in completions.into_iter().enumerate() {
            match self.placed(&completion.id) {
                Ok(placed) => found.push((index, placed.place.clone(), Ending { placed, completion, before: None })),
                Err(error) => answers.put(index, Err(error)),
            }
        }
        let (parts, keep) = by_place(found, keep);
        for part in parts {
            self.complete_part(part, &mut answers, &keep).await;
        }
        answers.finish()
    }

    /// Has one log decide its items, those again whose events were prepared for what has changed since; under a key, all
    /// of them.
    async fn complete_part(
        &self,
        Part { place, mut items }: Part<Ending>,
        answers: &mut Answers<Claim>,
        keep: &Keep<All<Claim>>,
    ) {
        let (ledger, whole) = (self.logs.ledger(&place), keep.is_something());
        for _ in 0..TRIES_MAX {
            let (mut finishing, mut asked) = (Vec::new(), Vec::new());
            for (index, ending) in items {
                match self.finishing(&ending).await {
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
            let keep = if whole { self.completed(keep, &asked, answers) } else { Keep::nothing() };
            let completed = ledger.submit_keeping(Complete { items: finishing, whole }, keep).await;
            let completed = completed.unwrap_or_else(|error| asked.iter().map(|_| Err(error.clone())).collect());
            items = self.settle(Arc::unwrap_or_clone(asked), completed, answers, whole).await;
        }
    }

    /// Answers what a decision has settled; the rest has to be decided again, knowing more.
    async fn settle(
        &self,
        asked: Vec<(usize, Ending)>,
        completed: Vec<Result<Completed>>,
        answers: &mut Answers<Claim>,
        whole: bool,
    ) -> Vec<(usize, Ending)> {
        let is_open = |((_, ending), completed): (&(usize, Ending), &Result<Completed>)| match completed {
            Ok(Completed::Before) => ending.before.is_none(),
            Ok(Completed::Stale) => true,
            Ok(Completed::Now(..)) | Err(_) => false,
        };
        let is_undone = whole && asked.iter().zip(&completed).any(is_open);
        let mut again = Vec::new();
        for ((index, mut ending), completed) in asked.into_iter().zip(completed) {
            if let (Ok(Completed::Before), None) = (&completed, &ending.before) {
                match self.done_before(&ending.placed, ending.completion.token).await {
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
    fn completed(
        &self,
        keep: &Keep<All<Claim>>,
        asked: &Arc<Vec<(usize, Ending)>>,
        answers: &Answers<Claim>,
    ) -> Keep<Vec<Result<Completed>>> {
        let (asked, answers, defaults) = (Arc::clone(asked), answers.clone(), self.defaults());
        keep.seen_through(move |completed: &Vec<Result<Completed>>| {
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

    async fn finishing(&self, Ending { placed, completion, before }: &Ending) -> Result<Finishing> {
        let events = self.caused(placed, &completion.events).await?;
        let produced = self.intake().bundle(events, &placed.place, |index| format!("/events/{index}")).await?;
        Ok(Finishing {
            key: placed.key.clone(),
            topic: placed.topic.clone(),
            token: completion.token,
            produced,
            offset: completion.offset,
            is_looked_up: before.is_some(),
        })
    }

    /// Produced events say which event caused them, where they do not say otherwise.
    async fn caused(&self, placed: &Placed, events: &[NewEvent]) -> Result<Vec<NewEvent>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = self.ledger(placed);
        ledger.refresh().await?;
        let cause = match ledger.claims().slot(&placed.key) {
            Some(Slot::Open(row)) => Some(row.event.to_string()),
            _ => None,
        };
        let caused = |event: &NewEvent| NewEvent {
            causation_id: event.causation_id.clone().or_else(|| cause.clone()),
            ..event.clone()
        };
        Ok(events.iter().map(caused).collect())
    }
}
