//! The example that keeps a table in PostgreSQL: killed at any point, its table equals that of a run that was never
//! killed.

use crate::test_broker::{Deadline, TestBroker, bank, moved};
use contract::api::*;
use contract::{Offset, Projection};
use log_postgres::testing::TestServer;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

const EVENTS: u64 = 12;

/// A broker with events of money transfers.
async fn broker() -> TestBroker {
    let broker = TestBroker::set(Vec::new()).await;
    for n in 1..=EVENTS {
        let account = format!("account-{}", n % 3);
        let amount = i64::try_from(n * n).unwrap() * if n % 4 == 0 { -1 } else { 1 };
        broker.publish(moved(&account, None, &json!({"account": account, "amount": amount}))).await;
    }
    broker
}

/// The example as it was built with these tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/accounts_table");
    assert!(program.exists(), "build it first: cargo build -p event-broker-client --examples");
    program
}

/// One projection: its name, its database, and the program that keeps its table.
struct Case<'a> {
    broker: &'a TestBroker,
    server: &'a TestServer,
    database: String,
    name: String,
}

impl<'a> Case<'a> {
    fn new(broker: &'a TestBroker, server: &'a TestServer, name: &str) -> Self {
        Self { broker, server, database: server.create_database(), name: name.to_owned() }
    }

    fn start(&self, crash: Option<&str>) -> Running {
        let mut command = Command::new(program());
        command.args([&self.broker.url, &self.database, &self.name]).stdin(Stdio::null());
        Running(command.envs(crash.map(|crash| ("ACCOUNTS_CRASH", crash))).spawn().unwrap())
    }

    /// Runs it until the broker knows that all events are applied, then stops it.
    async fn complete(&self) -> Projection {
        let running = self.start(None);
        let client = self.broker.client();
        // It registers the projection itself.
        let deadline = Deadline::begin();
        while client.projection(&self.name).await.is_err() {
            deadline.check("the projection");
            tokio::task::yield_now().await;
        }
        let projection = client.wait_for_projection(&self.name, Offset(EVENTS), Duration::from_secs(30)).await.unwrap();
        assert!(running.stop().success(), "the example failed when it was stopped");
        projection
    }

    /// Runs it until it dies.
    async fn die(&self, crash: &str) {
        let mut running = self.start(Some(crash));
        let status = tokio::task::spawn_blocking(move || running.0.wait().unwrap()).await.unwrap();
        assert_eq!(status.code(), None, "{crash}: expected a crash, but it ended with {status}");
    }

    fn table(&self) -> String {
        self.server.sql(&self.database, "SELECT account, balance, moves FROM accounts ORDER BY account")
    }

    fn checkpoint(&self) -> String {
        self.server.sql(&self.database, "SELECT generation, checkpoint FROM projection_checkpoints").trim().to_owned()
    }
}

/// A running program; killed when dropped.
struct Running(Child);

impl Running {
    fn stop(mut self) -> ExitStatus {
        assert!(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap().success());
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_its_table_is_that_of_a_run_never_killed() {
    let (broker, server) = (broker().await, TestServer::shared());
    let undisturbed = Case::new(&broker, server, "undisturbed");
    undisturbed.complete().await;
    let table = undisturbed.table();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert_eq!(undisturbed.checkpoint(), format!("1|{EVENTS}"));
    for place in ["before-write", "before-commit", "before-telling"] {
        for event in [1, 7, EVENTS] {
            let crash = format!("{place}@{event}");
            let case = Case::new(&broker, server, &crash.replace('@', "-"));
            case.die(&crash).await;
            // This is committed when the example dies there, whatever the broker has received.
            let committed = if place == "before-telling" { event } else { event - 1 };
            assert_eq!(case.checkpoint(), format!("1|{committed}"), "{crash}");
            case.complete().await;
            assert_eq!((case.table(), case.checkpoint()), (table.clone(), format!("1|{EVENTS}")), "{crash}");
        }
    }
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_its_table_is_that_of_a_run_never_killed() {
    let (broker, server) = (broker().await, TestServer::shared());
    let undisturbed = Case::new(&broker, server, "undisturbed");
    undisturbed.complete().await;
    let case = Case::new(&broker, server, "unlucky");
    for event in 1..=EVENTS {
        for place in ["before-write", "before-commit", "before-telling"] {
            case.die(&format!("{place}@{event}")).await;
        }
    }
    case.complete().await;
    assert_eq!(case.table(), undisturbed.table());
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_rebuilt_is_the_same_even_if_it_is_killed_meanwhile() {
    let (broker, server) = (broker().await, TestServer::shared());
    let case = Case::new(&broker, server, "rebuilt");
    case.complete().await;
    let table = case.table();
    broker.client().reset_projection("rebuilt", Offset(0)).await.unwrap();
    // It dies while it clears the table: nothing is cleared, and the generation is the old one.
    case.die("in-clear@0").await;
    assert_eq!((case.table(), case.checkpoint()), (table.clone(), format!("1|{EVENTS}")));
    case.die("before-commit@5").await;
    assert_eq!(case.checkpoint(), "2|4");
    let projection = case.complete().await;
    assert_eq!((projection.generation.get(), case.table()), (2, table));
    broker.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_event_is_named_on_the_way_out() {
    let (broker, server) = (broker().await, TestServer::shared());
    let bad = broker.publish(moved("account-1", None, &json!({"account": "account-1", "amount": "much"}))).await;
    let case = Case::new(&broker, server, "poisoned");
    let mut command = Command::new(program());
    command.args([&broker.url, &case.database, &case.name]).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("projection poisoned cannot apply event"), "{said}");
    assert!(said.contains(&format!("sequence {bad} of {}", bank())), "{said}");
    assert_eq!(case.checkpoint(), format!("1|{EVENTS}"));
    assert_eq!(broker.client().projection("poisoned").await.unwrap().checkpoint, Offset(EVENTS));
    broker.close().await;
}
