//! Checkpoints: the state as of one position, on disk, so that opening reads only what came after it.
//!
//! - A checkpoint is a cache. Missing or damaged, the state is folded from the whole log instead.
//! - Only what is applied, and therefore durable, goes into one. So a log that ends before its checkpoint has lost
//!   something acknowledged, and is refused.
//! - It is written on a thread of its own; the writer goes on deciding meanwhile.

use super::Message;
use super::home::Placed;
use super::parts::PartsSnapshot;
use super::registry::Registry;
use super::rows::Remembered;
use super::state::State;
use super::table::{Done, Found, Tables};
use contract::{EventType, Position, Sequence, Topic};
use log::{Damage, Limit, Log, LogError, Range, crash_point};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Records folded since the last one that make a checkpoint due.
const RECORDS_DUE: u64 = 4 * 1024 * 1024;
/// A checkpoint writes the small state whole, however little of it has changed: it waits for a row for so many bytes of it.
const BYTES_PER_ROW: usize = 10;

/// The small part of the state, next to the tables.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    position: Position,
    /// CRC32C of the record at `position`: tells this log from another.
    record_crc: u32,
    time: i64,
    /// How long kept answers lived: for longer, rows may be missing that the log still has.
    answers_millis: i64,
    tails: Vec<Sequence>,
    trimmed: Vec<Sequence>,
    /// In the order of their numbers, with the entry that defined each.
    topics: Vec<(Position, Topic)>,
    /// Of each topic, in the same order: keys stored up to then are forgotten for good.
    forgotten_through: Vec<i64>,
    /// Topics of other logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<(Position, Placed)>,
    event_types: Vec<(Position, EventType)>,
    /// Without it the checkpoint is of a version that knew no such parts, and is not believed.
    parts: PartsSnapshot,
}

/// The writer's side of checkpointing.
pub(super) struct Checkpoints {
    on_disk: bool,
    /// Rows in RAM that make one due.
    rows_due: usize,
    /// Bytes of the small state, as of the last one written.
    snapshot_bytes: usize,
    writer: mpsc::WeakSender<Message>,
    running: Option<JoinHandle<io::Result<Done>>>,
    /// Where the last one was begun.
    position: Position,
}

impl Checkpoints {
    /// Checkpoints of a state that stands at `position`, and is on disk as far.
    pub(super) fn new(on_disk: bool, rows_due: usize, position: Position, writer: mpsc::WeakSender<Message>) -> Self {
        Self { on_disk, rows_due, snapshot_bytes: 0, writer, running: None, position }
    }

    /// Begins a checkpoint if one is due and none is under way.
    pub(super) fn consider(&mut self, state: &mut State) {
        let rows = state.dirty_rows();
        let records = state.position.0.saturating_sub(self.position.0);
        if self.running.is_some() || !self.is_due(rows, records) {
            return;
        }
        if !self.on_disk {
            // Looking at every row again is worth it only after as many new ones.
            if records >= rows as u64 {
                self.position = state.position;
                state.tables.forget(expire_before(state));
            }
            return;
        }
        let Some(job) = freeze(state) else { return };
        self.position = state.position;
        let writer = self.writer.clone();
        let work = move || {
            let outcome = job.run(&crash_point);
            if let Some(writer) = writer.upgrade() {
                // A writer that is gone collects the outcome itself.
                let _ = writer.blocking_send(Message::Checkpointed);
            }
            outcome
        };
        self.running = std::thread::Builder::new().name("event-broker-checkpoint".to_owned()).spawn(work).ok();
    }

    fn is_due(&self, rows: usize, records: u64) -> bool {
        rows >= self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW) || records >= RECORDS_DUE
    }

    /// Takes over a checkpoint that is done. After a failed one its rows stay in RAM until the next succeeds.
    pub(super) fn collect(&mut self, state: &mut State) {
        if let Some(Ok(Ok(done))) = self.running.take().map(JoinHandle::join) {
            self.snapshot_bytes = done.payload_bytes;
            state.tables.install(done);
        }
    }

    /// The last checkpoint before the end, written here and now.
    pub(super) fn last(&mut self, state: &mut State) {
        self.collect(state);
        if self.on_disk && self.position < state.position {
            write_now(state);
        }
    }
}

/// Writes a checkpoint here and now; whether that worked. Without a folder it does not.
pub(super) fn write_now(state: &mut State) -> bool {
    let done = freeze(state).map(|job| job.run(&crash_point));
    let Some(Ok(done)) = done else { return false };
    state.tables.install(done);
    true
}

/// The state as of the last checkpoint in `folder`; an empty one where there is none to trust.
pub(super) async fn load(log: &dyn Log, folder: Option<&Path>, answers_millis: i64) -> Result<State, LogError> {
    let empty = |tables| State { answers_millis, ..State::new(tables) };
    let Some(folder) = folder else { return Ok(empty(Tables::in_memory(stamp))) };
    let (tables, found) = Tables::open(folder, stamp)?;
    let Found::Checkpoint(payload) = found else { return Ok(empty(tables)) };
    match serde_json::from_str::<Snapshot>(payload.get()) {
        Ok(snapshot) if belongs_to(log, &snapshot, folder).await? => {
            if snapshot.answers_millis >= answers_millis {
                return Ok(State { answers_millis, ..snapshot.restore(tables) });
            }
            tracing::info!(folder = %folder.display(), "kept answers live longer than before; folding the log anew");
            drop(tables);
            Ok(start_over(folder, answers_millis)?)
        }
        _ => {
            tracing::warn!(
                folder = %folder.display(),
                "the last checkpoint is not of this log or of an older version; folding the log anew"
            );
            drop(tables);
            Ok(start_over(folder, answers_millis)?)
        }
    }
}

