//! A log in a process without a file descriptor to spare.

use crate::support::*;
use log::file::{FileLog, FileLogOptions, OpenFiles};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::process::Command;

/// Set in the process whose descriptors are taken: the limit is one of the process, and other tests need theirs.
const IS_APART: &str = "LOG_TEST_WITHOUT_DESCRIPTORS";
/// Descriptors of that process.
const LIMIT: u64 = 100;

#[test]
fn a_segment_is_begun_while_every_other_descriptor_is_taken() {
    if std::env::var_os(IS_APART).is_some() {
        return roll_without_descriptors();
    }
    let name = "descriptors::a_segment_is_begun_while_every_other_descriptor_is_taken";
    let mut apart = Command::new(std::env::current_exe().unwrap());
    let output = apart.args(["--exact", name, "--nocapture"]).env(IS_APART, "1").output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Takes every descriptor that is free, and every one that the log frees.
fn take_all(taken: &mut Vec<File>) {
    while let Ok(file) = File::open("/") {
        taken.push(file);
    }
}

fn roll_without_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let options = FileLogOptions { open_files: OpenFiles::new(64), ..options(TINY) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let batches = batches(14, 120);
    let log = FileLog::open_folder(folder.path(), options).unwrap();
    runtime.block_on(fill(&log, &batches[..20]));
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(LIMIT);
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    let segments = |log: &FileLog| runtime.block_on(log::Log::segments(log, log::TopicNumber(1))).unwrap().len();
    let before = segments(&log);
    for batch in &batches[20..] {
        take_all(&mut taken);
        assert!(taken.len() > 10, "{}", taken.len());
        runtime.block_on(append(&log, batch)).unwrap();
    }
    assert!(segments(&log) > before + 20, "segments were begun");
    runtime.block_on(log.settle());
    assert_eq!(runtime.block_on(all(&log)), batches.concat());
}
