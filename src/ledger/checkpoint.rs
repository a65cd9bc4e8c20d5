//! Checkpoints: the state as of one position, on disk, so that opening reads only what came after it.
//!
//! - A checkpoint is a cache. Missing or damaged, the state is folded from the whole log instead.
//! - Only what is applied, and therefore durable, goes into one. So a log that ends before its checkpoint has lost
//!   something acknowledged, and is refused. Not so one in a database: there an operator, or a fail-over, decided to go on
//!   with an older copy, and the checkpoint is dropped with a warning.
//! - One that skipped facts of a newer version is not believed by that version.
//! - It is written on a thread of its own; the writer goes on deciding meanwhile.

use super::Message;
use super::entry::DICTIONARY;
use super::home::Placed;
use super::parts::PartsSnapshot;
use super::registry::Registry;
use super::rows::Remembered;
use super::state::{LastBody, LastRecord, State};
use super::table::{Done, Found, Tables};
use contract::{Error, EventType, Kind, Position, Sequence, Topic};
use log::{Damage, Limit, Log, LogError, Range, TopicNumber, crash_point};
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
/// After a failed checkpoint the next is tried after this long, then after twice as long each time.
const RETRY_MILLIS: i64 = 1000;
const RETRY_MILLIS_MAX: i64 = 60_000;
/// While checkpoints fail, this many times the rows that make one due may be in RAM.
const ROWS_MAX_TIMES: usize = 16;

/// The small part of the state, next to the tables.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    position: Position,
    /// CRC32C of the record at `position`: tells this log from another.
    record_crc: u32,
    record_time: i64,
    record_topic: u32,
    record_sequence: Sequence,
    /// The version of the dictionary it was written with. Without it the checkpoint is of a version that skipped facts it
    /// did not know, and is not believed.
    dictionary: u32,
    /// The version that the log says it needs.
    #[serde(default)]
    needs_dictionary: u32,
    /// Facts of a newer version were skipped.
    #[serde(default)]
    has_skipped: bool,
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

/// How far a log had come, as its last checkpoint knows it: everything up to there was acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpointed {
    /// The position it was taken at; 0 where there is none.
    pub position: Position,
    /// The last sequence of each topic as of then.
    pub tails: Vec<(TopicNumber, Sequence)>,
    /// How long kept answers lived. Opened for longer, the checkpoint is not believed.
    pub answers_millis: i64,
}

/// The part of a snapshot that says how far its log had come.
#[derive(Deserialize)]
struct Reached {
    position: Position,
    tails: Vec<Sequence>,
    #[serde(default)]
    answers_millis: i64,
}

/// What the checkpoint in `folder` knows of its log, whoever uses it meanwhile. An error where it cannot be read; then it
/// is not believed either.
pub fn checkpointed(folder: &Path) -> io::Result<Checkpointed> {
    let Some(payload) = Tables::peek(folder)? else { return Ok(Checkpointed::default()) };
    let Reached { position, tails, answers_millis } = serde_json::from_str(payload.get())?;
    Ok(Checkpointed { position, tails: (0..).map(TopicNumber).zip(tails).collect(), answers_millis })
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
    /// While they fail.
    failing: Option<Failing>,
}

/// Checkpoints that fail, one after the other.
struct Failing {
    count: u32,
    cause: String,
    /// The next one is not tried between these, by the clock; one that is set back does not stretch it.
    since: i64,
    until: i64,
}

impl Failing {
    fn is_waiting(&self, now: i64) -> bool {
        (self.since..self.until).contains(&now)
    }
}

impl Checkpoints {
    /// Checkpoints of a state that stands at `position`, and is on disk as far.
    pub(super) fn new(on_disk: bool, rows_due: usize, position: Position, writer: mpsc::WeakSender<Message>) -> Self {
        Self { on_disk, rows_due, snapshot_bytes: 0, writer, running: None, position, failing: None }
    }

