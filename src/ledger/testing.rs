//! For tests that compare the results of different folds.

use super::state::LedgerState;
use super::{Ledger, reclaim};
use crate::ledger::disk::row_codec::IdempotencyRow;
use crate::ledger::disk::table::DiskTables;
use crate::ledger::reclaim::log_snapshot::{MissingSnapshot, skip_reclaimed};
use crate::ledger::state::catch_up;
use crate::ledger::state::snapshot::StateSnapshot;
use contract::{Result, Sequence};
use log::{Log, LogError, Record, TopicNumber};
use std::collections::BTreeMap;

/// The result of a fold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoldedState {
    /// The small state, as a checkpoint has it.
    pub(crate) checkpoint: String,
    /// Those of topics that are not deleted.
    heads: BTreeMap<u128, [u8; 16]>,
    /// Those that have not expired.
    keys: BTreeMap<u128, [u8; 24]>,
}

/// A key of a row in these tests: it names its topic. Stored replies have topic 0.
pub(crate) fn row_key(key: u128, topic: u32) -> u128 {
    key * KEYS_PER_TOPIC + u128::from(topic)
}

const KEYS_PER_TOPIC: u128 = 1000;

impl FoldedState {
    fn of(state: &LedgerState) -> Self {
        let number = |key: u128| TopicNumber(u32::try_from(key % KEYS_PER_TOPIC).unwrap());
        let lives = |key: u128, row: [u8; 24]| {
            let stored_at = IdempotencyRow::decode(row).time;
            match number(key) {
                TopicNumber(0) => state.time - stored_at < state.answers_millis,
                number => {
                    state.registry.topic_numbered(number).is_some_and(|topic| topic.remembers(stored_at, state.time))
                }
            }
        };
        let is_deleted = |key: u128| state.registry.is_deleted(number(key));
        Self {
            checkpoint: serde_json::to_string(&StateSnapshot::of(state)).unwrap(),
            heads: state.disk_tables.heads.rows().into_iter().filter(|(key, _)| !is_deleted(*key)).collect(),
            keys: state.disk_tables.keys.rows().into_iter().filter(|(key, row)| lives(*key, *row)).collect(),
        }
    }
}

fn applied(records: &[Record], answers_millis: i64) -> LedgerState {
    let mut state = LedgerState { answers_millis, ..LedgerState::new(DiskTables::in_memory(|_| 0)) };
    records.iter().for_each(|record| state.apply(record).unwrap());
    state
}

/// A fold of these records.
pub(crate) fn fold_records(records: &[Record], answers_millis: i64) -> FoldedState {
    FoldedState::of(&applied(records, answers_millis))
}

/// A fold of these records, and then of what the log holds after them: as a broker does that opens with a checkpoint
/// there.
pub(crate) async fn fold_on(records: &[Record], log: &dyn Log, answers_millis: i64) -> Result<FoldedState, LogError> {
    let mut state = skip_reclaimed(log, applied(records, answers_millis), None, MissingSnapshot::Refuse).await?;
    catch_up::catch_up(log, &mut state, |_, _| ()).await?;
    Ok(FoldedState::of(&state))
}

/// A fold of these records, and then of what the log holds after them, without the snapshot: as a running broker does
/// that is behind.
pub(crate) async fn follow_on(records: &[Record], log: &dyn Log, answers_millis: i64) -> Result<FoldedState, LogError> {
    let mut state = applied(records, answers_millis);
    catch_up::catch_up(log, &mut state, |_, _| ()).await?;
    Ok(FoldedState::of(&state))
}

/// The state that a ledger has folded.
pub(crate) async fn folded(ledger: &Ledger) -> FoldedState {
    ledger.query_state(FoldedState::of).await.unwrap()
}

/// Takes a snapshot with parts of this size. Returns the last entry that it replaces.
pub(crate) async fn take_snapshot(ledger: &Ledger, part_bytes: usize) -> Result<Sequence> {
    reclaim::take_snapshot(ledger, part_bytes).await?.expect("no other process takes a snapshot");
    ledger.query_state(|state| state.usage().reclaimable().through).await
}
