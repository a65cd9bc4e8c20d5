//! The dead letters that a bulk redrive can resolve: exactly those that a single redrive would not refuse.
//!
//! - An event that retention has removed, that `repair` has cut out or that is damaged on disk cannot be worked on again,
//!   unless it is removed and a copy of it is stored.
//! - Neighbouring events are read together: one read for each run of them.

use super::check_lane;
use super::letter_event::event_of;
use crate::events::is_damage;
use crate::ledger::{DeadLetterRow, Ledger, read_failed};
use contract::{Result, Sequence, limits};
use log::{LogError, ReadLimit, ReadRange, TopicNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most sequences of one read.
const SPAN_MAX: u64 = 64;
const PAGE_BYTES: usize = 4 * limits::EVENT_BYTES_MAX;

/// The dead letters of a log that can be redriven: their events are stored, and their subscriptions exist.
pub(super) async fn redrivable(
    ledger: &Ledger,
    mut dead_letters: Vec<Arc<DeadLetterRow>>,
) -> Result<Vec<Arc<DeadLetterRow>>> {
    dead_letters.retain(|row| check_lane(ledger, row).is_ok());
    let mut wanted: BTreeMap<u32, BTreeSet<Sequence>> = BTreeMap::new();
    for row in &dead_letters {
        wanted.entry(row.letter.number).or_default().insert(row.letter.sequence);
    }
    let mut readable = BTreeMap::new();
    for (number, sequences) in wanted {
        readable.insert(number, readable_of(ledger, TopicNumber(number), sequences).await?);
    }
    let is_readable = |row: &DeadLetterRow| {
        readable.get(&row.letter.number).is_some_and(|sequences| sequences.contains(&row.letter.sequence))
    };
    let mut redrivable = Vec::new();
    for row in dead_letters {
        if is_readable(&row) || has_copy(ledger, &row).await? {
            redrivable.push(row);
        }
    }
    Ok(redrivable)
}

/// Whether a copy of the event of a dead letter can be read in its place.
async fn has_copy(ledger: &Ledger, row: &DeadLetterRow) -> Result<bool> {
    match event_of(ledger, &row.letter).await {
        Ok(event) => Ok(event.is_some()),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Those of a topic's events that can be read.
async fn readable_of(
    ledger: &Ledger,
    topic: TopicNumber,
    mut wanted: BTreeSet<Sequence>,
) -> Result<BTreeSet<Sequence>> {
    let mut readable = BTreeSet::new();
    while let Some(first) = wanted.first().copied() {
        let span_end = Sequence(first.get().saturating_add(SPAN_MAX - 1));
        let last = wanted.range(..=span_end).next_back().copied().unwrap_or(first);
        let records = usize::try_from(last.get() - first.get() + 1).unwrap_or(1);
        let range = ReadRange::Topic(topic, Sequence(first.get().saturating_sub(1)));
        // Everything up to here is examined.
        let through = match ledger.log().read(range, ReadLimit { records, bytes: PAGE_BYTES }).await {
            Ok(page) => {
                let found = page.iter().map(|record| record.header.sequence);
                readable.extend(found.filter(|sequence| wanted.contains(sequence)));
                page.last().map_or(last, |record| record.header.sequence)
            }
            Err(LogError::Trimmed(earliest)) => Sequence(earliest.get().saturating_sub(1)),
            // The damaged record is the first one that is stored: the requested one, or a later one.
            Err(LogError::Damaged(_)) => first,
            Err(error) => return Err(read_failed(error)),
        };
        wanted = wanted.split_off(&through.max(first).next());
    }
    Ok(readable)
}
