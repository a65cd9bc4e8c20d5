//! A soak: the real program under mixed load, with small segments and short retention. Whatever it holds levels off.
//!
//! - Runs only where `SOAK_SECONDS` says for how long: `make soak` (30 minutes), and a five-minute form in CI.
//! - Everything a broker keeps for good comes from a bounded pool (subjects, idempotency keys, names). What is left is what
//!   must go again: events past their retention, entries that say nothing any more, expired sessions, connections.
//! - What the broker tells of its jobs stays in a topic of its own for thirty days, and the last 10,000 dead letters that were
//!   dealt with are remembered. So most of what is given up or paused, is so in the first tenth of the run.
//! - At the end nothing may have been answered that the load did not expect, and `event-broker verify` must be content.

#![allow(clippy::print_stdout, reason = "the table is what a soak is read for")]

mod load;
mod readers;
mod samples;
mod workers;
mod writers;

use crate::http::{Server, is_on_databases};
use load::Load;
use samples::{Sample, check_level, print_table};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval};

/// How often the program is looked at.
const SAMPLE_MILLIS: u64 = 1000;

/// Segments, windows and chores so small that each of them comes round many times in five minutes.
const VARIABLES: [(&str, &str); 11] = [
    ("EVENT_BROKER__STORAGE__SEGMENT_BYTES", "65536"),
    ("EVENT_BROKER__MAINTENANCE__RETENTION_CHECK_SECS", "1"),
    ("EVENT_BROKER__MAINTENANCE__RECLAIM_BYTES", "131072"),
    ("EVENT_BROKER__MAINTENANCE__RECLAIM_AFTER_SECS", "5"),
    ("EVENT_BROKER__MAINTENANCE__ERASE_WITHIN_SECS", "5"),
    ("EVENT_BROKER__MAINTENANCE__CHECKPOINT_ROWS", "1000"),
    ("EVENT_BROKER__CLAIMS__LEASE_SECS", "5"),
    ("EVENT_BROKER__CLAIMS__HEARTBEAT_SECS", "1"),
    ("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true"),
    ("EVENT_BROKER__SERVER__HEADER_TIMEOUT_SECS", "5"),
    ("EVENT_BROKER__LOGGING__LEVEL", "warn,event_broker=info"),
];

/// How long the soak is to take; `None`: it was not asked for.
fn wanted() -> Option<Duration> {
    let seconds = std::env::var("SOAK_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("SOAK_SECONDS is a number of seconds")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_descriptors_threads_and_disk_level_off_under_mixed_load() {
    let Some(wanted) = wanted() else { return };
    if is_on_databases() {
        return;
    }
    // So that the share of open files that segments have is reached early.
    let server = Server::start_after("ulimit -n 1024", TempDir::new().unwrap(), &VARIABLES);
    let load = Arc::new(Load::new(&server, wanted));
    load.set_up().await;
    let working = workers::spawn_all(&load).await;
    let samples = watch(&server, wanted).await;
    for worker in working {
        // A worker that panicked is a fault of the load itself.
        worker.await.unwrap();
    }
    print_table(&samples);
    load.print_counts();
    load.expect_nothing_unexpected();
    let logged = server.logged();
    server.terminate();
    let (status, folder) = server.wait();
    assert!(status.success(), "{status}: {logged}");
    assert_verified(folder.path());
    let errors: Vec<_> = logged.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    check_level(&samples);
}

/// Looks at the program until the time is up.
async fn watch(server: &Server, wanted: Duration) -> Vec<Sample> {
    let (began, mut samples) = (Instant::now(), Vec::new());
    let mut ticks = interval(Duration::from_millis(SAMPLE_MILLIS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while began.elapsed() < wanted {
        ticks.tick().await;
        let (pid, folder) = (server.pid(), server.path().to_owned());
        let second = began.elapsed().as_secs();
        let sample = tokio::task::spawn_blocking(move || Sample::take(second, pid, &folder)).await.unwrap();
        samples.push(sample);
    }
    samples
}

fn assert_verified(folder: &std::path::Path) {
    let mut verify = Command::new(env!("CARGO_BIN_EXE_event-broker"));
    let output = verify.args(["verify", "--data"]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
