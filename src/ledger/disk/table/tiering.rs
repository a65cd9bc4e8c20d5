//! Chooses which runs a checkpoint merges and which it drops. `checkpoint_job` carries the choice out.
//!
//! - Runs of similar size gather until a tier is full and become one run of the next tier, so a row is written about
//!   once per tier, and a table of 10 million rows has at most a dozen runs.
//! - The newest runs are merged and the oldest dropped, so the order of age of the others never changes.

/// How runs are tiered.
#[derive(Debug, Clone, Copy)]
pub(super) struct TieringPolicy {
    /// How many runs of one tier are merged into one of the next.
    pub(super) factor: u64,
    /// Runs of fewer than `factor` times this many rows are all of the lowest tier: merging them costs next to nothing.
    pub(super) small_rows: u64,
    /// How many runs there are at most: a lookup checks the filter of each.
    pub(super) runs_max: usize,
}

/// The properties of a run that the choice depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunShape {
    /// How many rows it has.
    pub(super) rows: u64,
    /// The greatest stamp of its rows.
    pub(super) max_stamp: i64,
}

/// What to do with the runs of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MergeChoice {
    /// How many of the newest runs are merged with the new rows.
    pub(super) merge: usize,
    /// How many of the oldest runs hold only expired rows, and are dropped without reading them.
    pub(super) drop: usize,
}

impl Default for TieringPolicy {
    fn default() -> Self {
        Self { factor: 4, small_rows: 1 << 16, runs_max: 12 }
    }
}

impl TieringPolicy {
    /// Chooses for a checkpoint of `new_rows`, given the runs from newest to oldest.
    pub(super) fn choose(&self, new_rows: u64, runs: &[RunShape], expire_before: i64) -> MergeChoice {
        // Only from the oldest on: a younger run of expired rows may hide older rows that are not expired.
        let drop = runs.iter().rev().take_while(|run| run.max_stamp < expire_before).count();
        let kept = runs.get(..runs.len() - drop).unwrap_or_default();
        if new_rows == 0 {
            return MergeChoice { merge: 0, drop };
        }
        let crowded = (kept.len() + 1).saturating_sub(self.runs_max);
        MergeChoice { merge: self.full_tiers(new_rows, kept).max(crowded), drop }
    }

    /// How many of the newest runs are in tiers that the new rows fill up, one tier after the other.
    fn full_tiers(&self, new_rows: u64, runs: &[RunShape]) -> usize {
        let (mut rows, mut merge) = (new_rows, 0);
        loop {
            let rest = runs.iter().skip(merge).map(|run| run.rows);
            let peers: Vec<u64> = rest.take_while(|peer| self.tier(*peer) <= self.tier(rows)).collect();
            if (peers.len() as u64 + 1) < self.factor {
                return merge;
            }
            merge += peers.len();
            rows += peers.iter().sum::<u64>();
        }
    }

    fn tier(&self, rows: u64) -> u32 {
        (rows / self.small_rows).max(1).ilog(self.factor)
    }
}
