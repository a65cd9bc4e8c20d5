//! What is decided about dead letters, in the order of the log they live in.

use crate::events::{Bundle, Bundled};
use crate::ledger::{Command, Decision, Entry, LetterRow};
use contract::{Error, Kind, LetterSource, LetterStatus, LettersResolved, Result};
use uuid::Uuid;

/// What somebody does about a letter.
pub(super) enum Deed {
    Redrive { reason: Option<String>, change: Option<Change> },
    Discard { reason: String },
}

/// A corrected event in the place of the old one.
pub(super) struct Change {
    pub(super) id: Uuid,
    pub(super) bundle: Bundle,
}

/// What became of it.
pub(super) enum Dealt {
    Done(Box<LetterRow>),
    /// The corrected event must be prepared again.
    Stale,
}

/// Deals with one letter.
pub(super) struct Deal {
    pub(super) id: Uuid,
    pub(super) by: String,
    pub(super) deed: Deed,
}

impl Command for Deal {
    type Answer = Dealt;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Dealt> {
        let row = decision.letters().known(self.id)?;
        check_open(&row)?;
        if matches!(self.deed, Deed::Redrive { .. }) && is_orphaned(&row, decision) {
            return Err(orphaned());
        }
        if let Deed::Redrive { change: Some(change), .. } = &self.deed
            && change.bundle.decide(decision)? == Bundled::Stale
        {
            return Ok(Dealt::Stale);
        }
        decision.add_entry(entry(&row, &self.by, &self.deed))?;
        decision.letters().known(self.id).map(|row| Dealt::Done(Box::new(row)))
    }

    fn bytes(&self) -> usize {
        match &self.deed {
            Deed::Redrive { change: Some(change), .. } => change.bundle.bytes(),
            _ => self.by.len(),
        }
    }
}

/// Deals with several letters, those of them that are still open and may be dealt with so; counts both.
pub(super) struct Many {
    pub(super) ids: Vec<Uuid>,
    pub(super) by: String,
    pub(super) deed: Deed,
}

impl Command for Many {
    type Answer = LettersResolved;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<LettersResolved> {
        let mut resolved = LettersResolved::default();
        for id in &self.ids {
            let row = decision.letters().known(*id).ok().filter(|row| row.status == LetterStatus::Open);
            match row {
                Some(row) if matches!(self.deed, Deed::Redrive { .. }) && is_orphaned(&row, decision) => {
                    resolved.skipped += 1;
                }
                Some(row) => {
                    decision.add_entry(entry(&row, &self.by, &self.deed))?;
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

/// A letter is dealt with once.
pub(super) fn check_open(row: &LetterRow) -> Result<()> {
    match row.status {
        LetterStatus::Open => Ok(()),
        LetterStatus::Redriven => Err(dealt_with("This dead letter was redriven already.")),
        LetterStatus::Discarded => Err(dealt_with("This dead letter was discarded already.")),
    }
}

/// Whether the subscription whose job this was is gone, with everything that could deliver it.
fn is_orphaned(row: &LetterRow, decision: &Decision<'_>) -> bool {
    row.letter.job.is_some_and(|job| !decision.dispatch().has_lane(job.lane))
}

/// The refusal of a letter that nobody could deliver.
pub(super) fn orphaned() -> Error {
    dealt_with("The subscription of this dead letter was deleted, so nothing would deliver it; discard the letter.")
}

fn dealt_with(detail: &'static str) -> Error {
    Error::new(Kind::InvalidState, detail)
}

fn entry(row: &LetterRow, by: &str, deed: &Deed) -> Entry {
    let letter = row.letter.id;
    let claim = (row.letter.source == LetterSource::Handler).then(|| row.letter.key());
    let by = by.to_owned();
    match deed {
        Deed::Redrive { reason, change } => {
            let new_event = change.as_ref().map(|change| change.id);
            Entry::Redriven { letter, claim, by, reason: reason.clone(), new_event, job: row.letter.job }
        }
        Deed::Discard { reason } => Entry::Discarded { letter, claim, by, reason: reason.clone(), job: row.letter.job },
    }
}
