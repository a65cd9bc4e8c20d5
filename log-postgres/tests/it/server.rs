//! The test server itself: it starts, stops, starts again, and leaves nothing behind.

use log_postgres::testing::{ShutdownMode, TestServer};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_server_stops_starts_again_and_takes_its_folder_with_it() {
    let server = TestServer::start();
    let url = server.create_database();
    server.sql(&url, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (7)");
    for how in [ShutdownMode::Fast, ShutdownMode::Immediate] {
        server.stop(how);
        let refused = server.psql(&url, "SELECT 1").unwrap_err();
        assert!(refused.contains("Connection refused"), "{refused}");
        server.start_again();
        assert_eq!(server.sql(&url, "SELECT number FROM kept"), "7");
    }
    assert_ne!(server.create_database(), url);
    let folder = server.folder().to_owned();
    drop(server);
    assert!(!folder.exists());
}

/// A fail-over test needs this: a standby has what was streamed to it, delays commits if it is required and gone, and serves
/// what it had after it is promoted.
#[test]
fn a_promoted_standby_serves_what_it_had() {
    let primary = TestServer::start();
    let url = primary.create_database();
    primary.sql(&url, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (1)");
    let standby = primary.start_standby("one");
    let there = standby.url(url.rsplit('/').next().unwrap());
    primary.require_standbys("one");
    primary.sql(&url, "INSERT INTO kept VALUES (2)");
    let refused = standby.psql(&there, "INSERT INTO kept VALUES (9)").unwrap_err();
    assert!(refused.contains("read-only"), "{refused}");
    standby.stop(ShutdownMode::Immediate);
    let mut waiting = session(&url);
    let mut told = waiting.stdin.take().unwrap();
    writeln!(told, "INSERT INTO kept VALUES (3);").unwrap();
    drop(told);
    primary.wait_until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')");
    assert_eq!(primary.sql(&url, "SELECT count(*) FROM kept"), "2", "it is shown before the standby has it");
    standby.start_again();
    assert!(waiting.wait().unwrap().success());
    standby.stop(ShutdownMode::Immediate);
    primary.require_standbys("");
    primary.sql(&url, "INSERT INTO kept VALUES (4)");
    primary.stop(ShutdownMode::Immediate);
    standby.start_again();
    standby.promote();
    assert_eq!(standby.sql(&there, "SELECT string_agg(number::text, ',' ORDER BY number) FROM kept"), "1,2,3");
    standby.sql(&there, "INSERT INTO kept VALUES (5)");
}

#[test]
fn a_restored_copy_is_as_it_was() {
    let server = TestServer::start();
    let url = server.create_database();
    server.sql(&url, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (1)");
    server.keep_copy();
    server.sql(&url, "INSERT INTO kept VALUES (2)");
    server.restore_copy();
    assert_eq!(server.sql(&url, "SELECT count(*) FROM kept"), "1");
}

#[test]
fn a_server_is_not_run_by_root() {
    let server = TestServer::shared();
    let (folder, data) = (server.folder(), server.folder().join("data"));
    let owners = [folder, &data].map(|path| std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap()));
    assert!(owners.iter().all(|owner| *owner != 0), "{owners:?}");
}

/// The program that is killed below; run on its own it does nothing.
#[test]
fn holds_a_server_until_killed() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let server = TestServer::start();
    println!("\nholds {} {}", server.url("postgres"), server.folder().display());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

const HOLD: &str = "EVENT_BROKER_HOLD_SERVER";

/// A `psql` session that fails when the server ends.
fn session(url: &str) -> Child {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", url]);
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Runs a query in it, and waits for its output.
fn ask(session: &mut Child, told: &mut ChildStdin, what: &str) {
    writeln!(told, "{what}").unwrap();
    let mut said = String::new();
    BufReader::new(session.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(what.contains(said.trim()) && !said.trim().is_empty(), "{said}");
}

#[test]
fn a_server_does_not_outlive_a_program_that_was_killed() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "server::holds_a_server_until_killed", "--nocapture"]).env(HOLD, "yes");
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find_map(|line| Some(line.strip_prefix("holds ")?.to_owned())).unwrap();
    let (url, folder) = line.split_once(' ').unwrap();
    // One holds a lock until its input ends; the other waits for the lock.
    let mut holder = session(url);
    let mut held = holder.stdin.take().unwrap();
    ask(&mut holder, &mut held, "SELECT 'locked' FROM pg_advisory_lock(1);");
    let mut waiter = session(url);
    let mut waits = waiter.stdin.take().unwrap();
    ask(&mut waiter, &mut waits, "SELECT 'connected';");
    writeln!(waits, "SET lock_timeout = '60s'; SELECT pg_advisory_lock(1);").unwrap();
    drop(waits);
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(!waiter.wait().unwrap().success(), "the server answered");
    drop(held);
    holder.wait().unwrap();
    let given_up = Instant::now() + Duration::from_secs(60);
    while Path::new(folder).exists() {
        assert!(Instant::now() < given_up, "{folder} is still there");
        std::thread::yield_now();
    }
}
