//! The small state as entries of the log: written in parts, and read back.
//!
//! - The parts contain the state as of one position. Everything that was appended between that position and the last
//!   part stays in the log and is folded on top of it.
//! - A run that did not end leaves an incomplete snapshot. It is ignored; the entries that it would have replaced are
//!   still there.
//! - A log whose first entries are removed must hold a complete snapshot near the first one left. Otherwise it is
//!   damaged.

use crate::ledger::facts::entry::{DICTIONARY, Entry};
use crate::ledger::state::LedgerState;
use crate::ledger::state::snapshot::StateSnapshot;
use contract::{Position, Sequence};
use log::{FileDamage, Log, LogError, ReadLimit, ReadRange, Record, TopicNumber};
use std::io;
use std::path::Path;
use tokio::sync::mpsc;

/// How much is read at a time while searching for the parts.
const PAGE: ReadLimit = ReadLimit { records: 4096, bytes: 4 * 1024 * 1024 };
const ONE: ReadLimit = ReadLimit { records: 1, bytes: 0 };
/// The beginning of the body of a part.
const PART_PREFIX: &[u8] = br#"{"fact":"snapshotPart","#;

/// Writes text as parts of at most `part_bytes`, each of whole characters. Blocks while the channel is full.
pub(in crate::ledger) struct SnapshotPartWriter {
    parts: mpsc::Sender<String>,
    part_bytes: usize,
    buffer: Vec<u8>,
}

impl SnapshotPartWriter {
    pub(in crate::ledger) fn new(parts: mpsc::Sender<String>, part_bytes: usize) -> Self {
        Self { parts, part_bytes: part_bytes.max(4), buffer: Vec::new() }
    }

