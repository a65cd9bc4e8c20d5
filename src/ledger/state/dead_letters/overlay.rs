//! Dead letters as a decision sees them: durable rows, and over them the rows that were decided since.

use super::fold::DeadLettersFold;
use super::{DeadLetterRow, DeadLetterRows, StoredDeadLetter};
use crate::ledger::decide::overlay_map::OverlayMap;
use crate::ledger::state::table::{DecidedTable, OverlayWriter};
use contract::{DeadLetterSource, DeadLetterStatus, Error, Result, Sequence};
use uuid::Uuid;

fn is_open_of(row: &DeadLetterRow, handler: &str) -> bool {
    let StoredDeadLetter { source, name, .. } = &row.letter;
    row.status == DeadLetterStatus::Open && *source == DeadLetterSource::Handler && name == handler
}

/// Dead letters decided but not durable yet.
pub(in crate::ledger) type DeadLettersOverlay = OverlayMap<Uuid, DeadLetterRow>;

fn known(durable: &DeadLetterRows, overlay: &DeadLettersOverlay, id: Uuid) -> Option<DeadLetterRow> {
    match overlay.get(&id) {
        Some(decided) => decided.cloned(),
        None => durable.known(id),
    }
}

impl DeadLettersFold for OverlayWriter<'_, DeadLetterRows> {
    fn known(&self, id: Uuid) -> Option<DeadLetterRow> {
        known(self.durable, self.overlay, id)
    }

    fn open_of(&self, handler: &str) -> Vec<DeadLetterRow> {
        let durable = self.durable.open_of(handler);
        let still = durable.into_iter().filter(|row| self.overlay.get(&row.letter.id).is_none());
        let decided = self.overlay.iter().map(|(_, row)| row).filter(|row| is_open_of(row, handler));
        still.chain(decided.cloned()).collect()
    }

    /// No decision uses it: what is delivered is chosen from the durable rows.
    fn replace(&mut self, _: Uuid, _: Option<Sequence>) {}

    fn trim(&mut self, _: u32, _: Sequence) {}

    fn put(&mut self, row: DeadLetterRow) {
        self.overlay.set(self.at, row.letter.id, Some(row));
    }
}

/// Dead letters as a decision sees them: durable or decided.
pub type DecidedDeadLetters<'a> = DecidedTable<'a, DeadLetterRows>;

impl DecidedDeadLetters<'_> {
    /// One dead letter.
    pub fn known(&self, id: Uuid) -> Result<DeadLetterRow> {
        known(&self.durable, self.overlay, id).ok_or_else(|| Error::not_found("dead letter"))
    }
}
