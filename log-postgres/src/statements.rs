//! The statements that append. Their columns are listed in [`crate::columns`] alone.

use crate::columns::{ENTRIES, EVENTS, TableColumns, TargetTables};
use std::fmt::Write;
use std::sync::LazyLock;

/// Compares without an append. Parameters: as `claim`, and how many milliseconds the loser keeps its turn.
pub(crate) const COMPARE: &str = "SELECT outcome, tail FROM compare($1, $2, $3, $4, $5, $6, $7)";

/// A commit that synchronous standbys must confirm, and that changes nothing. They confirm commits in order.
pub(crate) const CONFIRM: &str = "SELECT set_config('synchronous_commit', \
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true), \
    pg_logical_emit_message(true, 'event_broker'::text, ''::text)";

/// Releases the turn of a session that lost a comparison.
pub(crate) const RELEASE_TURN: &str = "SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)";

/// How many parameters `claim` has; the columns follow.
const CLAIM_PARAMS: usize = 6;

/// One insert per set of tables. If `claim` refuses, nothing is inserted.
struct InsertStatements {
    events: String,
    entries: String,
    both: String,
}

static INSERTS: LazyLock<InsertStatements> = LazyLock::new(|| {
    let claim = "claim($1, $2, $3, $4, $5, $6)";
    let events_end = CLAIM_PARAMS + EVENTS.columns.len();
    InsertStatements {
        events: format!("{} FROM {claim} AS claimed WHERE claimed", insert(&EVENTS, CLAIM_PARAMS)),
        entries: format!("{} FROM {claim} AS claimed WHERE claimed", insert(&ENTRIES, CLAIM_PARAMS)),
        // MATERIALIZED: it is called once for both.
        both: format!(
            "WITH claims AS MATERIALIZED (SELECT {claim} AS claimed), \
             events_added AS ({} FROM claims WHERE claimed) {} FROM claims WHERE claimed",
            insert(&EVENTS, CLAIM_PARAMS),
            insert(&ENTRIES, events_end)
        ),
    }
});

/// `INSERT … SELECT unnest($7::bigint[]), …`, with parameters that follow `params_before` others.
fn insert(TableColumns { table, columns }: &TableColumns, params_before: usize) -> String {
    let (mut names, mut arrays) = (String::new(), String::new());
    for ((name, array, cast), param) in columns.iter().zip(params_before + 1..) {
        let separator = if names.is_empty() { "" } else { ", " };
        let _ = write!(names, "{separator}{name}");
        let _ = write!(arrays, "{separator}unnest(${param}::{array}){cast}");
    }
    format!("INSERT INTO {table} ({names}) SELECT {arrays}")
}

/// The statement that inserts into `tables`; `None` if there is nothing to insert.
pub(crate) fn insert_into(tables: TargetTables) -> Option<&'static str> {
    match tables {
        TargetTables::None => None,
        TargetTables::Events => Some(INSERTS.events.as_str()),
        TargetTables::Entries => Some(INSERTS.entries.as_str()),
        TargetTables::Both => Some(INSERTS.both.as_str()),
    }
}

/// The statements that a session which appends prepares.
pub(crate) fn prepared() -> impl Iterator<Item = &'static str> {
    let tables = [TargetTables::Events, TargetTables::Entries, TargetTables::Both];
    tables.into_iter().filter_map(insert_into).chain([COMPARE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_parameters_of_an_insert_follow_each_other() {
        let both = insert_into(TargetTables::Both).unwrap();
        for part in [
            "INSERT INTO events (event_id, id, topic_number, ",
            "SELECT unnest($7::bigint[]), unnest($8::uuid[]), ",
            "unnest($29::text[])::jsonb, unnest($30::uuid[]), unnest($31::bytea[]), unnest($32::bytea[]) FROM claims",
            "INSERT INTO entries (position, sequence, stored_at, ",
            "unnest($33::bigint[]), ",
            "unnest($41::bytea[]) FROM claims WHERE claimed",
        ] {
            assert!(both.contains(part), "{part}\n{both}");
        }
    }
}