    /// Sends the rest of the text.
    pub(in crate::ledger) fn finish(mut self) -> io::Result<()> {
        while !self.buffer.is_empty() {
            self.cut()?;
        }
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        let bytes = self.buffer.len().min(self.part_bytes);
        let head = self.buffer.get(..bytes).unwrap_or_default();
        let whole = match std::str::from_utf8(head) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.buffer.split_off(whole);
        let part = String::from_utf8(std::mem::replace(&mut self.buffer, rest)).map_err(io::Error::other)?;
        if part.is_empty() {
            return Err(io::Error::other("a snapshot is not text"));
        }
        self.parts.blocking_send(part).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl io::Write for SnapshotPartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= self.part_bytes {
            self.cut()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What happens with a log whose entries were reclaimed and that holds no complete snapshot of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum MissingSnapshot {
    /// The log is damaged.
    Refuse,
    /// A repair keeps what is left: the state of the checkpoint, however old it is, and the remaining entries.
    DoWithout,
}

/// The state, with the snapshot in the log in place of entries that were reclaimed before they were folded.
///
/// The on-disk tables are unchanged: the rows that the reclaimed entries put were written again after the snapshot.
pub(in crate::ledger) async fn skip_reclaimed(
    log: &dyn Log,
    state: LedgerState,
    folder: Option<&Path>,
    without: MissingSnapshot,
) -> Result<LedgerState, LogError> {
    let folded = state.tail(TopicNumber::LEDGER);
    let earliest = match log.headers(ReadRange::Topic(TopicNumber::LEDGER, folded), ONE).await {
        Err(LogError::Trimmed(earliest)) if earliest > folded.next() => earliest,
        Err(LogError::Trimmed(_)) | Ok(_) => return Ok(state),
        Err(error) => return Err(error),
    };
    let snapshot = match find(log, earliest).await? {
        Some(snapshot) => snapshot,
        None if without == MissingSnapshot::DoWithout => return Ok(without_snapshot(state, earliest)),
        None => return Err(missing(folder, earliest)),
    };
    tracing::info!(
        position = snapshot.position.get(),
        from = state.position().get(),
        "entries were reclaimed; the state is taken from the snapshot in the log"
    );
    Ok(merge_snapshot(state, snapshot))
}

/// The state to fold the remaining entries on, if the snapshot of those before `earliest` is lost.
fn without_snapshot(mut state: LedgerState, earliest: Sequence) -> LedgerState {
    let last = Sequence(earliest.get().saturating_sub(1));
    tracing::warn!(
        known = state.tail(TopicNumber::LEDGER).get(),
        lost_through = last.get(),
        "the snapshot of reclaimed entries is lost: the state is that of the last checkpoint and the remaining entries"
    );
    state.lost_facts_through = last;
    state
}

/// The state of the snapshot with the on-disk tables of `state`, which may be behind it.
fn merge_snapshot(state: LedgerState, snapshot: StateSnapshot) -> LedgerState {
    let has_skipped = snapshot.has_skipped || snapshot.dictionary > DICTIONARY;
    let LedgerState { position, last, disk_tables: tables, answers_millis, .. } = state;
    let taken = LedgerState { has_skipped, answers_millis, ..snapshot.restore(tables) };
    if position >= taken.position {
        // Events after the snapshot are in the on-disk tables already; folding them again changes nothing there.
        return taken;
    }
    LedgerState { facts_through: taken.position, position, last, ..taken }
}

/// The first complete snapshot of a log whose entries begin with `earliest`.
async fn find(log: &dyn Log, earliest: Sequence) -> Result<Option<StateSnapshot>, LogError> {
    let mut after = Sequence(earliest.get().saturating_sub(1));
    let mut pieces = SnapshotParts::default();
    loop {
        let page = match log.read(ReadRange::Topic(TopicNumber::LEDGER, after), PAGE).await {
            // Another broker reclaims entries at this moment.
            Err(LogError::Trimmed(earliest)) => return Err(LogError::Reclaimed(Sequence(earliest.get() - 1))),
            page => page?,
        };
        let Some(last) = page.last() else { return Ok(None) };
        after = last.header.sequence;
        for record in page.iter().filter(|record| record.body.starts_with(PART_PREFIX)) {
            if let Some(text) = pieces.add(record)? {
                let snapshot = read(&text, record.header.position)?;
                if snapshot.through().next() >= earliest {
                    return Ok(Some(snapshot));
                }
            }
        }
    }
}

/// The parts of one snapshot that were read so far.
#[derive(Default)]
struct SnapshotParts {
    snapshot: Position,
    count: u32,
    text: String,
}

impl SnapshotParts {
    /// Adds the part in a record. Returns the complete text with the last part.
    fn add(&mut self, record: &Record) -> Result<Option<String>, LogError> {
        let Some(Entry::SnapshotPart { snapshot, part, is_last, text }) = Entry::of(record)? else { return Ok(None) };
        if part == 1 {
            *self = Self { snapshot, ..Self::default() };
        }
        if snapshot != self.snapshot || part != self.count + 1 {
            // Parts of it are missing: they were reclaimed, or lost to damage.
            *self = Self::default();
            return Ok(None);
        }
        self.count = part;
        self.text.push_str(&text);
        Ok(is_last.then(|| std::mem::take(&mut self.text)))
    }
}

fn read(text: &str, position: Position) -> Result<StateSnapshot, LogError> {
    let unsupported = |reason: String| LogError::Unsupported { position, reason };
    let snapshot: StateSnapshot = serde_json::from_str(text).map_err(|cause| {
        unsupported(format!("ends a snapshot that this version ({}) cannot read ({cause})", env!("CARGO_PKG_VERSION")))
    })?;
    match snapshot.needs_dictionary > DICTIONARY {
        true => Err(unsupported("ends a snapshot of a newer version of the broker; run that version".to_owned())),
        false => Ok(snapshot),
    }
}

fn missing(folder: Option<&Path>, earliest: Sequence) -> LogError {
    LogError::Damaged(FileDamage {
        file: folder.unwrap_or(Path::new("log")).to_owned(),
        offset: 0,
        reason: format!(
            "the broker's own entries begin with {earliest}: earlier ones were reclaimed, and the log holds no complete \
             snapshot of them"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[tokio::test]
    async fn text_is_cut_into_pieces_of_whole_characters_and_put_together_again() {
        for part_bytes in [1, 4, 5, 7, 64] {
            let (parts, mut taken) = mpsc::channel(1024);
            let text = "aä€😀\"\\ zz".repeat(9);
            let written = text.clone();
            let write = move || {
                let mut writer = SnapshotPartWriter::new(parts, part_bytes);
                written.as_bytes().chunks(3).for_each(|chunk| writer.write_all(chunk).unwrap());
                writer.finish().unwrap();
            };
            tokio::task::spawn_blocking(write).await.unwrap();
            let mut whole = String::new();
            while let Some(part) = taken.recv().await {
                assert!(!part.is_empty() && part.len() <= part_bytes.max(4));
                whole.push_str(&part);
            }
            assert_eq!(whole, text);
        }
    }
}