    /// Begins a checkpoint if one is due and none is under way.
    pub(super) fn consider(&mut self, state: &mut State, now: i64) {
        let rows = state.dirty_rows();
        let records = state.position.0.saturating_sub(self.position.0);
        let is_waiting = self.failing.as_ref().is_some_and(|failing| failing.is_waiting(now));
        if self.running.is_some() || is_waiting || !self.is_due(rows, records) {
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
            // Whatever becomes of it, the writer must hear of it: it starts no other checkpoint until then.
            let run = std::panic::AssertUnwindSafe(move || job.run(&crash_point));
            let outcome =
                std::panic::catch_unwind(run).unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
            if let Some(writer) = writer.upgrade() {
                // A writer that is gone collects the outcome itself.
                let _ = writer.blocking_send(Message::Checkpointed);
            }
            outcome
        };
        match std::thread::Builder::new().name("event-broker-checkpoint".to_owned()).spawn(work) {
            Ok(running) => self.running = Some(running),
            Err(error) => self.note(Err(&error.to_string()), now),
        }
    }

    fn is_due(&self, rows: usize, records: u64) -> bool {
        rows >= self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW) || records >= RECORDS_DUE
    }

    /// Takes over a checkpoint that is done. After a failed one its rows stay in RAM until the next succeeds.
    pub(super) fn collect(&mut self, state: &mut State, now: i64) {
        match self.running.take().map(JoinHandle::join) {
            Some(Ok(Ok(done))) => {
                self.snapshot_bytes = done.payload_bytes;
                state.tables.install(done);
                self.note(Ok(()), now);
            }
            Some(Ok(Err(error))) => self.note(Err(&error.to_string()), now),
            Some(Err(_)) => self.note(Err("its thread panicked"), now),
            None => (),
        }
    }

    /// Notes how a checkpoint ended. The first failure is logged, and the end of them; the next try is later each time.
    fn note(&mut self, outcome: Result<(), &str>, now: i64) {
        let failed = self.failing.take();
        let Err(cause) = outcome else {
            if let Some(Failing { count, .. }) = failed {
                tracing::info!(failed = count, "a checkpoint was written again");
            }
            return;
        };
        let is_news = failed.as_ref().is_none_or(|failed| failed.cause != cause);
        if is_news {
            tracing::error!(cause, "a checkpoint of the broker's tables failed; it is tried again");
        }
        let count = failed.map_or(0, |failed| failed.count).saturating_add(1);
        let wait = RETRY_MILLIS.checked_shl(count - 1).unwrap_or(RETRY_MILLIS_MAX).min(RETRY_MILLIS_MAX);
        self.failing = Some(Failing { count, cause: cause.to_owned(), since: now, until: now.saturating_add(wait) });
    }

    /// What readiness says while checkpoints fail.
    pub(super) fn warning(&self) -> Option<String> {
        let Failing { count, cause, .. } = self.failing.as_ref()?;
        Some(format!(
            "The last {count} checkpoints of the broker's tables failed ({cause}). Events are stored as usual, but opening \
             again takes longer; see that the folder `state` can be written to."
        ))
    }

    /// Why nothing more is taken: checkpoints fail, and as much is in RAM as may be.
    pub(super) fn refusal(&self, rows: usize) -> Option<Error> {
        let rows_max = self.rows_due.max(self.snapshot_bytes / BYTES_PER_ROW).saturating_mul(ROWS_MAX_TIMES);
        if self.failing.is_none() || rows < rows_max {
            return None;
        }
        let detail = "The broker's tables cannot be written to disk, and no more of them fits in memory. See that there is \
            room on the volume of the data folder; the broker tries again by itself.";
        Some(Error::new(Kind::Unavailable, detail).with_retry_after(5))
    }

    /// The last checkpoint before the end, written here and now.
    pub(super) fn last(&mut self, state: &mut State, now: i64) {
        self.collect(state, now);
        let is_due = self.on_disk && (self.position < state.position || self.failing.is_some());
        if is_due && let Err(error) = write_now(state) {
            tracing::error!(%error, "the last checkpoint of the broker's tables failed; opening again takes longer");
        }
    }
}

/// Writes a checkpoint here and now; `false` where there is no folder for it.
pub(super) fn write_now(state: &mut State) -> io::Result<bool> {
    let Some(job) = freeze(state) else { return Ok(false) };
    state.tables.install(job.run(&crash_point)?);
    Ok(true)
}

