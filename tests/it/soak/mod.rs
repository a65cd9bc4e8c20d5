//! A soak test: the real program under mixed load, with small segments and short retention. Its use of every resource
//! levels off.
//!
//! - Runs only if `SOAK_SECONDS` sets the duration: `make soak` (30 minutes), and a five-minute form in CI.
//! - Everything that a broker keeps permanently comes from a bounded pool (subjects, idempotency keys, names). The rest
//!   must be removed again: events past their retention, obsolete entries, expired sessions, connections.
//! - The broker's operations events about its jobs stay in their topic for thirty days, and the last 10,000 resolved
//!   dead letters are remembered. So most jobs are given up or paused in the first tenth of the run.
//! - At the end the load must have received no unexpected response, and `event-broker verify` must succeed.

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

/// The interval between two measurements of the program.
const SAMPLE_MILLIS: u64 = 1000;

/// Segments, windows and task intervals so small that each of them occurs many times in five minutes.
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

/// The duration of the soak test; `None` if `SOAK_SECONDS` is not set.
fn wanted() -> Option<Duration> {
    let seconds = std::env::var("SOAK_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("SOAK_SECONDS must be a number of seconds")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_descriptors_threads_and_disk_level_off_under_mixed_load() {
    let Some(wanted) = wanted() else { return };
    if is_on_databases() {
        return;
    }
    // A low limit, so that segments reach their share of open files early.
    let server = Server::start_after("ulimit -n 1024", TempDir::new().unwrap(), &VARIABLES);
    let load = Arc::new(Load::new(&server, wanted));
    load.set_up().await;
    let working = workers::spawn_all(&load).await;
    let samples = watch(&server, wanted).await;
    for worker in working {
        // A panic of a worker is an error of the load itself.
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

/// Measures the program until the duration has passed.
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