/// An empty state, whatever the folder holds: the way out when the tables turn out to be unreadable.
pub(super) fn start_over(folder: &Path, answers_millis: i64) -> io::Result<State> {
    Ok(State { answers_millis, ..State::new(Tables::fresh(folder, stamp)?) })
}

/// Whether this is a checkpoint of this log. A record that retention has removed since cannot tell; it is believed.
async fn belongs_to(log: &dyn Log, snapshot: &Snapshot, folder: &Path) -> Result<bool, LogError> {
    let tail = *log.tail().borrow();
    if snapshot.position > tail {
        return Err(LogError::Damaged(Damage {
            file: folder.to_owned(),
            offset: 0,
            reason: format!(
                "the checkpoint was taken at position {}, but the log ends at {tail}: acknowledged records are missing",
                snapshot.position
            ),
        }));
    }
    let Some(before) = snapshot.position.0.checked_sub(1) else { return Ok(true) };
    let page = match log.read(Range::All(Position(before)), Limit { records: 1, bytes: 0 }).await {
        // It cannot tell either, and what it did is in the checkpoint.
        Err(LogError::Damaged(damage)) => {
            tracing::warn!(file = %damage.file.display(), offset = damage.offset, reason = damage.reason,
                position = snapshot.position.get(), "the record of the last checkpoint cannot be read");
            return Ok(true);
        }
        read => read?,
    };
    let record = page.first().filter(|record| record.header.position == snapshot.position);
    Ok(record.is_none_or(|record| crc32c::crc32c(&record.body) == snapshot.record_crc))
}

fn freeze(state: &mut State) -> Option<super::table::Job> {
    let (snapshot, expire_before) = (Snapshot::of(state), expire_before(state));
    let payload = move || Ok(RawValue::from_string(serde_json::to_string(&snapshot)?)?);
    state.tables.freeze(Box::new(payload), expire_before)
}

/// Keys from before this are past every topic's window, and that of kept answers, by the time of the last record. Every
/// later decision has a later time, and a window that is raised later revives no key ([`super::TopicEntry::remembers`]), so
/// dropping them changes no answer.
fn expire_before(state: &State) -> i64 {
    state.time.saturating_sub(state.registry.longest_window_millis().max(state.answers_millis))
}

/// When a key's life began.
fn stamp(row: &[u8; Remembered::BYTES]) -> i64 {
    Remembered::decode(*row).time
}

impl Snapshot {
    fn of(state: &State) -> Self {
        let registry = &state.registry;
        let numbers = 1..registry.next_topic_number();
        let numbered = numbers.filter_map(|number| registry.topic_numbered(log::TopicNumber(number)));
        Self {
            position: state.position,
            record_crc: crc32c::crc32c(&state.last_body),
            time: state.time,
            answers_millis: state.answers_millis,
            tails: state.tails.clone(),
            trimmed: state.trimmed.clone(),
            topics: numbered.clone().map(|topic| (topic.defined_at, topic.topic.clone())).collect(),
            forgotten_through: numbered.map(|topic| topic.forgotten_through).collect(),
            placed: registry.placed_topics().map(|known| (known.defined_at, known.placed.clone())).collect(),
            event_types: registry.event_types().map(|known| (known.defined_at, known.event_type.clone())).collect(),
            parts: state.parts.snapshot(),
        }
    }

    fn restore(self, tables: Tables) -> State {
        let mut registry = Registry::default();
        let Self { position, time, tails, trimmed, .. } = self;
        for ((number, (defined_at, topic)), forgotten_through) in (1..).zip(self.topics).zip(self.forgotten_through) {
            let tail = tails.get(number as usize).copied().unwrap_or_default();
            registry.add_topic(number, topic, defined_at, (tail, forgotten_through));
        }
        for (defined_at, placed) in self.placed {
            registry.place(placed, defined_at);
        }
        for (defined_at, event_type) in self.event_types {
            registry.add_type(event_type, defined_at);
        }
        let parts = Arc::new(self.parts.into());
        State { position, time, registry: Arc::new(registry), tails, trimmed, parts, ..State::new(tables) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_its_rows_by_a_large_small_state_later_and_by_records_in_any_case() {
        let (writer, _inbox) = mpsc::channel(1);
        let mut checkpoints = Checkpoints::new(true, 100, Position::ZERO, writer.downgrade());
        for (snapshot_bytes, rows, records, is_due) in [
            (0, 99, 0, false),
            (0, 100, 0, true),
            (100 * BYTES_PER_ROW, 100, 0, true),
            (101 * BYTES_PER_ROW, 100, 0, false),
            (101 * BYTES_PER_ROW, 101, 0, true),
            (usize::MAX, 0, RECORDS_DUE - 1, false),
            (usize::MAX, 0, RECORDS_DUE, true),
        ] {
            checkpoints.snapshot_bytes = snapshot_bytes;
            assert_eq!(checkpoints.is_due(rows, records), is_due, "{snapshot_bytes} {rows} {records}");
        }
    }
}