/// The state as of the last checkpoint in `folder`; an empty one where there is none to trust.
pub(super) async fn load(log: &dyn Log, folder: Option<&Path>, answers_millis: i64) -> Result<State, LogError> {
    let empty = |tables| State { answers_millis, ..State::new(tables) };
    let Some(folder) = folder else { return Ok(empty(Tables::in_memory(stamp))) };
    let (tables, found) = Tables::open(folder, stamp)?;
    let Found::Checkpoint(payload) = found else { return Ok(empty(tables)) };
    let reason = match serde_json::from_str::<Snapshot>(payload.get()) {
        Err(_) => "was written by another version",
        Ok(snapshot) if snapshot.lacks_facts() => "skipped facts that its version did not know",
        Ok(snapshot) => match belongs_to(log, &snapshot, folder).await? {
            true if snapshot.answers_millis >= answers_millis => {
                return Ok(State { answers_millis, ..snapshot.restore(tables) });
            }
            true => "was written while kept answers lived shorter than they do now",
            false => "is not of this log",
        },
    };
    tracing::warn!(folder = %folder.display(), "the last checkpoint {reason}; folding the log anew");
    drop(tables);
    Ok(start_over(folder, answers_millis)?)
}

/// An empty state, whatever the folder holds: the way out when the tables turn out to be unreadable.
pub(super) fn start_over(folder: &Path, answers_millis: i64) -> io::Result<State> {
    Ok(State { answers_millis, ..State::new(Tables::fresh(folder, stamp)?) })
}

/// Whether this is a checkpoint of this log. A record that retention has removed since cannot tell; it is believed.
async fn belongs_to(log: &dyn Log, snapshot: &Snapshot, folder: &Path) -> Result<bool, LogError> {
    let tail = *log.tail().borrow();
    if snapshot.position > tail && log.is_shared() {
        let missing = snapshot.position.0.saturating_sub(tail.0);
        tracing::warn!(
            checkpoint = snapshot.position.0,
            tail = tail.0,
            missing,
            "the log went back: records that this broker had read are not in the database any more. Going on with what it holds"
        );
        return Ok(false);
    }
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
        let numbered = numbers.filter_map(|number| registry.topic_numbered(TopicNumber(number)));
        Self {
            position: state.position,
            record_crc: state.last.body.crc(),
            record_time: state.last.time,
            record_topic: state.last.topic.0,
            record_sequence: state.last.sequence,
            dictionary: DICTIONARY,
            needs_dictionary: registry.dictionary(),
            has_skipped: state.has_skipped,
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

    /// Whether it was written without facts that this version may know.
    const fn lacks_facts(&self) -> bool {
        self.has_skipped && self.dictionary != DICTIONARY
    }

    fn restore(self, tables: Tables) -> State {
        let mut registry = Registry::default();
        let Self { position, time, tails, trimmed, has_skipped, .. } = self;
        let last = LastRecord {
            time: self.record_time,
            topic: TopicNumber(self.record_topic),
            sequence: self.record_sequence,
            body: LastBody::Crc(self.record_crc),
        };
        registry.set_dictionary(self.needs_dictionary);
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
        let registry = Arc::new(registry);
        State { position, time, registry, tails, trimmed, parts, last, has_skipped, ..State::new(tables) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_skipped_facts_is_not_believed_by_a_version_that_may_know_them() {
        let state = State::new(Tables::in_memory(stamp));
        for (has_skipped, dictionary, is_believed) in [
            (false, DICTIONARY, true),
            (true, DICTIONARY, true),
            (false, DICTIONARY - 1, true),
            (true, DICTIONARY - 1, false),
        ] {
            let snapshot = Snapshot { has_skipped, dictionary, ..Snapshot::of(&state) };
            assert_eq!(!snapshot.lacks_facts(), is_believed, "{has_skipped} {dictionary}");
        }
        // One of a version that did not say what it skipped is not even read.
        let mut older = serde_json::to_value(Snapshot::of(&state)).unwrap();
        older.as_object_mut().unwrap().remove("dictionary").unwrap();
        assert!(serde_json::from_value::<Snapshot>(older).is_err());
    }

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
