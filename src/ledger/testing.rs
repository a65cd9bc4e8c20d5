//! For tests that compare what different folds come to.

use super::log_snapshot::skip_reclaimed;
use super::rows::Remembered;
use super::snapshot::Snapshot;
use super::state::State;
use super::table::Tables;
use super::{Ledger, fold, reclaim};
use contract::{Result, Sequence};
use log::{Log, LogError, Record};
use std::collections::BTreeMap;

/// What a fold came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    /// The small state, as a checkpoint has it.
    pub(crate) checkpoint: String,
    heads: BTreeMap<u128, [u8; 16]>,
    /// Those that have not expired.
    keys: BTreeMap<u128, [u8; 24]>,
}

impl Folded {
    fn of(state: &State) -> Self {
        let lives = |row: &[u8; 24]| state.time - Remembered::decode(*row).time < state.answers_millis;
        Self {
            checkpoint: serde_json::to_string(&Snapshot::of(state)).unwrap(),
            heads: state.tables.heads.rows(),
            keys: state.tables.keys.rows().into_iter().filter(|(_, row)| lives(row)).collect(),
        }
    }
}

fn applied(records: &[Record], answers_millis: i64) -> State {
    let mut state = State { answers_millis, ..State::new(Tables::in_memory(|_| 0)) };
    records.iter().for_each(|record| state.apply(record).unwrap());
    state
}

/// A fold of these records.
pub(crate) fn fold_records(records: &[Record], answers_millis: i64) -> Folded {
    Folded::of(&applied(records, answers_millis))
}

/// A fold of these records, and then of what the log holds behind them: as a broker opens that has a checkpoint there.
pub(crate) async fn fold_on(records: &[Record], log: &dyn Log, answers_millis: i64) -> Result<Folded, LogError> {
    let mut state = skip_reclaimed(log, applied(records, answers_millis), None).await?;
    fold::catch_up(log, &mut state, |_, _| ()).await?;
    Ok(Folded::of(&state))
}

/// The same without looking at a snapshot: as a broker does that runs and is behind.
pub(crate) async fn follow_on(records: &[Record], log: &dyn Log, answers_millis: i64) -> Result<Folded, LogError> {
    let mut state = applied(records, answers_millis);
    fold::catch_up(log, &mut state, |_, _| ()).await?;
    Ok(Folded::of(&state))
}

/// What a ledger has folded.
pub(crate) async fn folded(ledger: &Ledger) -> Folded {
    ledger.ask(Folded::of).await.unwrap()
}

/// Takes a snapshot whose parts are this large; answers through which entry.
pub(crate) async fn take_snapshot(ledger: &Ledger, part_bytes: usize) -> Result<Sequence> {
    reclaim::take(ledger, part_bytes).await?.expect("nobody else is at it");
    ledger.ask(|state| state.usage().reclaimable().through).await
}
