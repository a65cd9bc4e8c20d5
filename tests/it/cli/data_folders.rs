//! `verify`, `backup` and `restore`: a data folder is copied while it is in use, and restored to another place.

use super::{ask, feed, line, lines, run, server};
use crate::http::{CREATED, Server, client, event};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const APART: &str = "gts.hx.core.events.topic.v1~vendor.apart.v1";
const APART_TYPE: &str = "gts.hyperspot.core.events.type.v1~vendor.apart.happened.v1";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server with a topic in its own log, and small segments.
fn with_side_log(folder: &TempDir) -> Server {
    let config = folder.path().join("config.yaml");
    fs::write(&config, "modules:\n  event_broker:\n    storage:\n      segment_bytes: 65536\n").unwrap();
    let server = Server::start(&["--config", text(&config)]);
    ask(&server, &["topics", "create", APART, "--storage", "file", "--location", "deep/apart"]).expect(0);
    let types = format!("{}\n{}", json!({"id": CREATED}), json!({"id": APART_TYPE, "topic": APART}));
    feed(&server, &["types", "register"], &types).expect(0);
    server
}

/// The folder's files and their lengths.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), entry.metadata().unwrap().len())),
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_taken_under_load_holds_everything_acknowledged_before_it() {
    let folder = TempDir::new().unwrap();
    let server = with_side_log(&folder);
    let acknowledged = Arc::new(Mutex::new(Vec::<String>::new()));
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let publishers: Vec<_> = (0..8)
        .map(|number| {
            let (http, url) = (client(), format!("{}/v1/events", server.url));
            let (acknowledged, count, stop) = (Arc::clone(&acknowledged), Arc::clone(&count), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let event_type = if number % 2 == 0 { CREATED } else { APART_TYPE };
                    let response = http.post(&url).json(&event(event_type, &number.to_string())).send().await.unwrap();
                    assert_eq!(response.status(), 201);
                    let stored: Value = response.json().await.unwrap();
                    acknowledged.lock().unwrap().push(stored["id"].as_str().unwrap().to_owned());
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 1..=3 {
        while count.load(Ordering::Relaxed) < round * 700 {
            tokio::task::yield_now().await;
        }
        let promised: HashSet<String> = acknowledged.lock().unwrap().iter().cloned().collect();
        let (data, backup) = (server.path().to_owned(), folder.path().join(format!("backup-{round}")));
        let taken = backup.clone();
        let run = tokio::task::spawn_blocking(move || {
            run(&["backup", "--data", text(&data), "--output", text(&taken), "--json"])
        });
        let made = run.await.unwrap().expect(0).json();
        assert_eq!(made[0]["logs"].as_array().unwrap().len(), 2, "{made:?}");
        assert!(made[0]["logs"][0]["segments"].as_u64() > Some(1), "{made:?}");
        check_restored(&folder, &backup, &promised, round);
    }
    stop.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.await.unwrap();
    }
}

/// Restores a backup, serves it, and checks that it has every event.
fn check_restored(folder: &TempDir, backup: &Path, promised: &HashSet<String>, round: u64) {
    let before = files(backup);
    let data = TempDir::new_in(folder.path()).unwrap();
    run(&["restore", "--from", text(backup), "--data", text(data.path())]).expect(0);
    assert_eq!(files(backup), before, "restore does not change the backup");
    run(&["verify", "--data", text(data.path())]).expect(0);
    let restored = Server::start_in(data, &[]);
    let events = ask(&restored, &["export", "--all"]).expect(0).json();
    let ids: HashSet<_> = events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), events.len(), "no event is stored twice");
    let missing: Vec<_> = promised.difference(&ids).collect();
    assert!(missing.is_empty(), "round {round}: {} of {} are missing", missing.len(), promised.len());
    // And the restored broker accepts new events.
    ask(&restored, &["publish", &line("after")]).expect(0);
}

#[test]
fn a_backup_while_a_topic_lets_go_of_its_past_is_whole() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let mut bench = super::program(&["bench", "--data", text(&data), "--callers", "8", "--events", "100000000"])
        .args(["--segment-bytes", "65536", "--keep", "300", "--checkpoint-rows", "500", "--topics", "2", "--acks"])
        .spawn()
        .unwrap();
    let mut acks = std::io::BufRead::lines(std::io::BufReader::new(bench.stdout.take().unwrap()));
    for round in 0..6 {
        for _ in 0..1500 {
            acks.next().unwrap().unwrap();
        }
        let (backup, restored) = (folder.path().join(format!("b{round}")), folder.path().join(format!("r{round}")));
        // Read the pipe during the backup, because a full pipe would block the publisher.
        let listening = std::thread::spawn(move || {
            acks.next();
            acks
        });
        run(&["backup", "--data", text(&data), "--output", text(&backup)]).expect(0);
        acks = listening.join().unwrap();
        run(&["restore", "--from", text(&backup), "--data", text(&restored)]).expect(0);
        fs::remove_dir_all(&restored).unwrap();
        fs::remove_dir_all(&backup).unwrap();
    }
    bench.kill().unwrap();
    bench.wait().unwrap();
}

