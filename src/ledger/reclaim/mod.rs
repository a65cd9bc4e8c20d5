//! Reclaiming the broker's own entries: a snapshot of the state that they led to is written, then they are removed.
//!
//! ```text
//!  topic 0   1 … … … … … … through │ …  part 1  …  part 2  …  answers, rows  …  taken
//!            └────── removed ──────┘ └─ stay ─────────────────────────────────────┘
//!                                  ▲ the state in the parts
//! ```
//!
//! 1. `snapshotBegan` keeps other brokers on the log from reclaiming at the same time.
//! 2. The small state is copied at one moment and written as parts, interleaved with other commands.
//! 3. The rows that old entries put into the on-disk tables (stored replies, rows of removed events) are written again.
//! 4. `snapshotTaken` records that the entries can be removed; when they are old enough, the engine removes them.
//!
//! - Before entries are removed, a checkpoint that covers them is written: the snapshot in the log is not the only
//!   copy.
//! - A run that is interrupted before the fourth step has changed nothing: the next run starts again. After it, the
//!   removal is idempotent and done by the next run.
//! - A fold of the remaining log leads to the state of a fold of everything, except for expired rows of the tables.

pub(super) mod log_snapshot;
mod memo;
pub(super) mod usage;

pub(super) use memo::ReclaimMemo;

use crate::ledger::decide::decision::Decision;
use crate::ledger::decide::stored_reply::StoredReply;
use crate::ledger::facts::carried_rows::{CarriedKey, CarriedRows};
use crate::ledger::facts::entry::Entry;
use crate::ledger::state::snapshot::StateSnapshot;
use crate::ledger::writer::command::Command;
use crate::ledger::{Ledger, read_failed};
use contract::{Error, Kind, Position, Result, Sequence};
use log::{LogError, ReadLimit, ReadRange, Record, TopicNumber, crash_point};
use log_snapshot::SnapshotPartWriter;
use std::io;
use tokio::sync::mpsc;
use usage::{EntryUsage, ReclaimPolicy};

/// Bytes of text in one part: small enough not to delay the batch that holds it.
pub(super) const PART_BYTES: usize = 256 * 1024;
/// The parts that wait to be appended while the next one is rendered.
const PARTS_WAITING_MAX: usize = 2;
/// The most that a run may write on a full disk: a small part of the space that is reserved for freeing space.
const FULL_BYTES_MAX: u64 = 1024 * 1024;
/// How much of the old entries is read, and written again, at once.
const PAGE: ReadLimit = ReadLimit { records: 2048, bytes: 256 * 1024 };
/// The beginnings of the bodies of entries that put rows into the on-disk tables.
const ROW_PREFIXES: [&[u8]; 2] = [br#"{"fact":"answerKept","#, br#"{"fact":"historyCarried","#];

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Bytes of the bodies of entries that can be removed from now on.
    pub bytes: u64,
    /// Bytes that were written in their place.
    pub live_bytes: u64,
    /// Entries up to here were removed by now.
    pub removed_through: Sequence,
}

/// A periodic run in one log, unless the last one failed just before. The result is logged and remembered.
pub(crate) async fn reclaim_if_due(ledger: &Ledger, policy: &ReclaimPolicy) {
    if !ledger.reclaim_memo().is_due() {
        return;
    }
    // A failure is noted in the memo, logged, and retried by a later tick.
    let _ = reclaim(ledger, policy).await;
}

/// Takes a snapshot if the log needs one: entries were reclaimed before, and parts of the last snapshot may be lost.
pub(crate) async fn renew_snapshot(ledger: &Ledger) -> Result<()> {
    let lost = |state: &crate::ledger::LedgerState| state.lost_facts_through;
    let through = ledger.query_state(move |state| state.usage().reclaimable().through.max(lost(state))).await?;
    if through > Sequence::ZERO {
        take_snapshot(ledger, PART_BYTES).await?;
    }
    Ok(())
}

/// Does what is due in one log: removes entries that a snapshot replaces, once they are old enough, and takes the next
/// snapshot. Does nothing while another call is running.
pub(crate) async fn reclaim(ledger: &Ledger, policy: &ReclaimPolicy) -> Result<ReclaimReport> {
    let Some(_turn) = ledger.reclaim_memo().try_start() else { return Ok(ReclaimReport::default()) };
    let begun = ledger.now();
    let outcome = reclaim_once(ledger, policy).await;
    ledger.reclaim_memo().note(outcome.as_ref().err());
    if let Ok(reclaimed) = &outcome
        && *reclaimed != ReclaimReport::default()
    {
        let ReclaimReport { bytes, live_bytes, removed_through } = reclaimed;
        let (removed_through, took_millis) = (removed_through.get(), ledger.now().saturating_sub(begun));
        tracing::info!(bytes, live_bytes, removed_through, took_millis, "the broker's own entries were reclaimed");
    }
    outcome
}

