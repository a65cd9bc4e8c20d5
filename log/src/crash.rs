//! Crash points: named places around each durable step, where a test can abort the process.
//!
//! With the feature `crash-points`, `EVENT_BROKER_CRASH_AT=<name>:<n>` aborts the process when the point is reached for
//! the n-th time. Without the feature a point compiles to nothing.

/// Every point, in the order in which a record reaches them.
pub const CRASH_POINTS: &[&str] = &[
    "append.before_write",
    "append.after_write",
    "append.after_sync",
    "append.after_visible",
    "roll.before_create",
    "roll.after_create",
    "roll.after_header_sync",
    "roll.after_folder_sync",
    "seal.before_index",
    "seal.after_index_write",
    "seal.after_index_sync",
    "remove.before_mark",
    "remove.after_mark_write",
    "remove.after_mark_sync",
    "rewrite.before_write",
    "rewrite.after_sync",
    "rewrite.after_folder_sync",
    "rewrite.after_remove_old",
    "checkpoint.before_runs",
    "checkpoint.after_runs",
    "checkpoint.after_manifest_write",
    "checkpoint.after_manifest_rename",
    "checkpoint.after_sweep",
    "reclaim.after_begin",
    "reclaim.after_parts",
    "reclaim.after_rows",
    "reclaim.after_taken",
    "reclaim.before_remove",
    "reclaim.after_remove",
];

/// Aborts the process if a test armed this point.
#[cfg(feature = "crash-points")]
pub fn crash_point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ARMED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    debug_assert!(CRASH_POINTS.contains(&name), "unlisted crash point {name}");
    let armed = ARMED.get_or_init(|| {
        let text = std::env::var("EVENT_BROKER_CRASH_AT").ok()?;
        let (name, count) = text.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(count.parse().ok()?)))
    });
    if let Some((armed, left)) = armed
        && armed == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

/// Does nothing in a build without the feature.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn crash_point(_name: &'static str) {}