#[test]
fn nothing_is_written_over_and_nothing_half_made_is_left() {
    let server = server();
    feed(&server, &["publish", "-"], &lines(20)).expect(0);
    let folder = TempDir::new().unwrap();
    let backup = folder.path().join("backup");
    fs::create_dir(&backup).unwrap();
    let data = text(server.path());
    run(&["backup", "--data", data, "--output", text(&backup)]).expect(0);
    let taken = run(&["backup", "--data", data, "--output", text(&backup)]).expect(2);
    assert!(taken.err.contains("is not empty"), "{}", taken.err);
    let inside = server.path().join("inside");
    let taken = run(&["backup", "--data", data, "--output", text(&inside)]).expect(2);
    assert!(taken.err.contains("in the data folder itself"), "{}", taken.err);
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "mine").unwrap();
    let refused = run(&["restore", "--from", text(&backup), "--data", text(&full)]).expect(2);
    assert!(refused.err.contains("is not empty"), "{}", refused.err);
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "mine");
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["backup", "full"]);
    assert!(fs::read_dir(server.path()).unwrap().all(|entry| !text(&entry.unwrap().path()).ends_with(".part")));
}

#[test]
fn the_key_to_secrets_goes_with_a_backup_unless_it_is_left_out() {
    let server = server();
    ask(&server, &["subscriptions", "create", "mail", crate::http::TOPIC, "https://example.com/"]).expect(0);
    let folder = TempDir::new().unwrap();
    let (backup, bare, data) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("data"));
    run(&["backup", "--data", text(server.path()), "--output", text(&backup)]).expect(0);
    run(&["backup", "--data", text(server.path()), "--output", text(&bare), "--without-key"]).expect(0);
    run(&["restore", "--from", text(&backup), "--data", text(&data)]).expect(0);
    let key = |folder: &Path| fs::read(folder.join(event_broker::KEY_FILE)).ok();
    assert_eq!(key(&data).unwrap(), key(server.path()).unwrap());
    assert_eq!(key(&bare), None);
}

/// Restores a backup of 45 events that `spoil` has changed; returns the error output.
fn spoilt(spoil: impl Fn(&Path)) -> String {
    let folder = TempDir::new().unwrap();
    let server = with_side_log(&folder);
    // Three batches, each larger than a segment's target size: this makes three segments, two of them sealed.
    for _ in 0..3 {
        let input: String =
            (0..15).map(|_| super::event_with("s", &json!({"text": "x".repeat(5000)})) + "\n").collect();
        let file = folder.path().join("events");
        fs::write(&file, input).unwrap();
        ask(&server, &["publish", "--file", text(&file)]).expect(0);
    }
    let (backup, data) = (folder.path().join("backup"), folder.path().join("restored"));
    run(&["backup", "--data", text(server.path()), "--output", text(&backup)]).expect(0);
    spoil(&backup);
    let run = run(&["restore", "--from", text(&backup), "--data", text(&data)]).expect(1);
    assert!(!data.exists(), "a refused restore leaves no data folder");
    run.err
}