/// Reclaims everything that can be, whatever its age: the log is about to be closed.
pub(crate) async fn reclaim_before_close(ledger: &Ledger) -> Result<()> {
    let _turn = ledger.reclaim_memo().start().await;
    let policy = ReclaimPolicy { bytes_min: 0, within_millis: 0, keep_millis: 0 };
    reclaim_once(ledger, &policy).await.map(drop)
}

async fn reclaim_once(ledger: &Ledger, policy: &ReclaimPolicy) -> Result<ReclaimReport> {
    let mut reclaimed = ReclaimReport::default();
    let Some(usage) = remove_old(ledger, policy, &mut reclaimed).await? else { return Ok(reclaimed) };
    let now = ledger.now();
    let has_room = !ledger.log().is_full() || usage.bytes() <= FULL_BYTES_MAX;
    if !usage.is_due(policy, now) || !has_room || !may_begin(ledger, &usage, now).await? {
        return Ok(reclaimed);
    }
    ledger.log().may_remove().await.map_err(not_removed)?;
    check_readable(ledger).await?;
    if let Some((bytes, live_bytes)) = take_snapshot(ledger, PART_BYTES).await? {
        reclaimed = ReclaimReport { bytes, live_bytes, ..reclaimed };
        remove_old(ledger, policy, &mut reclaimed).await?;
    }
    Ok(reclaimed)
}

/// Refuses to begin if an entry that would be removed cannot be read: the rows that it puts must be written again.
/// This is checked before anything is appended; otherwise every try would append a whole snapshot for nothing.
async fn check_readable(ledger: &Ledger) -> Result<()> {
    let mut after = Sequence::ZERO;
    loop {
        let page = match ledger.log().read(ReadRange::Topic(TopicNumber::LEDGER, after), PAGE).await {
            Err(LogError::Trimmed(earliest)) => {
                after = Sequence(earliest.get().saturating_sub(1));
                continue;
            }
            Err(error @ LogError::Damaged(_)) => {
                let detail = "An entry of the broker's own is damaged. Stop the broker and run `event-broker repair` on its \
                              data folder.";
                return Err(Error::new(Kind::Unavailable, detail).with_source(error));
            }
            page => page.map_err(read_failed)?,
        };
        let Some(last) = page.last() else { return Ok(()) };
        after = last.header.sequence;
    }
}

/// Removes the entries that can be removed. `None` if some of them are still too young.
async fn remove_old(
    ledger: &Ledger,
    policy: &ReclaimPolicy,
    reclaimed: &mut ReclaimReport,
) -> Result<Option<EntryUsage>> {
    let usage = ledger.query_state(|state| *state.usage()).await?;
    let (through, memo) = (usage.reclaimable().through, ledger.reclaim_memo());
    if through <= memo.removed_through() {
        return Ok(Some(usage));
    }
    if ledger.time_for(usage.reclaimable().at).saturating_sub(usage.reclaimable().at) < policy.keep_millis {
        return Ok(None);
    }
    // Without a checkpoint the snapshot in the log would be the only copy: one damaged bit in it would lose the state.
    ledger.checkpoint().await?;
    crash_point("reclaim.before_remove");
    ledger.log().remove(TopicNumber::LEDGER, through).await.map_err(not_removed)?;
    crash_point("reclaim.after_remove");
    memo.note_removed(through);
    reclaimed.removed_through = through;
    Ok(Some(usage))
}

async fn may_begin(ledger: &Ledger, usage: &EntryUsage, now: i64) -> Result<bool> {
    // Facts that this version skipped are not in its state; a newer version will reclaim.
    let has_skipped = ledger.query_state(|state| state.has_skipped).await?;
    let left = ledger.reclaim_memo().began();
    Ok(!has_skipped && usage.may_begin(now, ledger.log().is_shared(), Some(left)))
}

