//! The decisions about dead letters, in the order of the log that they are in.

use crate::events::{ProducedEvents, ProducedOutcome};
use crate::ledger::{Command, DeadLetterRow, Decision, Entry};
use contract::{BulkResolveOutcome, DeadLetterSource, DeadLetterStatus, Error, Kind, Result, Sequence};
use uuid::Uuid;

/// How an operator resolves a dead letter.
pub(super) enum LetterAction {
    Redrive { reason: Option<String>, change: Option<CorrectedEvent> },
    Discard { reason: String },
}

/// A corrected event that replaces the old one.
pub(super) struct CorrectedEvent {
    pub(super) id: Uuid,
    /// The original of the old event, if that is a republished copy.
    pub(super) original: Option<Sequence>,
    pub(super) events: ProducedEvents,
}

/// The result of a resolution.
pub(super) enum ResolveOutcome {
    Done(Box<DeadLetterRow>),
    /// The corrected event must be prepared again.
    Stale,
}

/// Resolves one dead letter.
pub(super) struct ResolveLetter {
    pub(super) id: Uuid,
    pub(super) by: String,
    pub(super) action: LetterAction,
}

impl Command for ResolveLetter {
    type Answer = ResolveOutcome;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<ResolveOutcome> {
        let row = decision.dead_letters().known(self.id)?;
        check_open(&row)?;
        if matches!(self.action, LetterAction::Redrive { .. }) && is_orphaned(&row, decision) {
            return Err(orphaned());
        }
        if let LetterAction::Redrive { change: Some(change), .. } = &self.action
            && change.events.decide(decision)? == ProducedOutcome::Stale
        {
            return Ok(ResolveOutcome::Stale);
        }
        decision.add_entry(entry(&row, &self.by, &self.action))?;
        decision.dead_letters().known(self.id).map(|row| ResolveOutcome::Done(Box::new(row)))
    }

    fn bytes(&self) -> usize {
        match &self.action {
            LetterAction::Redrive { change: Some(change), .. } => change.events.bytes(),
            _ => self.by.len(),
        }
    }
}

/// Resolves several dead letters; counts those that were open, and those that cannot be redriven.
pub(super) struct ResolveLetters {
    pub(super) ids: Vec<Uuid>,
    pub(super) by: String,
    pub(super) action: LetterAction,
}

impl Command for ResolveLetters {
    type Answer = BulkResolveOutcome;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<BulkResolveOutcome> {
        let mut resolved = BulkResolveOutcome::default();
        for id in &self.ids {
            let row = decision.dead_letters().known(*id).ok().filter(|row| row.status == DeadLetterStatus::Open);
            match row {
                Some(row) if matches!(self.action, LetterAction::Redrive { .. }) && is_orphaned(&row, decision) => {
                    resolved.skipped += 1;
                }
                Some(row) => {
                    decision.add_entry(entry(&row, &self.by, &self.action))?;
                    resolved.count += 1;
                }
                None => (),
            }
        }
        Ok(resolved)
    }

    fn bytes(&self) -> usize {
        self.ids.len() * 512
    }
}

/// A dead letter is resolved once.
pub(super) fn check_open(row: &DeadLetterRow) -> Result<()> {
    match row.status {
        DeadLetterStatus::Open => Ok(()),
        DeadLetterStatus::Redriven => Err(already_resolved("This dead letter was redriven already.")),
        DeadLetterStatus::Discarded => Err(already_resolved("This dead letter was discarded already.")),
    }
}

/// Whether the subscription of this job was deleted, so that nothing could deliver it.
fn is_orphaned(row: &DeadLetterRow, decision: &Decision<'_>) -> bool {
    row.letter.job.is_some_and(|job| !decision.dispatch().has_lane(job.lane))
}

/// The refusal to redrive a dead letter whose subscription was deleted.
pub(super) fn orphaned() -> Error {
    already_resolved(
        "The subscription of this dead letter was deleted, so nothing would deliver it; discard the letter.",
    )
}

fn already_resolved(detail: &'static str) -> Error {
    Error::new(Kind::InvalidState, detail)
}

fn entry(row: &DeadLetterRow, by: &str, action: &LetterAction) -> Entry {
    let dead_letter = row.letter.id;
    let claim = (row.letter.source == DeadLetterSource::Handler).then(|| row.letter.key());
    let by = by.to_owned();
    match action {
        LetterAction::Redrive { reason, change } => {
            let new_event = change.as_ref().map(|change| change.id);
            let original = change.as_ref().and_then(|change| change.original);
            let (reason, job) = (reason.clone(), row.letter.job);
            Entry::Redriven { letter: dead_letter, claim, by, reason, new_event, original, job }
        }
        LetterAction::Discard { reason } => {
            Entry::Discarded { letter: dead_letter, claim, by, reason: reason.clone(), job: row.letter.job }
        }
    }
}
