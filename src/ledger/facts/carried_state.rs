//! The tables of the state as facts of the log.
//!
//! A repair can lose facts that the last checkpoint still contains. From then on the checkpoint would be more than a
//! cache, and any later fold of the whole log (an upgrade, a restored backup, lost tables) would forget them. So
//! `repair` appends all tables as they are, and folding the log leads to the same state without the checkpoint.
//!
//! - The form is that of [`StateTablesSnapshot`], as text: a version that changes it must read the older one here, too.
//!   If it cannot, the ledger does not open; nothing is skipped.
//! - A text that is too long for one record is split. All pieces are in one append, so that the log holds all of them
//!   or none; no checkpoint is taken between them.

use super::entry::Entry;
use crate::ledger::state::tables::{StateTables, StateTablesSnapshot};

/// The most bytes of text in one fact, so that it fits into a record with its JSON escapes.
const PIECE_BYTES: usize = 8 * 1024 * 1024;

/// The pieces that were read so far.
#[derive(Debug, Default)]
pub(in crate::ledger) struct CarriedPieces {
    pieces: u32,
    text: String,
}

impl CarriedPieces {
    /// Whether more pieces must follow.
    pub(in crate::ledger) const fn is_under_way(&self) -> bool {
        self.pieces > 0
    }

    /// Adds the next piece. The last one returns the tables; an error if this version cannot read them.
    pub(in crate::ledger) fn add(
        &mut self,
        piece: u32,
        of: u32,
        text: &str,
    ) -> serde_json::Result<Option<StateTablesSnapshot>> {
        if piece == 1 {
            *self = Self::default();
        }
        if piece != self.pieces + 1 {
            // The piece before it was lost to damage; the repair of that damage stored the tables again.
            *self = Self::default();
            return Ok(None);
        }
        self.pieces = piece;
        self.text.push_str(text);
        if piece < of {
            return Ok(None);
        }
        let text = std::mem::take(self).text;
        serde_json::from_str(&text).map(Some)
    }
}

/// The tables as facts.
pub(in crate::ledger) fn pieces(tables: &StateTables) -> serde_json::Result<Vec<Entry>> {
    Ok(split(&serde_json::to_string(&tables.snapshot())?, PIECE_BYTES))
}

fn split(mut text: &str, bytes_max: usize) -> Vec<Entry> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(bytes_max));
        pieces.push(piece);
        text = rest;
    }
    let of = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let entry = |(piece, text): (u32, &str)| Entry::PartsCarried { piece, of, text: text.to_owned() };
    (1..).zip(pieces).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_pieces_are_read_when_the_last_one_is_there_and_never_without_one_of_them() {
        let text = serde_json::to_string(&StateTables::default().snapshot()).unwrap();
        let entries = split(&text, 40);
        assert!(entries.len() > 3);
        let mut carrying = CarriedPieces::default();
        let mut add = |entry: &Entry| match entry {
            Entry::PartsCarried { piece, of, text } => carrying.add(*piece, *of, text).unwrap().is_some(),
            _ => panic!("another fact"),
        };
        for _ in 0..2 {
            let read: Vec<_> = entries.iter().map(&mut add).collect();
            assert_eq!(read.iter().filter(|read| **read).count(), 1);
            assert_eq!(read.last(), Some(&true));
        }
        // The first two pieces again: a crash cannot leave that, but damage can.
        assert!(entries.iter().take(2).chain(&entries).any(&mut add));
        assert!(!entries.iter().skip(1).any(&mut add));
        assert!(CarriedPieces::default().add(1, 1, "{}").is_err());
    }
}