/// Takes a snapshot. Returns how many bytes of entries can be removed for it, and how many were written. `None` if
/// another broker is reclaiming.
pub(super) async fn take_snapshot(ledger: &Ledger, part_bytes: usize) -> Result<Option<(u64, u64)>> {
    let memo = ledger.reclaim_memo();
    let begin = BeginReclaim { is_shared: ledger.log().is_shared(), left: memo.began() };
    let Some(began) = ledger.submit(begin).await? else { return Ok(None) };
    memo.note_began(began);
    crash_point("reclaim.after_begin");
    let frozen = ledger.query_state(|state| (StateSnapshot::of(state), state.usage, state.time)).await?;
    let (snapshot, usage, at) = frozen;
    let through = snapshot.through();
    let parts_bytes = append_parts(ledger, began, snapshot, part_bytes).await?;
    crash_point("reclaim.after_parts");
    let live_bytes = parts_bytes + append_rows(ledger, through).await?;
    crash_point("reclaim.after_rows");
    let (reclaimed_bytes, reclaimed_answer_bytes) = (usage.bytes(), usage.answer_bytes());
    let taken =
        Entry::SnapshotTaken { snapshot: began, through, at, reclaimed_bytes, reclaimed_answer_bytes, live_bytes };
    ledger.submit(ContinueReclaim { began, is_first: false, entry: taken }).await?;
    crash_point("reclaim.after_taken");
    Ok(Some((reclaimed_bytes, live_bytes)))
}

/// Appends the small state part by part. Returns the bytes of its text. It is rendered on a thread of its own, and
/// never as a whole.
async fn append_parts(ledger: &Ledger, began: Position, snapshot: StateSnapshot, part_bytes: usize) -> Result<u64> {
    let (parts, mut rendered) = mpsc::channel(PARTS_WAITING_MAX);
    let render = move || {
        let mut writer = SnapshotPartWriter::new(parts, part_bytes);
        serde_json::to_writer(&mut writer, &snapshot)?;
        writer.finish()
    };
    let render = tokio::task::spawn_blocking(render);
    let (mut bytes, mut part) = (0, 0);
    let mut next = rendered.recv().await;
    while let Some(text) = next.take() {
        next = rendered.recv().await;
        part += 1;
        bytes += text.len() as u64;
        // Only a text that was rendered completely has a last part.
        let is_last = next.is_none();
        let entry = Entry::SnapshotPart { snapshot: began, part, is_last, text };
        if is_last {
            break_if_failed(render).await?;
            ledger.submit(ContinueReclaim { began, is_first: part == 1, entry }).await?;
            return Ok(bytes);
        }
        ledger.submit(ContinueReclaim { began, is_first: part == 1, entry }).await?;
    }
    break_if_failed(render).await?;
    Err(Error::new(Kind::Unavailable, "A snapshot of the broker's state is empty."))
}

async fn break_if_failed(render: tokio::task::JoinHandle<io::Result<()>>) -> Result<()> {
    let failed = |cause| Error::new(Kind::Unavailable, "A snapshot of the broker's state failed.").with_source(cause);
    render.await.map_err(io::Error::other).flatten().map_err(failed)
}

/// Writes the table rows of entries up to `through` again, if they are still valid. Returns about how many bytes.
async fn append_rows(ledger: &Ledger, through: Sequence) -> Result<u64> {
    let (mut after, mut bytes) = (Sequence::ZERO, 0);
    while after < through {
        let page = match ledger.log().read(ReadRange::Topic(TopicNumber::LEDGER, after), PAGE).await {
            Err(LogError::Trimmed(earliest)) => {
                after = Sequence(earliest.get().saturating_sub(1));
                continue;
            }
            page => page.map_err(read_failed)?,
        };
        let Some(last) = page.last() else { break };
        after = last.header.sequence;
        let rows = RewriteRows::of(page.iter().filter(|record| record.header.sequence <= through))?;
        if !rows.is_empty() {
            bytes += ledger.submit(rows).await?;
        }
    }
    Ok(bytes)
}

/// A removal that the engine forbids is not retried: an operator has to allow it.
fn not_removed(error: LogError) -> Error {
    match error {
        LogError::Forbidden(what) => Error::new(Kind::InvalidState, format!("Entries cannot be removed: {what}")),
        other => read_failed(other),
    }
}

fn overtaken() -> Error {
    let detail = "Another broker on this log writes a snapshot of the broker's entries.";
    Error::new(Kind::Unavailable, detail).with_retry_after(60)
}

/// Begins a run, unless another broker is reclaiming.
struct BeginReclaim {
    is_shared: bool,
    /// The last run that this process began: if it is still open, it was interrupted.
    left: Position,
}