fn segments(backup: &Path) -> Vec<PathBuf> {
    files(&backup.join("log")).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn a_backup_that_is_damaged_or_not_whole_is_not_restored() {
    let said = spoilt(|backup| {
        let segment = &segments(backup)[0];
        let mut bytes = fs::read(segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(segment, bytes).unwrap();
    });
    assert!(said.contains("damaged") && said.contains("00000000000000000001.1.log"), "{said}");
    // No record in the log shows that the newest segment is missing.
    let said = spoilt(|backup| fs::remove_file(segments(backup).last().unwrap()).unwrap());
    assert!(said.contains("the backup is incomplete: it should contain "), "{said}");
    let said = spoilt(|backup| fs::remove_dir_all(backup.join("logs")).unwrap());
    assert!(said.contains("the backup is incomplete: it should contain "), "{said}");
    let said = spoilt(|backup| fs::write(backup.join("backup.json"), "{").unwrap());
    assert!(said.contains("backup.json"), "{said}");
}

#[test]
fn verify_says_what_is_there_and_what_is_wrong() {
    let server = server();
    // Two batches: damage in the last batch could not be distinguished from a torn append.
    for _ in 0..2 {
        feed(&server, &["publish", "-"], &lines(10)).expect(0);
    }
    let busy = run(&["verify", "--data", text(server.path())]).expect(1);
    assert!(busy.err.contains("another process has"), "{}", busy.err);
    let folder = server.kill();
    let data = text(folder.path());
    let out = run(&["verify", "--data", data]).expect(0).out;
    assert!(out.starts_with("1 segments, 22 records, ") && out.ends_with(" bytes, 0 damaged\n"), "{out}");
    assert_eq!(run(&["verify", "--data", data, "--quiet"]).expect(0).out, "");
    let report = run(&["verify", "--data", data, "--json"]).expect(0).json();
    assert_eq!((&report[0]["records"], &report[0]["damages"]), (&json!(22), &json!([])));
    let segment = folder.path().join("log/00000000000000000001.1.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[1000] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let out = run(&["verify", "--data", data]).expect(1).out;
    assert!(out.starts_with("damaged: ") && out.contains("00000000000000000001.1.log"), "{out}");
    let report = run(&["verify", "--data", data, "--json"]).expect(1).json();
    let damage = &report[0]["damages"][0];
    assert!(damage["file"].as_str().unwrap().ends_with(".log") && damage["offset"].is_u64(), "{damage}");
    // A backup of damaged data must not succeed as if the data were intact.
    let refused = run(&["backup", "--data", data, "--output", text(&folder.path().with_extension("copy"))]).expect(1);
    assert!(refused.err.contains(".log"), "{}", refused.err);
    assert!(!folder.path().with_extension("copy").exists());
}

#[test]
fn bench_leaves_nothing_behind_and_does_not_write_into_a_log() {
    let (here, temporary) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bench = |arguments: &[&str]| {
        let arguments: Vec<_> =
            ["bench", "--events", "200", "--callers", "4"].iter().chain(arguments).copied().collect();
        super::finish(super::program(&arguments).current_dir(&here).env("TMPDIR", temporary.path()).spawn().unwrap())
    };
    bench(&[]).expect(0);
    assert_eq!((files(here.path()), files(temporary.path())), (vec![], vec![]));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    bench(&["--data", "data"]).expect(0);
    let before = files(here.path());
    assert!(!before.is_empty(), "a folder named by the user is kept");
    let refused = bench(&["--data", "data"]).expect(2);
    assert!(refused.err.contains("already holds a log"), "{}", refused.err);
    assert_eq!(files(here.path()), before);
    bench(&["--data", "data", "--run", "1", "--append"]).expect(0);
}

#[test]
fn a_bench_that_is_stopped_removes_its_folder_which_nobody_else_could_read() {
    for signal in [Signal::TERM, Signal::INT] {
        let temporary = TempDir::new().unwrap();
        let mut child = super::program(&["bench", "--events", "1000000000", "--callers", "2", "--acks"]);
        let mut child = child.env("TMPDIR", temporary.path()).spawn().unwrap();
        let acknowledged = child.stdout.take().unwrap();
        let mut acknowledged = BufReader::new(acknowledged).lines();
        assert!(acknowledged.next().unwrap().unwrap().starts_with("ack "));
        // Read all other output, because a full pipe would block the process.
        let rest = std::thread::spawn(move || acknowledged.for_each(drop));
        let folder = fs::read_dir(&temporary).unwrap().next().unwrap().unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = super::finish(child).expect(1);
        assert!(ended.err.contains("interrupted"), "{}", ended.err);
        rest.join().unwrap();
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{signal:?}");
    }
}

#[test]
fn a_copy_whose_default_log_is_older_than_a_deletion_is_refused_and_not_called_ready() {
    let folder = TempDir::new().unwrap();
    let server = with_side_log(&folder);
    let other = "gts.hx.core.events.topic.v1~vendor.other.v1";
    ask(&server, &["topics", "create", other, "--storage", "file", "--location", "deep/apart"]).expect(0);
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    run(&["backup", "--data", text(server.path()), "--output", text(&before)]).expect(0);
    ask(&server, &["topics", "delete", other]).expect(0);
    run(&["backup", "--data", text(server.path()), "--output", text(&after)]).expect(0);
    // Simulates a copy of the default log from before the deletion and of the side log from after it.
    let side = Path::new("logs/deep/apart/log");
    fs::remove_dir_all(before.join(side)).unwrap();
    fs::rename(after.join(side), before.join(side)).unwrap();
    fs::remove_file(before.join("backup.json")).unwrap();
    let refused = run(&["restore", "--from", text(&before), "--data", text(&folder.path().join("data"))]).expect(1);
    assert!(refused.err.contains("is not consistent") && refused.err.contains(other), "{}", refused.err);
    let copy = folder.path().join("copy");
    let refused = run(&["backup", "--data", text(&before), "--output", text(&copy)]).expect(1);
    assert!(refused.err.contains("copies were not consistent") && !copy.exists(), "{}", refused.err);
}

#[test]
fn a_repair_that_was_interrupted_is_named_by_verify_and_by_a_dry_run() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    run(&["bench", "--data", text(&data), "--events", "10", "--callers", "1"]).expect(0);
    run(&["verify", "--data", text(&data)]).expect(0);
    fs::create_dir_all(data.join("cut")).unwrap();
    fs::write(data.join("cut/repair.json"), "{}").unwrap();
    let verified = run(&["verify", "--data", text(&data)]).expect(1);
    assert!(verified.out.contains("a repair was interrupted"), "{}", verified.out);
    let surveyed = run(&["repair", "--data", text(&data), "--dry-run"]).expect(0);
    assert!(surveyed.out.contains("an earlier repair was interrupted"), "{}", surveyed.out);
}