impl Command for BeginReclaim {
    type Answer = Option<Position>;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<Option<Position>> {
        match decision.durable().usage.may_begin(decision.now(), self.is_shared, Some(self.left)) {
            true => decision.add_entry(Entry::SnapshotBegan {}).map(Some),
            false => Ok(None),
        }
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Appends the next entry of a run, unless another broker has taken over.
struct ContinueReclaim {
    began: Position,
    is_first: bool,
    entry: Entry,
}

impl Command for ContinueReclaim {
    type Answer = ();

    fn decide(&self, decision: &mut Decision<'_>) -> Result<()> {
        if !decision.durable().usage.is_running(self.began) {
            return Err(overtaken());
        }
        if self.is_first {
            // An older broker that reads only the remaining entries must stop here and report the reason.
            decision.repeat_dictionary()?;
        }
        decision.add_entry(self.entry.clone()).map(drop)
    }

    fn bytes(&self) -> usize {
        match &self.entry {
            Entry::SnapshotPart { text, .. } => 2 * text.len(),
            _ => 0,
        }
    }
}

/// The table rows that a page of entries puts.
#[derive(Default)]
struct RewriteRows {
    answers: Vec<OldReply>,
    carried: CarriedRows,
    bytes: usize,
}

/// Whether a key still counts in its topic. No later topic has the keys of a deleted one.
fn is_valid(CarriedKey { row, topic, .. }: &CarriedKey, decision: &Decision<'_>) -> bool {
    let (registry, now) = (decision.registry(), decision.time_for(row.time));
    match topic {
        Some(number) if registry.is_deleted(*number) => false,
        topic => match topic.and_then(|number| registry.topic_numbered(number)) {
            Some(topic) => topic.remembers(row.time, now),
            // A key of an older version: outside the longest window it is expired in every topic.
            None => now.saturating_sub(row.time) < registry.longest_window_millis(),
        },
    }
}

/// A stored reply whose entry is removed.
struct OldReply {
    position: Position,
    key: u128,
    digest: u64,
    answer: StoredReply,
    body_bytes: u64,
}

impl RewriteRows {
    fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Result<Self> {
        let mut rows = Self::default();
        let has_rows = |record: &&Record| ROW_PREFIXES.iter().any(|prefix| record.body.starts_with(prefix));
        for record in records.filter(has_rows) {
            rows.bytes += record.body.len();
            match Entry::of(record).map_err(read_failed)? {
                Some(Entry::AnswerKept { key, digest, answer, .. }) => {
                    let body_bytes = record.body.len() as u64;
                    let position = record.header.position;
                    rows.answers.push(OldReply { position, key, digest, answer, body_bytes });
                }
                Some(Entry::HistoryCarried { carried }) => {
                    rows.carried.heads.extend(carried.heads);
                    rows.carried.keys.extend(carried.keys);
                }
                _ => (),
            }
        }
        Ok(rows)
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.carried == CarriedRows::default()
    }
}

impl Command for RewriteRows {
    /// About how many bytes were written.
    type Answer = u64;

    fn decide(&self, decision: &mut Decision<'_>) -> Result<u64> {
        let mut bytes = 0;
        let answers_millis = decision.durable().answers_millis;
        for OldReply { position, key, digest, answer, body_bytes } in &self.answers {
            if let Some(row) = decision.recorded_reply(*key)?
                && row.position == *position
                && decision.time_for(row.time).saturating_sub(row.time) < answers_millis
            {
                let (key, digest, answer) = (*key, *digest, answer.clone());
                decision.add_entry(Entry::AnswerKept { key, digest, answer, kept_at: Some(row.time) })?;
                bytes += body_bytes;
            }
        }
        let carried = self.still_so(decision)?;
        if carried != CarriedRows::default() {
            bytes += ((carried.heads.len() + carried.keys.len()) * 96) as u64;
            decision.add_entry(Entry::HistoryCarried { carried })?;
        }
        Ok(bytes)
    }

    fn bytes(&self) -> usize {
        2 * self.bytes
    }
}

impl RewriteRows {
    /// Rows of removed events that equal the rows in the tables, and are not expired.
    fn still_so(&self, decision: &Decision<'_>) -> Result<CarriedRows> {
        let mut carried = CarriedRows::default();
        for (key, head) in &self.carried.heads {
            if decision.head(*key)? == Some(*head) {
                carried.heads.push((*key, *head));
            }
        }
        for carried_key in &self.carried.keys {
            if is_valid(carried_key, decision) && decision.stored_key(carried_key.key)? == Some(carried_key.row) {
                carried.keys.push(*carried_key);
            }
        }
        Ok(carried)
    }
}
